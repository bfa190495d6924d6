// make-tree SNAPSHOT DIR [--full]             writes a snapshot as a file tree
// make-tree --synthetic HCAS SLOTS DIR [VFS]  writes a node with HCAS rails and SLOTS GID slots each, with its own IPv4
//                                             GID at index 3, and with VFS VFs of the first HCA
#include <fmt/core.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "fabric/snapshot.hpp"
#include "support/inventories.hpp"
#include "support/tree.hpp"

namespace {

constexpr int kExitUsage = 2;

int usage() {
  std::fputs("usage: make-tree SNAPSHOT DIR [--full]\n       make-tree --synthetic HCAS SLOTS DIR [VFS]\n", stderr);
  return kExitUsage;
}

int synthetic(const std::vector<std::string_view>& arguments) {
  const auto hcas = base::parse_number<unsigned>(arguments[1]);
  const auto slots = base::parse_number<unsigned>(arguments[2]);
  const auto vfs = arguments.size() == 5 ? base::parse_number<unsigned>(arguments[4]) : 0U;
  if (!hcas || *hcas > 200 || !slots || *slots < 4 || *slots > 65536 || !vfs || *vfs > 1000 ||
      (*hcas == 0 && *vfs > 0)) {
    std::fputs("make-tree: expected up to 200 HCAs, 4 to 65536 slots and up to 1000 VFs of an HCA\n", stderr);
    return kExitUsage;
  }
  auto node = test_support::rails(*hcas, *slots);
  test_support::add_vfs(node, *vfs);
  test_support::lay_out(node, std::string(arguments[3]), {.full = true});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  const bool is_synthetic = !arguments.empty() && arguments[0] == "--synthetic";
  if (is_synthetic && (arguments.size() == 4 || arguments.size() == 5)) return synthetic(arguments);
  const bool full = arguments.size() == 3 && arguments[2] == "--full";
  if (arguments.size() != 2 && !full) return usage();
  const auto inventory = fabric::read_snapshot(std::string(arguments[0]));
  if (!inventory) {
    fmt::print(stderr, "make-tree: {}\n", inventory.error().message);
    return 1;
  }
  test_support::lay_out(*inventory, std::string(arguments[1]), {.full = full});
  return 0;
}
