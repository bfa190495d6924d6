// Any text as a snapshot. A snapshot that the reader accepts must survive a round trip and a decision.

#include "fabric/snapshot.hpp"
#include "invariants.hpp"
#include "require.hpp"

namespace {

init::Settings settings_of(const fabric::Inventory& inventory) {
  init::Settings settings;
  if (inventory.env) {
    for (const auto& [name, value] : *inventory.env)
      settings[name] = {value, "environment"};
  }
  if (inventory.conf) {
    for (const auto& [path, text] : *inventory.conf)
      init::add_conf(text, path, settings);
  }
  return settings;
}

}  // namespace

void fuzz::run(std::string_view input, FuzzedDataProvider) {
  const auto inventory = fabric::parse_snapshot(input);
  if (!inventory) return fuzz::require_refusal(inventory.error(), "the refusal of a snapshot");
  const std::string text = fabric::write_snapshot(*inventory);
  const auto again = fabric::parse_snapshot(text);
  fuzz::require(again.has_value(), "a written snapshot can be read", text);
  fuzz::require(*again == *inventory, "a written snapshot is read back equal", text);

  const init::Settings settings = settings_of(*inventory);
  init::Policy policy;
  fuzz::decide_checked(*inventory, settings, policy);
  policy.strict = policy.override_wrong = true;
  policy.nccl_version = init::nccl::Version{2, 21, 5};
  const auto names = init::export_names();
  policy.exports.assign(names.begin(), names.end());
  fuzz::decide_checked(*inventory, settings, policy);
}
