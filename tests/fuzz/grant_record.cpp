// Any text as a grant of the ledger, unchanged and with a correct checksum.
#include <cstdint>
#include <string>

#include "hook/ledger/files.hpp"
#include "hook/ledger/record.hpp"
#include "require.hpp"

namespace {

using fuzz::require;

void check(std::string_view text) {
  const auto grant = hook::parse_grant(text, "DIR/grants/k.json", "k");
  if (!grant) {
    fuzz::require_one_line(grant.error().message, "the refusal of a grant");
    require(!grant.error().hint.empty(), "a refusal has its remedy");
    return;
  }
  require(grant->owner.key == "k", "a grant has the key of its file name");
  for (const auto& user : grant->users)
    require(!user.user.key.empty() && user.user.key.find('/') == std::string::npos, "a key has no slash");
  const auto held = hook::held_hcas(*grant);
  for (const auto& claim : hook::all_claims(*grant))
    require(hook::find_hca(held, hook::booked_as(claim)) != nullptr, "each claim is held", claim.name);
  const std::string written = hook::grant_text(*grant);
  const auto again = hook::parse_grant(written, "k.json", "k");
  require(again && hook::grant_text(*again) == written, "a grant reads back", written);
  require(again->users == grant->users && hook::held_hcas(*again) == held, "a grant reads back with its users and HCAs",
          written);
}

}  // namespace

void fuzz::run(std::string_view text, FuzzedDataProvider) {
  check(text);
  const std::string_view line = text.substr(0, text.find('\n'));
  check(fmt::format("{}\n{:016x}\n", line, hook::checksum(line)));
}
