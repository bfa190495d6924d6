#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/file.hpp"
#include "base/text.hpp"
#include "fabric/read_inventory.hpp"
#include "fabric/snapshot.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/program/commands.hpp"

namespace hook {
namespace {

constexpr std::string_view kSuffix = ".json";

// Returns the file name without directory and ".json".
std::string node_name(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  if (path.ends_with(kSuffix)) path.remove_suffix(kSuffix.size());
  return std::string(path);
}

// Returns the file, or the files NODE.json of a directory in the order of their names.
Result<std::vector<std::string>> snapshot_files(const std::string& path) {
  constexpr std::size_t kMostNodes = 4096;
  const auto directory = path == "-" ? std::nullopt : base::Directory::open(path);
  if (!directory) return std::vector<std::string>{path};
  std::vector<std::string> files;
  for (const std::string& name : directory->list())
    if (name.ends_with(kSuffix) && !name.starts_with('.')) files.push_back(fmt::format("{}/{}", path, name));
  if (files.empty() || files.size() > kMostNodes)
    return Error{
        fmt::format("`{}` has {} files NODE.json, not 1 to {}", base::printable(path), files.size(), kMostNodes), 0,
        "run `rdma-init snapshot > NODE.json` on each node, and pass the directory of the files"};
  std::ranges::sort(files, base::natural_less);
  return files;
}

}  // namespace

Result<void> print_generated_config(const Options& options, const Log& log) {
  std::vector<NamedNode> nodes;
  for (const std::string& path : options.snapshots)
    for (const std::string& file : TRY(snapshot_files(path))) {
      auto inventory = TRY(fabric::read_snapshot(file));
      nodes.push_back({node_name(file), std::move(inventory)});
    }
  if (options.snapshots.empty()) {
    auto inventory = fabric::read_inventory({.root = options.node.root, .full = true});
    std::vector<std::string> warnings;
    if (const auto noted = note_away_hcas(options.node, nullptr, inventory); !noted)
      warnings.push_back(
          fmt::format("{}: HCAs of containers may be missing; remedy: run the command as root", noted.error().message));
    for (const fabric::Hca& hca : inventory.away)
      warnings.push_back(
          fmt::format("`{}` is left out: a container has it; remedy: run the command again after the "
                      "container has ended",
                      base::printable(hca.name.empty() ? *hca.pci : hca.name)));
    log.warnings(warnings);
    nodes.push_back({"this node", std::move(inventory)});
  }
  const GeneratedConfig generated = TRY(generate_config(nodes, options.generate));
  log.warnings(generated.warnings);
  std::fwrite(generated.text.data(), 1, generated.text.size(), stdout);
  return {};
}

}  // namespace hook
