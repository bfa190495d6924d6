#include "hook/ledger/ledger_grant.hpp"

#include <algorithm>
#include <limits>

#include "hook/base/json/json.hpp"
#include "hook/ledger/ledger_files.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;

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

// The process first: what it wrote is there before it ends.
bool has_ended(const GrantUser& user) {
  if (!user.process || !is_proven_gone(look_at(*user.process))) return false;
  return !user.state || is_proven_gone(look_at(*user.state, user.id, user.bundle));
}

bool is_dead_token(const StoredUser& user, std::string_view binding) {
  return user.user.key != binding && is_token_key(user.user.key) && is_user_gone(user);
}

constexpr int kDepth = 8;  // ours have 5

Json process_json(const ProcessIdentity& process) {
  return Json{{"pid", process.pid}, {"start_time", process.start_time}};
}

Json hcas_json(const std::vector<PlannedHca>& hcas) {
  Json list = Json::array();
  for (const PlannedHca& hca : hcas) {
    Json entry{{"name", hca.name}, {"mode", to_string(hca.mode)}, {"units", hca.units}};
    if (hca.limit) entry["limit"] = *hca.limit;
    list.push_back(std::move(entry));
  }
  return list;
}

Json user_json(const StoredUser& user) {
  Json entry{{"key", user.user.key}, {"id", user.user.id}};
  if (!user.user.bundle.empty()) entry["bundle"] = user.user.bundle;
  if (!user.user.pod.empty()) entry["pod"] = user.user.pod;
  if (!user.user.view.empty()) entry["view"] = user.user.view;
  if (user.user.process) entry["process"] = process_json(*user.user.process);
  if (user.user.cgroup) entry["cgroup"] = cgroup_json(*user.user.cgroup);
  if (user.user.state) entry["state"] = runtime_state_json(*user.user.state);
  entry["settled"] = user.settled;
  if (user.ended) entry["ended"] = true;
  if (user.worker) entry["worker"] = process_json(*user.worker);
  if (!user.hcas.empty()) entry["hcas"] = hcas_json(user.hcas);
  return entry;
}

const char* kind_name(Owner::Kind kind) {
  switch (kind) {
    case Owner::Kind::kNetns:
      return "netns";
    case Owner::Kind::kContainer:
      return "container";
    case Owner::Kind::kToken:
      return "token";
  }
  return "";
}

Result<std::string> name_at(const Json& object, const char* name, std::size_t longest) {
  auto text = TRY(text_at(object, name));
  if (!is_file_name(text, longest)) return wrong_member(name);
  return text;
}

Result<std::optional<ProcessIdentity>> process_at(const Json& object, const char* name) {
  const Json* value = member(object, name);
  if (!value) return std::optional<ProcessIdentity>();
  ProcessIdentity process;
  process.pid = static_cast<pid_t>(TRY(number_at(*value, "pid", std::numeric_limits<pid_t>::max())));
  process.start_time = TRY(number_at(*value, "start_time", UINT64_MAX));
  return std::optional(process);
}

// Absent is empty.
Result<std::vector<PlannedHca>> hcas_at(const Json& object, const char* name) {
  std::vector<PlannedHca> hcas;
  const Json* list = member(object, name);
  if (!list) return hcas;
  if (!list->is_array()) return wrong_member(name);
  for (const Json& entry : *list) {
    PlannedHca hca;
    hca.name = TRY(name_at(entry, "name", kLongestHcaName));
    const auto mode = parse_mode(TRY(text_at(entry, "mode")));
    if (!mode) return wrong_member("mode");
    hca.mode = *mode;
    hca.units = static_cast<unsigned>(TRY(number_at(entry, "units", UINT32_MAX)));
    if (member(entry, "limit")) hca.limit = static_cast<unsigned>(TRY(number_at(entry, "limit", UINT32_MAX)));
    hcas.push_back(std::move(hca));
  }
  return hcas;
}

