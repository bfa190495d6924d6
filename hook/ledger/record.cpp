#include "hook/ledger/record.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "fabric/text.hpp"
#include "hook/base/failure.hpp"
#include "hook/base/json/json.hpp"
#include "hook/ledger/files.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::make_error;
using fabric::Result;

constexpr int kDepth = 8;  // ours have 5
constexpr std::uint64_t kFormat = 2;

Json process_json(const ProcessIdentity& process) {
  return Json{{"pid", process.pid}, {"start_time", process.start_time}};
}

Json worker_json(const StepWorker& worker) {
  Json json = process_json(worker.process);
  json["change"] = worker.change;
  return json;
}

Json open_json(const OpenState& open) {
  Json json{{"contexts", open.contexts}};
  put_optional(json, "index", open.index);
  if (open.node) json["node"] = {{"major", open.node->major}, {"minor", open.node->minor}};
  return json;
}

Json hcas_json(const std::vector<PlannedHca>& hcas) {
  Json list = Json::array();
  for (const PlannedHca& hca : hcas) {
    Json entry{{"name", hca.name}, {"mode", to_string(hca.mode)}, {"units", hca.units}};
    if (hca.limit) entry["limit"] = *hca.limit;
    if (hca.held_only) entry["held_only"] = true;
    if (!hca.device.empty()) entry["device"] = hca.device;
    if (hca.open) entry["open"] = open_json(*hca.open);
    list.push_back(std::move(entry));
  }
  return list;
}

