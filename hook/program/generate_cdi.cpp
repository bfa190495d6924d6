#include <cstdio>
#include <filesystem>

#include "base/json/json.hpp"
#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "hook/apply/cdi_file.hpp"
#include "hook/apply/cdi_spec.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/node.hpp"
#include "hook/program/commands.hpp"

namespace hook {
namespace {

constexpr mode_t kFileMode = 0644;  // engines of other users read the file

}  // namespace

Result<void> generate_cdi(const Options& options, const Log& log) {
  const Config config = TRY(read_config(options.node.config));
  const auto inventory = TRY(read_whole_node(config, options.node));
  CdiOptions wanted;
  wanted.kind = options.kind.value_or(kCdiKind);
  wanted.hook = TRY(hook_path(options));
  // Without --engine the file names no engine: the hook detects the engine at each start, so one file can serve several
  // engines.
  if (options.node.engine_is_named) wanted.engine = options.node.engine;
  const auto [spec, warnings] = TRY(cdi_spec(inventory, config, wanted));
  log.warnings(warnings);
  if (options.out) {
    const std::string directory = std::filesystem::path(*options.out).parent_path();
    sweep_cdi(directory.empty() ? "." : directory, log);
    return write_cdi(*options.out, spec, kFileMode);
  }
  const std::string text = cdi_text(spec);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

}  // namespace hook
