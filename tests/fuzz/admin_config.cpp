// The administrator's config.json: refused with a line and a remedy, or complete.
#include <cstdint>

#include "hook/config/config.hpp"
#include "require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const auto parsed = hook::parse_config({{"config.json", text}});
  for (const auto& problem : parsed.problems) {
    fuzz::require(!problem.message.empty() && !problem.remedy.empty(), "a problem has a sentence and a remedy", text);
    fuzz::require_one_line(hook::to_string(problem), "a problem");
  }
  if (!parsed.ok()) return 0;
  for (const auto& pool : parsed.config.pools) {
    fuzz::require(!pool.name.empty() && !pool.modes.empty(), "a pool has a name and a mode", text);
    for (const auto& [mode, limit] : pool.limits)
      fuzz::require(limit > 0, "a limit lets somebody in", pool.name);
    fuzz::require(!pool.network || parsed.config.networks.contains(*pool.network), "a pool's network exists", text);
  }
  fuzz::require(parsed.config.nodes.mode <= 0777, "a node's mode is permissions only", text);
  const auto twice = hook::parse_config({{"config.json", text}, {"again.json", text}});
  fuzz::require(!twice.ok() || twice.config == parsed.config, "the same text as a drop-in changes nothing", text);
  return 0;
}
