// The decision on made-up machines: nothing crashes, the invariants hold, and the snapshot format holds all of it.
#include "arbitrary.hpp"
#include "fabric/snapshot.hpp"
#include "invariants.hpp"
#include "require.hpp"

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  const init::Policy policy = fuzz::arbitrary_policy(data);
  const init::Settings settings = fuzz::arbitrary_settings(data);
  const fabric::Inventory inventory = fuzz::arbitrary_inventory(data);
  fuzz::decide_checked(inventory, settings, policy);
  // The snapshot replaces names that are not UTF-8, so that they read back differently.
  const std::string text = fabric::write_snapshot(inventory);
  const auto again = fabric::parse_snapshot(text);
  if (again) fuzz::require(fabric::write_snapshot(*again) == text, "a snapshot that was read is written the same");
  if (again && text.find("\\ufffd") == std::string::npos)
    fuzz::require(*again == inventory, "a written snapshot is read back equal", text);
}
