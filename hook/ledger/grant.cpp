#include "hook/ledger/grant.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>

#include "base/file.hpp"
#include "base/file_name.hpp"
#include "base/text.hpp"
#include "base/text_digest.hpp"

namespace hook {
namespace {

constexpr std::size_t kShownId = 64;
constexpr std::string_view kTokenPrefix = "token-";  // a container's key begins with "container-"
constexpr std::string_view kClaimPrefix = "claim-";

// Returns the rank of a mode: a mode with a higher rank allows less use by other owners.
int strength(Mode mode) {
  switch (mode) {
    case Mode::kHca:
      return 0;
    case Mode::kShared:
      return 1;
    case Mode::kSharedMulti:
      return 2;
    case Mode::kExclusive:
      return 3;
  }
  return 3;
}

}  // namespace

Owner netns_owner(const NetnsIdentity& netns) {
  return Owner{.kind = Owner::Kind::kNetns,
               .key = fmt::format("netns-{}-{}", netns.dev, netns.ino),
               .label = "pod namespace " + base::printable(netns.path),
               .netns = netns};
}

Owner container_owner(std::string_view id, std::string_view place) {
  std::string shown(id.substr(0, kShownId));
  for (char& c : shown)
    c = c == '.' || is_file_name(std::string_view(&c, 1), 1) ? c : '_';
  // A NUL separates the texts, so that different pairs give different digests: neither an id nor a path can have a NUL.
  const std::string names = std::string(id) + '\0' + std::string(place);
  return Owner{.kind = Owner::Kind::kContainer,
               .key = fmt::format("container-{}-{}", shown, text_digest(names)),
               .label = "container " + base::printable(id),
               .netns = std::nullopt};
}

std::string root_name(const RuntimeState& state) {
  return fmt::format("{}:{}", state.root_dev, state.root_ino);
}

bool is_token_key(std::string_view key) {
  return key.starts_with(kTokenPrefix);
}

Owner token_owner(std::string_view token) {
  return Owner{.kind = Owner::Kind::kToken,
               .key = fmt::format("{}{}", kTokenPrefix, token),
               .label = "a container that is being created",
               .netns = std::nullopt};
}

Owner claim_owner(std::string_view uid, ClaimFacts facts) {
  Owner owner{.kind = Owner::Kind::kClaim,
              .key = fmt::format("{}{}", kClaimPrefix, uid),
              .label = "claim " + base::printable(fmt::format("{}/{}", facts.space, facts.name)),
              .netns = std::nullopt};
  owner.claim = std::move(facts);
  return owner;
}

std::string claim_uid(std::string_view key) {
  return std::string(key.substr(std::min(kClaimPrefix.size(), key.size())));
}

std::string claim_variable(std::string_view uid) {
  std::string name(uid);
  for (char& c : name)
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return "RDMA_CLAIM_" + name;
}

std::vector<std::string> views_of(const GrantUser& user) {
  std::vector<std::string> views;
  if (!user.view.empty()) views.push_back(user.view);
  views.insert(views.end(), user.more_views.begin(), user.more_views.end());
  return views;
}

void set_views(GrantUser& user, const std::vector<std::string>& views) {
  user.view.clear();
  user.more_views.clear();
  for (const std::string& view : views) {
    if (view.empty() || view == user.view || std::ranges::find(user.more_views, view) != user.more_views.end())
      continue;
    if (user.view.empty()) {
      user.view = view;
    } else {
      user.more_views.push_back(view);
    }
  }
}

bool has_id(const GrantUser& user, std::string_view id) {
  return !id.empty() && (user.id == id || user.pod == id);
}

std::string shown_key(const std::string& key) {
  return is_token_key(key) ? token_owner(text_digest(key)).key : key;
}

Result<std::string> new_token() {
  const auto bytes = base::random_bits<std::array<std::uint8_t, 16>>();
  if (!bytes) return sys_error(errno, "cannot read random bytes for the token of a grant");
  std::string token;
  for (const std::uint8_t byte : *bytes)
    token += fmt::format("{:02x}", byte);
  return token;
}

const PlannedHca* find_hca(const std::vector<PlannedHca>& hcas, std::string_view booked) {
  const auto found = std::ranges::find_if(hcas, [&](const PlannedHca& hca) { return booked_as(hca) == booked; });
  return found == hcas.end() ? nullptr : &*found;
}

void merge_hcas(std::vector<PlannedHca>& into, const std::vector<PlannedHca>& more) {
  for (const PlannedHca& hca : more) {
    const auto found = std::ranges::find_if(into, [&](const auto& held) { return booked_as(held) == booked_as(hca); });
    if (found == into.end()) {
      into.push_back(hca);
      continue;
    }
    if (strength(hca.mode) > strength(found->mode)) found->mode = hca.mode;
    found->units = std::max(found->units, hca.units);
    if (hca.limit) found->limit = hca.limit;
    if (!found->open) found->open = hca.open;
    found->held_only = found->held_only && hca.held_only;
  }
}

std::vector<PlannedHca> held_hcas(const StoredGrant& grant) {
  auto held = grant.hcas;
  for (const StoredUser& user : grant.users)
    merge_hcas(held, user.hcas);
  return held;
}

std::optional<PlannedHca> held_hca(const std::optional<StoredGrant>& grant, std::string_view booked) {
  const auto held = grant ? held_hcas(*grant) : std::vector<PlannedHca>();
  const PlannedHca* const found = find_hca(held, booked);
  return found && found->claim.empty() ? std::optional(*found) : std::nullopt;
}

bool uses_claim(const StoredGrant& grant, std::string_view claim) {
  const auto uses = [&](const std::vector<PlannedHca>& hcas) {
    return std::ranges::find(hcas, claim, &PlannedHca::claim) != hcas.end();
  };
  return uses(grant.hcas) || std::ranges::any_of(grant.users, [&](const StoredUser& user) { return uses(user.hcas); });
}

std::vector<PlannedHca> all_claims(const StoredGrant& grant) {
  auto claims = held_hcas(grant);
  claims.insert(claims.end(), grant.hcas.begin(), grant.hcas.end());
  for (const StoredUser& user : grant.users)
    claims.insert(claims.end(), user.hcas.begin(), user.hcas.end());
  return claims;
}

void settle_user(StoredGrant& grant, StoredUser& user) {
  merge_hcas(grant.hcas, user.hcas);
  user.hcas.clear();
  user.worker.reset();
  user.worker_absent = false;
  user.settled = true;
}

Grant recorded_grant(const StoredGrant& grant) {
  Grant result{
      .owner = grant.owner, .hcas = held_hcas(grant), .users = {}, .since = grant.since, .changed = grant.changed};
  for (const StoredUser& user : grant.users) {
    result.users.push_back(user.user);
    result.pending = result.pending || user.worker.has_value();
  }
  return result;
}

}  // namespace hook
