// k8s.volcengine.com/pod-networks: a JSON list with one {"cniConf": {"name": "rdma"}} for each NIC.
#include <utility>

#include "fabric/text.hpp"
#include "hook/base/json/json.hpp"
#include "hook/request/request_parsers.hpp"

namespace hook {
namespace {

using fabric::make_error;
using fabric::Result;

constexpr const char* kKey = "k8s.volcengine.com/pod-networks";
constexpr int kDepth = 16;

// The name of an entry's CNI configuration; nullopt: it has none, so it is not ours.
std::optional<std::string> cni_name(const Json& entry) {
  const auto cni = entry.find("cniConf");
  if (cni == entry.end() || !cni->is_object()) return std::nullopt;
  const auto name = cni->find("name");
  if (name == cni->end() || !name->is_string()) return std::nullopt;
  return name->get<std::string>();
}

bool is_rdma(const std::string& name, const Config& config) {
  return config.networks.empty() ? name == "rdma" : config.networks.contains(name);
}

fabric::Error malformed(std::string_view source, std::string_view what) {
  fabric::Error error = make_error("{}: {}", source, what);
  error.hint = R"(one {"cniConf": {"name": "rdma"}} for each NIC, in a list)";
  return error;
}

}  // namespace

Result<Said> volcengine_annotation(const ContainerSpec& spec, const Config& config) {
  Said said;
  const auto found = TRY(find_annotation(spec, kKey));
  if (!found) return said;
  auto parsed = parse_json(found->text, found->source, {kMaxValueBytes, kDepth});
  if (!parsed) return malformed(found->source, "no JSON that can be read: " + parsed.error().message);
  if (!parsed->is_array()) return malformed(found->source, "expected a list");
  if (parsed->size() > kMaxListEntries) {
    return make_error("{}: a list of {} entries, at most {} are read", found->source, parsed->size(), kMaxListEntries);
  }
  unsigned count = 0;
  for (const Json& entry : *parsed) {
    if (!entry.is_object()) return malformed(found->source, "expected objects in the list");
    // Other names are the pod's other NICs: somebody else's work.
    const auto name = cni_name(entry);
    if (!name || !is_rdma(*name, config)) continue;
    ++count;
    if (config.networks.empty()) continue;
    if (said.network && said.network->text != *name) {
      return make_error("{}: names the networks `{}` and `{}`, a container gets one", found->source,
                        fabric::printable(said.network->text), fabric::printable(*name));
    }
    said.network = SourcedText{*name, found->source};
  }
  if (count == 0) return said;
  if (count > kMaxCount) return make_error("{}: asks for {} NICs, at most {}", found->source, count, kMaxCount);
  Wish wish;
  wish.kind = Wish::Kind::kCount;
  wish.count = count;
  wish.source = found->source;
  said.wish = std::move(wish);
  said.nics = count;
  return said;
}

}  // namespace hook
