#include "hook/admin/metrics/counters.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <optional>

#include "base/file.hpp"
#include "base/process/root_lock.hpp"
#include "base/text.hpp"
#include "hook/ledger/files.hpp"

namespace hook {
namespace {

// One series in the file. key: NAME, then a line NAME=VALUE for each label, then zeros.
struct Record {
  char key[120];
  std::uint64_t value;
};
// The kernel can interrupt a write between two pages, if the process is killed. Records do not cross pages, so each one
// is then completely old or completely new.
static_assert(sizeof(Record) == 128);
constexpr std::size_t kMostRecords = 1 + 512;
// Key of the first record, which identifies the file. Another format needs another key.
constexpr std::string_view kFileKey = "rdma_hook_metrics_1";

constexpr std::chrono::milliseconds kLockPatience{10};
constexpr base::LockPause kLockPause{std::chrono::milliseconds(1), std::chrono::milliseconds(1)};

constexpr std::pair<std::string_view, const char*> kHelp[] = {
    {kGrantsTotal, "Containers that were granted HCAs."},
    {kReleasesTotal, "Released grants, by reason."},
    {kFailuresTotal, "Failed calls of each stage of the hook, by reason."},
    {kDurationTotal, "Total time of each step of a stage, in microseconds."},
    {kDurationCount, "Number of runs of each step of a stage."},
};

bool is_name(std::string_view text, bool metric) {
  const auto may_start = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (metric && c == ':');
  };
  const auto may_follow = [&](char c) { return may_start(c) || (c >= '0' && c <= '9'); };
  return !text.empty() && may_start(text.front()) && std::ranges::all_of(text, may_follow);
}

bool is_printable(char c) {
  return c >= 0x20 && c < 0x7f;
}

std::string_view key_of(const Record& record) {
  return {record.key, ::strnlen(record.key, sizeof record.key)};
}

Record make_record(std::string_view key) {
  Record record{};
  key.copy(record.key, sizeof record.key);
  return record;
}

// Returns the record of a series; nullopt: its key is too long, or its name or the name of a label is invalid.
std::optional<Record> encode(std::string_view name, const Labels& labels) {
  std::string key(name);
  bool good = is_name(name, true);
  for (const auto& [label, value] : labels) {
    good = good && is_name(label, false);
    key += '\n' + label + '=';
    // A line break in a value would look like the start of the next label.
    std::ranges::transform(value, std::back_inserter(key), [](char c) { return is_printable(c) ? c : '_'; });
  }
  if (!good || key.size() > sizeof Record::key) return std::nullopt;
  return make_record(key);
}

std::optional<Sample> decode(const Record& record) {
  const std::string_view key = key_of(record);
  // Zeros fill the key to its end. A record with another byte after the first zero is damaged.
  const auto rest = std::string_view(record.key, sizeof record.key).substr(key.size());
  const auto parts = base::split(key, '\n');
  if (!is_name(parts.front(), true) || rest.find_first_not_of('\0') != std::string_view::npos) return std::nullopt;
  Sample sample{.name = std::string(parts.front()), .type = Sample::Type::kCounter, .value = record.value};
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto equals = parts[i].find('=');
    if (equals == std::string_view::npos || !is_name(parts[i].substr(0, equals), false)) return std::nullopt;
    if (!std::ranges::all_of(parts[i], is_printable)) return std::nullopt;
    sample.labels.emplace(parts[i].substr(0, equals), parts[i].substr(equals + 1));
  }
  for (const auto& [name, help] : kHelp)
    if (name == sample.name) sample.help = help;
  return sample;
}

