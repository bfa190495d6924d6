// A ConfigMap's config.json, on a node that has keys of its own: whatever it is, it names no program.
#include <cstdint>

#include "hook/base/json/json.hpp"
#include "hook/cluster/apply_config.hpp"
#include "hook/cluster/node_keys.hpp"
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
    fuzz::require(network.take_node_netdevs == own, "the node's netdevs stay unless its own file says so", name);
    fuzz::require(network.ipam_dir == (own ? "/usr/lib/cni" : hook::kIpamDirectory), "and their directory is", name);
  }
  if (has_own) fuzz::require(config.node_index == hook::NodeIndex{hook::NodeIndex::By::kNumber, 3}, "so is its index");
  if (has_own || !config.node_index) return;
  const std::string& file = config.node_index->file;
  fuzz::require(config.node_index->by != hook::NodeIndex::By::kNumber, "no number is every node's");
  fuzz::require(file.empty() || (file.starts_with("/etc/rdma-init/") && file.find('/', 15) == std::string::npos &&
                                 file.find("..") != 15),
                "the file of its index is root's", file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const hook::ConfigText cluster{"cm", std::string(reinterpret_cast<const char*>(bytes), size)};
  for (const bool has_own : {false, true}) {
    std::vector<hook::ConfigText> present;
    if (has_own) present.push_back({kFile, kOwn});
    const auto considered = hook::consider_config(cluster, present, kFile);
    bool is_refused = false;
    for (const auto& problem : considered.problems) {
      is_refused = is_refused || problem.is_error;
      fuzz::require_one_line(to_string(problem), "a problem of a ConfigMap");
    }
    if (is_refused) continue;
    require_no_program(considered.config, has_own);
    // What is written is what was checked, and applied once more it stays.
    const auto written = hook::valid_config({{kFile, considered.text}});
    fuzz::require(written && *written == considered.config, "what is written is what was checked");
    const auto again = hook::consider_config(cluster, {{kFile, considered.text}}, kFile);
    fuzz::require(again.text == considered.text, "applied once more it stays");
  }
  return 0;
}