Result<StoredUser> parse_user(const Json& entry) {
  StoredUser user;
  user.user.key = TRY(name_at(entry, "key", kLongestKey));
  user.user.id = TRY(text_at(entry, "id"));
  if (member(entry, "bundle")) user.user.bundle = TRY(text_at(entry, "bundle"));
  if (member(entry, "pod")) user.user.pod = TRY(text_at(entry, "pod"));
  if (member(entry, "view")) user.user.view = TRY(name_at(entry, "view", kLongestKey));
  user.user.process = TRY(process_at(entry, "process"));
  if (member(entry, "cgroup")) user.user.cgroup = TRY(cgroup_at(entry, "cgroup"));
  if (member(entry, "state")) user.user.state = TRY(runtime_state_at(entry, "state"));
  user.worker = TRY(process_at(entry, "worker"));
  user.hcas = TRY(hcas_at(entry, "hcas"));
  user.settled = TRY(truth_at(entry, "settled"));
  if (member(entry, "ended")) user.ended = TRY(truth_at(entry, "ended"));
  return user;
}

Result<Owner> parse_owner(const Json& entry, std::string_view key) {
  Owner owner;
  const std::string kind = TRY(text_at(entry, "kind"));
  if (kind != "netns" && kind != "container" && kind != "token") return wrong_member("kind");
  owner.kind = kind == "netns"       ? Owner::Kind::kNetns
               : kind == "container" ? Owner::Kind::kContainer
                                     : Owner::Kind::kToken;
  owner.key = TRY(name_at(entry, "key", kLongestKey));
  if (owner.key != key) return wrong_member("key");
  owner.label = TRY(text_at(entry, "label"));
  if (owner.kind != Owner::Kind::kNetns) return owner;
  owner.netns = TRY(netns_at(entry, "netns"));
  return owner;
}

Result<StoredGrant> parse_members(const Json& document, std::string_view key) {
  StoredGrant grant;
  TRY_VOID(number_at(document, "format", 1));
  const Json* owner = member(document, "owner");
  if (!owner) return wrong_member("owner");
  grant.owner = TRY(parse_owner(*owner, key));
  grant.since = static_cast<std::int64_t>(TRY(number_at(document, "since", INT64_MAX)));
  grant.hcas = TRY(hcas_at(document, "hcas"));
  const Json* users = member(document, "users");
  if (!users || !users->is_array()) return wrong_member("users");
  for (const Json& user : *users)
    grant.users.push_back(TRY(parse_user(user)));
  return grant;
}

}  // namespace

const PlannedHca* find_hca(const std::vector<PlannedHca>& hcas, std::string_view name) {
  const auto found = std::find_if(hcas.begin(), hcas.end(), [&](const PlannedHca& hca) { return hca.name == name; });
  return found == hcas.end() ? nullptr : &*found;
}

void merge_hcas(std::vector<PlannedHca>& into, const std::vector<PlannedHca>& more) {
  for (const PlannedHca& hca : more) {
    const auto found = std::find_if(into.begin(), into.end(), [&](const auto& held) { return held.name == hca.name; });
    if (found == into.end()) {
      into.push_back(hca);
      continue;
    }
    if (strength(hca.mode) > strength(found->mode)) found->mode = hca.mode;
    found->units = std::max(found->units, hca.units);
    if (hca.limit) found->limit = hca.limit;
  }
}

std::vector<PlannedHca> held_hcas(const StoredGrant& grant) {
  auto held = grant.hcas;
  for (const StoredUser& user : grant.users)
    merge_hcas(held, user.hcas);
  return held;
}

std::vector<PlannedHca> all_claims(const StoredGrant& grant) {
  auto claims = held_hcas(grant);
  claims.insert(claims.end(), grant.hcas.begin(), grant.hcas.end());
  for (const StoredUser& user : grant.users)
    claims.insert(claims.end(), user.hcas.begin(), user.hcas.end());
  return claims;
}

void add_steps(StoredGrant& grant, const GrantUser& user, const std::vector<PlannedHca>& hcas,
               const ProcessIdentity& worker) {
  const auto same = [&](const StoredUser& other) { return other.user.key == user.key; };
  auto found = std::find_if(grant.users.begin(), grant.users.end(), same);
  if (found == grant.users.end()) found = grant.users.insert(found, StoredUser{});
  // Who joins again without a view has its mounts from before.
  std::string view = user.view.empty() ? found->user.view : user.view;
  found->user = user;
  found->user.view = std::move(view);
  found->ended = false;
  found->worker = worker;
  merge_hcas(found->hcas, hcas);
}