class FileLock {
 public:
  FileLock(int fd, int operation) : fd_(fd), held_(base::flock_within(fd, operation, kLockPatience, kLockPause) == 0) {}
  ~FileLock() {
    if (held_) ::flock(fd_, LOCK_UN);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool held() const { return held_; }

 private:
  int fd_;
  bool held_;
};

// Reads the records of a file whose first record is kFileKey; an empty list for every other file. Checks only the first
// letter of each series: this is enough to detect a foreign file, and a full check would take more time than all other
// work of add(). read() checks each record fully.
Result<std::vector<Record>> load(int fd, const std::string& path) {
  std::array<Record, kMostRecords> file
      RDMA_INIT_UNSET;  // on the stack, not initialized: only the part that is read costs time
  const ssize_t count = ::pread(fd, file.data(), sizeof file, 0);
  if (count < 0) return sys_error(errno, "cannot read `{}`", path);
  // Ignores a truncated record.
  std::vector<Record> records(file.data(), file.data() + static_cast<std::size_t>(count) / sizeof(Record));
  const auto good = [](const Record& record) { return is_name({record.key, 1}, true); };
  if (records.empty() || key_of(records.front()) != kFileKey || !std::ranges::all_of(records, good)) records.clear();
  return records;
}

// Returns the index of the record that has counted the increment; nullopt: it is dropped.
std::optional<std::size_t> count(std::vector<Record>& records, const Increment& increment) {
  const auto fresh = encode(increment.name, increment.labels);
  if (!fresh) return std::nullopt;
  const auto is_it = [&](const Record& other) { return std::memcmp(other.key, fresh->key, sizeof other.key) == 0; };
  auto found = std::ranges::find_if(records, is_it);
  if (found == records.end()) {
    // The number of records is bounded, because each call reads the whole file.
    if (records.size() >= kMostRecords) return std::nullopt;
    found = records.insert(found, *fresh);
  }
  found->value += increment.delta;
  return static_cast<std::size_t>(found - records.begin());
}

}  // namespace

Result<Counters> Counters::open(const LedgerDirectory& directory) {
  return open(directory, O_RDWR | O_CREAT);
}

Result<Counters> Counters::open(const std::string& directory) {
  return open(TRY(open_directory(AT_FDCWD, directory, directory, false)));
}

Result<Counters> Counters::open_to_read(const std::string& directory) {
  return open(TRY(open_directory(AT_FDCWD, directory, directory, false)), O_RDONLY);
}

Result<Counters> Counters::open(const LedgerDirectory& directory, int flags) {
  const std::string path = directory.path + "/metrics";
  // O_NONBLOCK is set, because opening a FIFO must not block the start of a container.
  UniqueFd fd(::openat(directory.fd.get(), "metrics", flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600));
  struct stat info {};
  if (!fd.ok() || ::fstat(fd.get(), &info) != 0) return sys_error(errno, "cannot open `{}`", path);
  if (S_ISREG(info.st_mode) && (info.st_uid == 0 || info.st_uid == ::geteuid())) return Counters(std::move(fd), path);
  return Error{fmt::format("cannot use `{}`: it is not a regular file of root", path), 0, "remove that file"};
}

void Counters::add(const std::vector<Increment>& increments) const {
  if (increments.empty()) return;
  const FileLock lock(fd_.get(), LOCK_EX);
  if (!lock.held()) return;
  auto records = load(fd_.get(), path_);
  if (!records) return;
  std::size_t first = kMostRecords;
  std::size_t end = 0;
  const auto change = [&](std::size_t at) {
    first = std::min(first, at);
    end = std::max(end, at + 1);
  };
  if (records->empty()) {
    // The file is empty, damaged or foreign, so its counters start again from zero.
    if (::ftruncate(fd_.get(), 0) != 0) return;
    records->push_back(make_record(kFileKey));
    change(0);
  }
  for (const Increment& increment : increments)
    if (const auto at = count(*records, increment)) change(*at);
  if (first >= end) return;
  // The whole changed range is written at once: a call changes about thirty adjacent series. On a full disk the
  // increments are lost: counting is best effort.
  (void)!::pwrite(fd_.get(), &(*records)[first], (end - first) * sizeof(Record),
                  static_cast<off_t>(first * sizeof(Record)));
}

Result<std::vector<Sample>> Counters::read() const {
  const FileLock lock(fd_.get(), LOCK_SH);
  if (!lock.held()) return sys_error(EAGAIN, "cannot lock `{}`", path_);
  std::vector<Sample> samples;
  const auto records = TRY(load(fd_.get(), path_));
  for (std::size_t i = 1; i < records.size(); ++i)
    if (auto sample = decode(records[i])) samples.push_back(std::move(*sample));
  return samples;
}

}  // namespace hook
