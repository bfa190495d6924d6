// Any text as a ConfigMap's config.json, on a node with and without keys of its own: it must not name a program.
#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"
#include "require.hpp"

namespace {

constexpr const char* kFile = "/etc/rdma-init/config.json";
constexpr const char* kOwn = R"({"runtime": {"hook": "/usr/bin/rdma-hook"}, "node_index": 3,
  "networks": {"n": {"ipam": {"type": "own"}, "ipam_dir": "/usr/lib/cni", "take_node_netdevs": true}}})";

void require_no_program(const hook::Config& config, bool has_own) {
  fuzz::require(
      config.runtime == (has_own ? hook::RuntimeOptions{.hook = "/usr/bin/rdma-hook"} : hook::RuntimeOptions()),
      "the runtime is the node's own");
  for (const auto& [name, network] : config.networks) {
    const bool own = has_own && name == "n";
    fuzz::require(network.ipam_plugin == (own ? "own" : ""), "plugins are the node's own", name);
    fuzz::require(network.take_node_netdevs == own, "only the node's own file allows netdevs to move", name);
    fuzz::require(network.ipam_dir == (own ? "/usr/lib/cni" : hook::kIpamDirectory),
                  "the directory of plugins is the node's own", name);
  }
  if (has_own)
    fuzz::require(config.node_index == hook::NodeIndex{hook::NodeIndex::By::kNumber, 3}, "the index is the node's own");
  if (has_own || !config.node_index) return;
  const std::string& file = config.node_index->file;
  fuzz::require(config.node_index->by != hook::NodeIndex::By::kNumber, "a ConfigMap sets no number for all nodes");
  fuzz::require(file.empty() || (file.starts_with("/etc/rdma-init/") && file.find('/', 15) == std::string::npos &&
                                 file.find("..") != 15),
                "the file of its index is root's", file);
}

}  // namespace

void fuzz::run(std::string_view text, FuzzedDataProvider) {
  const hook::ConfigText cluster{"cm", std::string(text), true};
  for (const bool has_own : {false, true}) {
    std::vector<hook::ConfigText> texts{cluster};
    if (has_own) texts.push_back({kFile, kOwn});
    const auto parsed = hook::parse_config(texts);
    for (const auto& problem : parsed.problems)
      fuzz::require_one_line(to_string(problem), "a problem of a ConfigMap");
    if (parsed.ok()) require_no_program(parsed.config, has_own);
  }
}
