// cni.spidernet.io/rdma-resource-inject and /network-resource-inject: the name that the webhook's network
// configurations share, here a network of config.json. The webhook leaves out namespaces by
// podResourceInject.namespacesExclude and takes only those of namespacesInclude when that is set; so does this.
#include <algorithm>

#include "fabric/text.hpp"
#include "hook/request/request_parsers.hpp"

namespace hook {
namespace {

using fabric::Result;

constexpr const char* kKeys[] = {"cni.spidernet.io/rdma-resource-inject", "cni.spidernet.io/network-resource-inject"};

bool matches(const std::vector<std::string>& globs, std::string_view name) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string& glob) { return fabric::glob_match(glob, name); });
}

bool takes_namespace(const Config& config, std::string_view name) {
  if (matches(config.namespaces_exclude, name)) return false;
  return config.namespaces_include.empty() || matches(config.namespaces_include, name);
}

}  // namespace

Result<Said> spiderpool_annotations(const ContainerSpec& spec, const Config& config, std::string_view pod_namespace) {
  Said said;
  if (!takes_namespace(config, pod_namespace)) return said;
  for (const char* key : kKeys) {
    auto found = TRY(find_annotation(spec, key));
    if (!found || found->text.empty()) continue;
    if (!config.networks.empty()) {
      said.network = *std::move(found);
      return said;
    }
    said.warnings.push_back(fmt::format("{} names the network `{}`, but config.json has no networks: device nodes only",
                                        found->source,
                                        fabric::printable(std::string_view(found->text).substr(0, 128))));
    Wish wish;
    wish.kind = Wish::Kind::kAll;
    wish.source = found->source;
    said.wish = std::move(wish);
    return said;
  }
  return said;
}

}  // namespace hook
