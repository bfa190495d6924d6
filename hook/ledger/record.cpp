#include "hook/ledger/record.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/json/record.hpp"
#include "hook/ledger/files.hpp"

namespace hook {
namespace {

constexpr int kDepth = 8;  // levels of nesting; a record has 5
constexpr std::uint64_t kFormat = 2;

constexpr Word<Owner::Kind> kOwnerKinds[] = {{"netns", Owner::Kind::kNetns},
                                             {"container", Owner::Kind::kContainer},
                                             {"token", Owner::Kind::kToken},
                                             {"claim", Owner::Kind::kClaim}};

std::string checksum_line(std::string_view text) {
  return fmt::format("{:016x}\n", checksum(text));
}

}  // namespace

void describe(auto& members, StepWorker& worker) {
  describe(members, worker.process);
  members("change", worker.change);
}

void describe(auto& members, DeviceNumber& node) {
  members("major", node.major);
  members("minor", node.minor);
}

void describe(auto& members, OpenState& open) {
  members.optional("index", open.index);
  // A record of an earlier version lists each id. An earlier version that reads "ranges" refuses the record, so that it
  // does not release the HCA while one of these contexts is open.
  std::vector<std::uint32_t> listed;
  members("contexts", listed);
  members.optional_text(
      "ranges", open.contexts, [](const ContextIds& ids) { return ids.text(); }, ContextIds::parse);
  for (const std::uint32_t id : listed)
    members.require(open.contexts.add(id), "contexts");
  members.optional("node", open.node);
}

void describe(auto& members, PlannedHca& hca) {
  members.name("name", hca.name, kLongestHcaName);
  members.word("mode", hca.mode, kModeWords);
  members("units", hca.units);
  members.optional("limit", hca.limit);
  members.optional("held_only", hca.held_only);
  members.optional_name("device", hca.device, kLongestHcaName);
  members.optional("open", hca.open);
  members.optional_name("claim", hca.claim, kLongestKey);
}

void describe(auto& members, ClaimHca& hca) {
  members.name("name", hca.name, kLongestHcaName);
  members.name("device", hca.device, kLongestHcaName);
  members.name("label", hca.label, kLongestHcaName);
  members.optional("is_admin", hca.is_admin);
  members.optional("network", hca.network);
  members.optional("objects", hca.limits.objects);
  members.optional("handles", hca.limits.handles);
}

void describe(auto& members, ClaimFacts& claim) {
  members("space", claim.space);
  members("name", claim.name);
  members("token", claim.token);
  members("pods", claim.pods);
  members("hcas", claim.hcas);
}

void describe(auto& members, StoredUser& stored) {
  GrantUser& user = stored.user;
  members.name("key", user.key, kLongestKey);
  members("id", user.id);
  members.optional("bundle", user.bundle);
  members.optional("pod", user.pod);
  members.optional_name("view", user.view, kLongestKey);
  members.optional("more_views", user.more_views);
  members.require(
      std::ranges::all_of(user.more_views, [](const auto& view) { return is_file_name(view, kLongestKey); }),
      "more_views");
  members.optional("name", user.name);
  members.optional("process", user.process);
  members.optional("cgroup", user.cgroup);
  members.optional("state", user.state);
  members("settled", stored.settled);
  members.optional("ended", stored.ended);
  members.optional("worker", stored.worker);
  members.optional("hcas", stored.hcas);
}

void describe(auto& members, Owner& owner) {
  members.word("kind", owner.kind, kOwnerKinds);
  members.name("key", owner.key, kLongestKey);
  members("label", owner.label);
  members.optional("netns", owner.netns);
  members.require(owner.netns.has_value() == (owner.kind == Owner::Kind::kNetns), "netns");
  members.optional("claim", owner.claim);
  members.require(owner.claim.has_value() == (owner.kind == Owner::Kind::kClaim), "claim");
}

void describe(auto& members, StoredGrant& grant) {
  std::uint64_t format = kFormat;
  members("format", format);
  members.require(format == kFormat, "format");
  members("owner", grant.owner);
  members("since", grant.since);
  members("hcas", grant.hcas);
  members("users", grant.users);
}

std::string grant_text(const StoredGrant& grant) {
  const std::string text = base::to_text(to_record(grant));
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
  const bool is_whole = rest == checksum_line(line);
  // A document costs many times more than a scan, so only a text that the scan does not read is parsed. The result is
  // the same. Each value has at least one byte, so that the line has no more values than a document may have.
  if (is_whole && line.size() <= JsonLimits().values)
    if (auto grant = scan_record<StoredGrant>(line); grant && grant->owner.key == key) return *std::move(grant);
  JsonFault fault;
  const auto document = try_parse_json(line, {.bytes = kLargestLedgerFile, .depth = kDepth}, fault);
  // The format is checked before the checksum: a record of another format may have no checksum.
  const auto format = document ? number_at(*document, "format", UINT64_MAX) : Result<std::uint64_t>(kFormat);
  if (format && *format != kFormat)
    return complete(make_error("{}: its format is {}, this program's is {}", what, *format, kFormat), EPROTONOSUPPORT);
  if (!is_whole) return complete(make_error("{}: its checksum is wrong", what));
  if (!document) return complete(make_error("{}: {}", what, fault.message));
  if (!format) return complete(base::wrap(format.error(), what));
  auto grant = from_record<StoredGrant>(*document);
  if (grant && grant->owner.key != key) grant = wrong_member("key");
  if (!grant) return complete(base::wrap(std::move(grant).error(), what));
  return grant;
}

}  // namespace hook
