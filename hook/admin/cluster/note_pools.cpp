#include "hook/admin/cluster/note_pools.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/json/json.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/admin/install/node_label.hpp"
#include "hook/grant/pool_counts.hpp"

namespace hook {
namespace {

Result<void> note_seen(const NodeSettings& node, const Config& config, const std::vector<PoolCount>& counts) {
  const std::string file = seen_pools_file(node);
  if (file.empty()) return {};
  const auto before = TRY(read_seen_pools(file));
  std::set<std::string> now;
  for (const Pool& pool : config.pools)
    if (pool.expect && before.contains(pool.name)) now.insert(pool.name);
  for (const PoolCount& count : counts)
    if (!count.is_lost()) now.insert(count.pool);
  if (now == before) return {};
  return write_node_file("", file, Json(now).dump() + "\n");
}

bool has_ledger(const NodeSettings& node) {
  struct stat status {};
  const std::string ledger = ledger_path(node);
  return ::stat(ledger.c_str(), &status) == 0;
}

}  // namespace

Result<void> note_pools(const NodeSettings& node, const Config& config) {
  const auto counts = TRY(read_pool_counts(node, config));
  TRY_VOID(note_seen(node, config, counts));
  const auto label = [&](std::optional<bool> complete) { return label_complete("", complete, node.root + kFeatures); };
  if (counts.empty()) return label(std::nullopt);
  if (!has_ledger(node)) return {};
  return label(std::ranges::all_of(counts, [](const PoolCount& one) { return one.missing() == 0; }));
}

}  // namespace hook
