#include "hook/ledger/refusals.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <utility>

#include "base/columns.hpp"
#include "base/json/record.hpp"
#include "base/process/root_lock.hpp"
#include "base/text.hpp"
#include "hook/ledger/files.hpp"

namespace hook {
namespace {

constexpr const char* kRefusalsFile = "refusals";
constexpr const char* kNewRefusals = "refusals.new";  // only the process with the lock writes it
constexpr const char* kRefusalsLock = "refusals.lock";
constexpr std::chrono::milliseconds kRefusalsPatience{50};
constexpr std::uint64_t kRefusalsFormat = 1;
// The longest texts, in columns. A Kubernetes name has at most 253 characters.
constexpr std::size_t kLongestRefusedName = 253;
constexpr std::size_t kLongestRefusal = 600;

}  // namespace

void describe(auto& members, Refusal& refusal) {
  members("time", refusal.time);
  members("stage", refusal.stage);
  members("container", refusal.container.id);
  members.optional("namespace", refusal.container.pod_namespace);
  members.optional("pod", refusal.container.pod);
  members.optional("name", refusal.container.name);
  members("reason", refusal.reason);
  members("message", refusal.message);
  members.optional("remedy", refusal.remedy);
}

namespace {

struct RefusalsFile {
  std::uint64_t format = kRefusalsFormat;
  std::vector<Refusal> refusals;
};

void describe(auto& members, RefusalsFile& file) {
  members("format", file.format);
  members.require(file.format == kRefusalsFormat, "format");
  members("refusals", file.refusals);
  members.require(file.refusals.size() <= kMostRefusals, "refusals");
}

std::string refusals_file_text(const RefusalsFile& file) {
  return to_record(file).dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

void make_safe(std::string& text, std::size_t longest) {
  text = shortened(base::one_line(text), longest);
}

void make_safe(Refusal& refusal) {
  RefusedContainer& container = refusal.container;
  for (std::string* name : {&container.id, &container.pod_namespace, &container.pod, &container.name})
    make_safe(*name, kLongestRefusedName);
  for (std::string* text : {&refusal.message, &refusal.remedy})
    make_safe(*text, kLongestRefusal);
}

// Returns whether the new entry replaces the old one.
bool is_same_refusal(const Refusal& a, const Refusal& b) {
  const RefusedContainer &one = a.container, &other = b.container;
  if (one.pod.empty() != other.pod.empty()) return false;
  if (one.pod.empty()) return one.id == other.id || (a.reason == b.reason && a.message == b.message);
  return one.pod_namespace == other.pod_namespace && one.pod == other.pod && one.name == other.name;
}

// Returns the group that loses an entry if it has the most. A reason has a blank in front, which no namespace has.
std::string group_of(const Refusal& entry) {
  return entry.container.pod.empty() ? " " + entry.reason : entry.container.pod_namespace;
}

// Removes the oldest entry of the group with the most entries. If several groups have the most, removes their oldest
// entry.
void drop_one(std::vector<Refusal>& entries) {
  std::map<std::string, std::size_t> counts;
  std::size_t most = 0;
  for (const Refusal& entry : entries)
    most = std::max(most, ++counts[group_of(entry)]);
  const auto victim =
      std::ranges::find_if(entries, [&](const Refusal& entry) { return counts[group_of(entry)] == most; });
  if (victim != entries.end()) entries.erase(victim);
}

// Reads the entries, the oldest first. Errors: those of read_refusals().
Result<std::vector<Refusal>> read_refusals_file(const LedgerDirectory& directory) {
  const auto text = TRY(read_ledger_file(directory, kRefusalsFile));
  if (!text) return std::vector<Refusal>();
  const std::string path = directory.path + "/" + kRefusalsFile;
  const Error damaged{fmt::format("`{}` is damaged", path), EBADMSG,
                      "remove it, or ignore it: the next refusal of a container replaces it"};
  if (text->size() > kLargestRefusals) return damaged;
  const auto json = parse_json(*text, path);
  auto file = json ? from_record<RefusalsFile>(*json) : Result<RefusalsFile>(damaged);
  if (!file) return damaged;
  return std::move(file->refusals);
}

}  // namespace

std::vector<Refusal> with_refusal(std::vector<Refusal> entries, Refusal refusal) {
  make_safe(refusal);
  std::erase_if(entries, [&](const Refusal& entry) { return is_same_refusal(entry, refusal); });
  entries.push_back(std::move(refusal));
  while (entries.size() > kMostRefusals || refusals_file_text({kRefusalsFormat, entries}).size() > kLargestRefusals)
    drop_one(entries);
  return entries;
}

void note_refusal(const std::string& ledger_directory, Refusal refusal) {
  const auto directory = open_directory(AT_FDCWD, ledger_directory, ledger_directory, true);
  if (!directory) return;
  const auto lock = LockFile::take(ledger_directory + "/" + kRefusalsLock, kRefusalsPatience);
  if (!lock) return;
  auto entries = read_refusals_file(*directory);
  const RefusalsFile file{kRefusalsFormat,
                          with_refusal(entries ? *std::move(entries) : std::vector<Refusal>(), std::move(refusal))};
  (void)replace_ledger_file(*directory, kNewRefusals, *directory, kRefusalsFile, refusals_file_text(file));
}

Result<std::vector<Refusal>> read_refusals(const std::string& ledger_directory) {
  const auto directory = open_directory(AT_FDCWD, ledger_directory, ledger_directory, false);
  if (!directory && directory.error().code == ENOENT) return std::vector<Refusal>();
  if (!directory) return directory.error();
  auto entries = TRY(read_refusals_file(*directory));
  std::ranges::reverse(entries);
  return entries;
}

}  // namespace hook
