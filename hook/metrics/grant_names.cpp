#include "hook/metrics/grant_names.hpp"

#include <optional>
#include <utility>
#include <vector>

#include "hook/base/json/json.hpp"
#include "hook/grant/asking.hpp"
#include "hook/ledger/files.hpp"
#include "hook/oci/caller.hpp"
#include "hook/oci/container_spec.hpp"

namespace hook {
namespace {

constexpr std::size_t kLongestId = 128;

// containerd 2.0's state directory and CRI-O 1.30's run root, unless their configuration says otherwise.
std::vector<std::string> bundles_of(const GrantUser& user) {
  if (!user.bundle.empty()) return {user.bundle};
  if (!is_file_name(user.id, kLongestId)) return {};
  return {"/run/containerd/io.containerd.runtime.v2.task/k8s.io/" + user.id,
          "/run/containers/storage/overlay-containers/" + user.id + "/userdata"};
}

// nullopt: there is no such bundle.
std::optional<PodNames> read_names(const std::string& root, const std::string& bundle) {
  const auto text = read_bundle_config(root + bundle);
  const auto document = text ? parse_json(*text, "config.json") : text.error();
  const auto spec = document ? read_container_spec(*document) : document.error();
  if (!spec) return std::nullopt;
  const Recognised caller = recognise({.bundle = bundle}, spec->cgroups_path);
  PodIdentity pod = pod_identity(*spec, caller.engine);
  return PodNames{std::move(pod.pod_namespace), std::move(pod.pod_name), std::move(pod.container_name)};
}

}  // namespace

PodNames GrantNames::of(const GrantUser& user) {
  for (const std::string& bundle : bundles_of(user)) {
    if (const auto known = known_.find(bundle); known != known_.end()) {
      known->second.is_used = true;
      return known->second.names;
    }
    auto names = read_names(root_, bundle);
    if (!names) continue;
    return known_.emplace(bundle, Known{*std::move(names)}).first->second.names;
  }
  return {};
}

void GrantNames::forget_others() {
  std::erase_if(known_, [](const auto& entry) { return !entry.second.is_used; });
  for (auto& [bundle, known] : known_)
    known.is_used = false;
}

}  // namespace hook
