// The administrator's config.json: refused with a line and a remedy, or complete.
#include "hook/config/config.hpp"
#include "hook/config/node_slice.hpp"
#include "hook/config/read_config.hpp"
#include "require.hpp"

namespace {

// Demands that slices lie in their range, and that slices of two nodes have no common address.
template <typename Range>
void check_slices(const Range& range, std::string_view text) {
  const std::uint64_t count = hook::slice_count(range);
  const std::uint64_t indices[] = {0, 1, count / 2, count - 1};
  for (const std::uint64_t index : indices) {
    const auto slice = hook::slice_of(range, index);
    fuzz::require(slice.has_value(), "each index below the number of slices has a slice", text);
    fuzz::require(range.from <= slice->from && slice->to <= range.to, "a slice lies in its range", text);
    for (const std::uint64_t other : indices) {
      if (other >= count || index >= count || other == index) continue;
      const auto another = hook::slice_of(range, other);
      fuzz::require(another.has_value() && (another->to < slice->from || slice->to < another->from),
                    "two nodes' slices do not overlap", text);
    }
    if (count == 1) break;
  }
  fuzz::require(count == UINT64_MAX || !hook::slice_of(range, count), "an index beyond has no slice", text);
}

}  // namespace

void fuzz::run(std::string_view text, FuzzedDataProvider) {
  const auto parsed = hook::parse_config({{"config.json", std::string(text)}});
  for (const auto& problem : parsed.problems) {
    fuzz::require(!problem.message.empty() && !problem.remedy.empty(), "a problem has a sentence and a remedy", text);
    fuzz::require_one_line(hook::to_string(problem), "a problem");
  }
  if (!parsed.ok()) return;
  for (const auto& pool : parsed.config.pools) {
    fuzz::require(!pool.name.empty() && !pool.modes.empty(), "a pool has a name and a mode", text);
    for (const auto& [mode, limit] : pool.limits)
      fuzz::require(limit > 0, "a limit allows a container", pool.name);
    fuzz::require(!pool.network || parsed.config.networks.contains(*pool.network), "a pool's network exists", text);
  }
  for (const auto& [name, network] : parsed.config.networks) {
    for (const auto& range : network.ranges)
      if (range.per_node) check_slices(range, text);
    for (const auto* range : {&network.vf_macs, &network.vf_guids})
      if (*range && (*range)->per_node) check_slices(**range, text);
  }
  fuzz::require(parsed.config.nodes.mode <= 0777, "a node's mode is permissions only", text);
  const auto twice = hook::parse_config({{"config.json", std::string(text)}, {"again.json", std::string(text)}});
  fuzz::require(!twice.ok() || twice.config == parsed.config, "the same text as a drop-in changes nothing", text);
}