void settle_users(StoredGrant& grant, const ProcessIdentity& worker) {
  for (StoredUser& user : grant.users) {
    if (user.worker != worker) continue;
    merge_hcas(grant.hcas, user.hcas);
    user.hcas.clear();
    user.worker.reset();
    user.settled = true;
  }
}

bool drop_dead_steps(StoredGrant& grant) {
  bool any = false;
  for (StoredUser& user : grant.users) {
    if (!user.worker || !is_proven_gone(look_at(*user.worker))) continue;
    user.worker.reset();
    user.hcas.clear();
    any = true;
  }
  if (!any) return false;
  std::erase_if(grant.users, [](const StoredUser& user) { return !user.worker && !user.settled; });
  return true;
}

bool is_user_gone(const StoredUser& user) {
  if (user.worker && !is_proven_gone(look_at(*user.worker))) return false;
  if (!user.ended && !has_ended(user.user)) return false;
  return !user.user.cgroup || is_proven_gone(look_at(*user.user.cgroup));
}

bool drop_dead_tokens(StoredGrant& grant, std::string_view binding) {
  if (grant.owner.kind != Owner::Kind::kNetns) return false;
  return std::erase_if(grant.users, [&](const StoredUser& user) { return is_dead_token(user, binding); }) > 0;
}

bool is_vanished(const StoredGrant& grant, std::string_view binding) {
  if (grant.owner.kind != Owner::Kind::kNetns) {
    return std::all_of(grant.users.begin(), grant.users.end(), is_user_gone);
  }
  // No container has come, and none will: a namespace may outlive that for ever. Without any user it is another matter:
  // its containers are between two starts.
  const auto dead_token = [&](const StoredUser& user) { return is_dead_token(user, binding); };
  if (!grant.users.empty() && std::all_of(grant.users.begin(), grant.users.end(), dead_token)) return true;
  if (grant.owner.netns && !is_proven_gone(look_at(*grant.owner.netns))) return false;
  // The path is gone; the namespace may live on in the processes of its containers. A user without a process proves
  // nothing here.
  return std::none_of(grant.users.begin(), grant.users.end(),
                      [](const StoredUser& user) { return (user.worker || user.user.process) && !is_user_gone(user); });
}

Grant to_grant(const StoredGrant& grant) {
  Grant result{.owner = grant.owner, .hcas = held_hcas(grant), .users = {}, .since = grant.since};
  for (const StoredUser& user : grant.users) {
    result.users.push_back(user.user);
    result.pending = result.pending || user.worker.has_value();
  }
  result.vanished = is_vanished(grant);
  return result;
}

std::string grant_text(const StoredGrant& grant) {
  Json owner{{"kind", kind_name(grant.owner.kind)}, {"key", grant.owner.key}, {"label", grant.owner.label}};
  if (grant.owner.netns) owner["netns"] = netns_json(*grant.owner.netns);
  Json users = Json::array();
  for (const StoredUser& user : grant.users)
    users.push_back(user_json(user));
  const Json document{{"format", 1},
                      {"owner", std::move(owner)},
                      {"since", static_cast<std::uint64_t>(grant.since)},
                      {"hcas", hcas_json(grant.hcas)},
                      {"users", std::move(users)}};
  // replace: an id that is not UTF-8 must not throw.
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<StoredGrant> parse_grant(std::string_view text, const std::string& path, std::string_view key) {
  const auto complete = [](Error error) {
    error.hint = "if nothing uses that grant any more, remove the file and run `rdma-hook recover`";
    return error;
  };
  auto document = parse_json(text, fmt::format("grant `{}`", path), {.bytes = kLargestLedgerFile, .depth = kDepth});
  if (!document) return complete(std::move(document).error());
  auto grant = parse_members(*document, key);
  if (!grant) return complete(fabric::wrap(std::move(grant).error(), fmt::format("cannot read grant `{}`", path)));
  return grant;
}

}  // namespace hook