Json user_json(const StoredUser& user) {
  Json entry{{"key", user.user.key}, {"id", user.user.id}};
  if (!user.user.bundle.empty()) entry["bundle"] = user.user.bundle;
  if (!user.user.pod.empty()) entry["pod"] = user.user.pod;
  if (!user.user.view.empty()) entry["view"] = user.user.view;
  if (!user.user.name.empty()) entry["name"] = user.user.name;
  if (user.user.process) entry["process"] = process_json(*user.user.process);
  if (user.user.cgroup) entry["cgroup"] = cgroup_json(*user.user.cgroup);
  if (user.user.state) entry["state"] = runtime_state_json(*user.user.state);
  entry["settled"] = user.settled;
  if (user.ended) entry["ended"] = true;
  if (user.worker) entry["worker"] = worker_json(*user.worker);
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

Result<ProcessIdentity> parse_process(const Json& entry) {
  return ProcessIdentity{.pid = static_cast<pid_t>(TRY(number_at(entry, "pid", std::numeric_limits<pid_t>::max()))),
                         .start_time = TRY(number_at(entry, "start_time", UINT64_MAX))};
}

Result<StepWorker> parse_step_worker(const Json& entry) {
  TRY_VOID(check_members(entry, {"pid", "start_time", "change"}));
  return StepWorker{TRY(parse_process(entry)), TRY(number_at(entry, "change", UINT64_MAX))};
}

Result<std::uint32_t> number32(const Json& object, const char* name) {
  return static_cast<std::uint32_t>(TRY(number_at(object, name, UINT32_MAX)));
}

Result<OpenState> parse_open(const Json& entry) {
  TRY_VOID(check_members(entry, {"index", "contexts", "node"}));
  OpenState open;
  if (member(entry, "index")) open.index = TRY(number32(entry, "index"));
  const Json* contexts = member(entry, "contexts");
  if (!contexts || !contexts->is_array()) return wrong_member("contexts");
  for (const Json& context : *contexts) {
    const auto* number = context.get_ptr<const Json::number_unsigned_t*>();
    if (!number || *number > UINT32_MAX) return wrong_member("contexts");
    open.contexts.push_back(static_cast<std::uint32_t>(*number));
  }
  if (const Json* node = member(entry, "node")) {
    TRY_VOID(check_members(*node, {"major", "minor"}));
    open.node = DeviceNumber{TRY(number32(*node, "major")), TRY(number32(*node, "minor"))};
  }
  return open;
}

Result<std::vector<PlannedHca>> hcas_at(const Json& object, const char* name) {
  std::vector<PlannedHca> hcas;
  const Json* list = member(object, name);
  if (!list || !list->is_array()) return wrong_member(name);
  for (const Json& entry : *list) {
    TRY_VOID(check_members(entry, {"name", "mode", "units", "limit", "held_only", "device", "open"}));
    PlannedHca hca;
    hca.name = TRY(name_at(entry, "name", kLongestHcaName));
    const auto mode = parse_mode(TRY(text_at(entry, "mode")));
    if (!mode) return wrong_member("mode");
    hca.mode = *mode;
    hca.units = static_cast<unsigned>(TRY(number_at(entry, "units", UINT32_MAX)));
    TRY_VOID(optional_number(entry, "limit", hca.limit));
    if (member(entry, "held_only")) hca.held_only = TRY(truth_at(entry, "held_only"));
    if (member(entry, "device")) hca.device = TRY(name_at(entry, "device", kLongestHcaName));
    if (const Json* open = member(entry, "open")) hca.open = TRY(parse_open(*open));
    hcas.push_back(std::move(hca));
  }
  return hcas;
}

Result<StoredUser> parse_user(const Json& entry) {
  TRY_VOID(check_members(entry, {"key", "id", "bundle", "pod", "view", "name", "process", "cgroup", "state", "settled",
                                 "ended", "worker", "hcas"}));
  StoredUser user;
  user.user.key = TRY(name_at(entry, "key", kLongestKey));
  user.user.id = TRY(text_at(entry, "id"));
  if (member(entry, "bundle")) user.user.bundle = TRY(text_at(entry, "bundle"));
  if (member(entry, "pod")) user.user.pod = TRY(text_at(entry, "pod"));
  if (member(entry, "view")) user.user.view = TRY(name_at(entry, "view", kLongestKey));
  if (member(entry, "name")) user.user.name = TRY(text_at(entry, "name"));
  if (const Json* process = member(entry, "process")) {
    TRY_VOID(check_members(*process, {"pid", "start_time"}));
    user.user.process = TRY(parse_process(*process));
  }
  if (member(entry, "cgroup")) user.user.cgroup = TRY(cgroup_at(entry, "cgroup"));
  if (member(entry, "state")) user.user.state = TRY(runtime_state_at(entry, "state"));
  if (const Json* worker = member(entry, "worker")) user.worker = TRY(parse_step_worker(*worker));
  if (member(entry, "hcas")) user.hcas = TRY(hcas_at(entry, "hcas"));
  user.settled = TRY(truth_at(entry, "settled"));
  if (member(entry, "ended")) user.ended = TRY(truth_at(entry, "ended"));
  return user;
}

Result<Owner> parse_owner(const Json& entry, std::string_view key) {
  TRY_VOID(check_members(entry, {"kind", "key", "label", "netns"}));
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
  TRY_VOID(check_members(document, {"format", "owner", "since", "hcas", "users"}));
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

std::string checksum_line(std::string_view text) {
  return fmt::format("{:016x}\n", checksum(text));
}

}  // namespace

std::string grant_text(const StoredGrant& grant) {
  Json owner{{"kind", kind_name(grant.owner.kind)}, {"key", grant.owner.key}, {"label", grant.owner.label}};
  if (grant.owner.netns) owner["netns"] = netns_json(*grant.owner.netns);
  Json users = Json::array();
  for (const StoredUser& user : grant.users)
    users.push_back(user_json(user));
  const Json document{{"format", kFormat},
                      {"owner", std::move(owner)},
                      {"since", static_cast<std::uint64_t>(grant.since)},
                      {"hcas", hcas_json(grant.hcas)},
                      {"users", std::move(users)}};
  // replace: an id that is not UTF-8 must not throw.
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text + "\n" + checksum_line(text);
}

std::string unread_grant(const std::string& path) {
  return fmt::format("cannot read grant `{}`", path);
}

Result<StoredGrant> parse_grant(std::string_view text, const std::string& path, std::string_view key) {
  const std::string what = unread_grant(path);
  const auto complete = [](Error error, int code = EBADMSG) {
    error.code = code;
    error.hint = "if nothing uses that grant any more, remove the file and run `rdma-hook recover`";
    return error;
  };
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::string_view rest = text.substr(std::min(line.size() + 1, text.size()));
  JsonFault fault;
  const auto document = try_parse_json(line, {.bytes = kLargestLedgerFile, .depth = kDepth}, fault);
  // Before the checksum, which another format may not have.
  const auto format = document ? number_at(*document, "format", UINT64_MAX) : Result<std::uint64_t>(kFormat);
  if (format && *format != kFormat)
    return complete(make_error("{}: its format is {}, this program's is {}", what, *format, kFormat), EPROTONOSUPPORT);
  if (rest != checksum_line(line)) return complete(make_error("{}: its checksum is wrong", what));
  if (!document) return complete(make_error("{}: {}", what, fault.message));
  if (!format) return complete(fabric::wrap(format.error(), what));
  auto grant = parse_members(*document, key);
  if (!grant) return complete(fabric::wrap(std::move(grant).error(), what));
  return grant;
}

}  // namespace hook
