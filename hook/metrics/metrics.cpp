#include "hook/metrics/metrics.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/ledger/ledger_files.hpp"

namespace hook {
namespace {

using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;
using fabric::sysfs::Directory;

// NAME, then for each label a line NAME=VALUE, then zeros.
struct Record {
  char key[120];
  std::uint64_t value;
};
// A page holds whole ones: a write that is killed (it may be, between pages) leaves each old or new.
static_assert(sizeof(Record) == 128);
constexpr std::size_t kMostRecords = 1 + 512;
// The first record; another format is another text.
constexpr std::string_view kFileKey = "rdma_hook_metrics_1";

constexpr int kLockTries = 10;
constexpr timespec kLockPause{.tv_sec = 0, .tv_nsec = 1'000'000};

struct Help {
  std::string_view name;
  std::string_view text;
};
constexpr Help kHelp[] = {
    {kGrantsTotal, "Containers that were granted HCAs."},
    {kReturnsTotal, "Grants that were returned."},
    {kFailuresTotal, "Stages that failed."},
    {kDurationTotal, "Time that the steps of the stages took."},
    {kDurationCount, "How often the steps of the stages ran."},
};

bool is_name(std::string_view text, bool metric) {
  const auto may_start = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (metric && c == ':');
  };
  const auto may_follow = [&](char c) { return may_start(c) || (c >= '0' && c <= '9'); };
  return !text.empty() && may_start(text.front()) && std::all_of(text.begin(), text.end(), may_follow);
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

// nullopt: too long, or no names.
std::optional<Record> encode(std::string_view name, const Labels& labels) {
  std::string key(name);
  bool good = is_name(name, true);
  for (const auto& [label, value] : labels) {
    good = good && is_name(label, false);
    key += '\n' + label + '=';
    std::transform(value.begin(), value.end(), std::back_inserter(key),
                   [](char c) { return is_printable(c) ? c : '_'; });
  }
  if (!good || key.size() > sizeof Record::key) return std::nullopt;
  return make_record(key);
}

std::optional<Sample> decode(const Record& record) {
  const std::string_view key = key_of(record);
  const auto rest = std::string_view(record.key, sizeof record.key).substr(key.size());
  const auto parts = fabric::split(key, '\n');
  if (!is_name(parts.front(), true) || rest.find_first_not_of('\0') != std::string_view::npos) return std::nullopt;
  Sample sample{.name = std::string(parts.front()), .type = Sample::Type::kCounter, .value = record.value};
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto equals = parts[i].find('=');
    if (equals == std::string_view::npos || !is_name(parts[i].substr(0, equals), false)) return std::nullopt;
    if (!std::all_of(parts[i].begin(), parts[i].end(), is_printable)) return std::nullopt;
    sample.labels.emplace(parts[i].substr(0, equals), parts[i].substr(equals + 1));
  }
  const auto* help =
      std::find_if(std::begin(kHelp), std::end(kHelp), [&](const Help& h) { return h.name == sample.name; });
  if (help != std::end(kHelp)) sample.help = help->text;
  return sample;
}

class FileLock {
 public:
  FileLock(int fd, int operation) : fd_(fd) {
    for (int left = kLockTries; !held_; --left) {
      held_ = ::flock(fd_, operation | LOCK_NB) == 0;
      if (held_ || left == 0 || (errno != EWOULDBLOCK && errno != EINTR)) return;
      ::nanosleep(&kLockPause, nullptr);
    }
  }
  ~FileLock() {
    if (held_) ::flock(fd_, LOCK_UN);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool held() const { return held_; }

 private:
  int fd_;
  bool held_ = false;
};

// The whole file, kFileKey first. Empty: there is nothing yet, or something else. Of the series only the first letter
// is looked at, which is enough to find a file that is not one: more would cost more than all the rest. read() looks.
Result<std::vector<Record>> load(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return sys_error(errno, "cannot read the counters");
  const auto size = static_cast<std::size_t>(info.st_size) / sizeof(Record);  // a record that is cut is none
  std::vector<Record> records(std::min(size, kMostRecords));
  const ssize_t count = ::pread(fd, records.data(), records.size() * sizeof(Record), 0);
  if (count < 0) return sys_error(errno, "cannot read the counters");
  records.resize(static_cast<std::size_t>(count) / sizeof(Record));
  const auto good = [](const Record& record) { return is_name({record.key, 1}, true); };
  if (records.empty() || key_of(records.front()) != kFileKey || !std::all_of(records.begin(), records.end(), good)) {
    records.clear();
  }
  return records;
}

bool write_record(int fd, std::size_t slot, const Record& record) {
  return ::pwrite(fd, &record, sizeof record, static_cast<off_t>(slot * sizeof record)) == sizeof record;
}

void count(int fd, std::vector<Record>& records, const Increment& increment) {
  const auto fresh = encode(increment.name, increment.labels);
  if (!fresh) return;
  const auto is_it = [&](const Record& other) { return std::memcmp(other.key, fresh->key, sizeof other.key) == 0; };
  auto found = std::find_if(records.begin(), records.end(), is_it);
  if (found == records.end()) {
    if (records.size() >= kMostRecords) return;
    found = records.insert(found, *fresh);
  }
  found->value += increment.delta;
  (void)write_record(fd, static_cast<std::size_t>(found - records.begin()), *found);
}

}  // namespace

std::string_view to_string(FailureReason reason) {
  constexpr std::string_view kNames[] = {"refused", "config", "ledger", "network", "devices", "cgroup", "internal"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(FailureReason::kInternal) + 1);
  return kNames[static_cast<std::size_t>(reason)];
}

Result<Counters> Counters::open(const std::string& directory) {
  const auto opened = TRY(open_directory(AT_FDCWD, directory, directory, false));
  const std::string path = directory + "/metrics";
  // O_NONBLOCK: a FIFO must not stop the start of a container.
  UniqueFd fd(
      ::openat(opened.fd.get(), "metrics", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600));
  struct stat info {};
  if (!fd.ok() || ::fstat(fd.get(), &info) != 0) return sys_error(errno, "cannot open `{}`", path);
  if (S_ISREG(info.st_mode) && (info.st_uid == 0 || info.st_uid == ::geteuid())) return Counters(std::move(fd));
  return fabric::Error{.message = fmt::format("cannot use `{}`: it is not a file of root's", path),
                       .hint = "remove it"};
}

void Counters::add(const std::vector<Increment>& increments) const {
  if (increments.empty()) return;
  const FileLock lock(fd_.get(), LOCK_EX);
  if (!lock.held()) return;
  auto records = load(fd_.get());
  if (!records) return;
  if (records->empty()) {
    records->push_back(make_record(kFileKey));
    if (::ftruncate(fd_.get(), 0) != 0 || !write_record(fd_.get(), 0, records->front())) return;
  }
  for (const Increment& increment : increments)
    count(fd_.get(), *records, increment);
}

void Counters::add(std::string_view name, const Labels& labels, std::uint64_t delta) const {
  add({Increment{name, labels, delta}});
}

Result<std::vector<Sample>> Counters::read() const {
  const FileLock lock(fd_.get(), LOCK_SH);
  if (!lock.held()) return sys_error(EAGAIN, "cannot lock the counters");
  std::vector<Sample> samples;
  const auto records = TRY(load(fd_.get()));
  for (std::size_t i = 1; i < records.size(); ++i) {
    if (auto sample = decode(records[i])) samples.push_back(std::move(*sample));
  }
  return samples;
}

namespace {

// Backslash and line break, in label values the quote too; of the rest what is UTF-8 and no control character.
std::string escape(std::string_view text, bool in_quotes) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || (in_quotes && c == '"')) escaped += '\\';
    escaped += c == '\n' ? "\\n" : std::string_view(&c, 1);
  }
  return fabric::printable(escaped);
}

void append_line(std::string& text, const Sample& sample) {
  text += sample.name;
  char before = '{';
  for (const auto& [label, value] : sample.labels) {
    text += before + label + "=\"" + escape(value, true) + '"';
    before = ',';
  }
  if (!sample.labels.empty()) text += '}';
  text += fmt::format(" {}\n", sample.value);
}

struct PortCounter {
  std::string port;
  std::string name;
  std::uint64_t value = 0;
};

std::vector<PortCounter> read_port_counters(const Directory& hca) {
  std::vector<PortCounter> counters;
  const auto ports = hca.open_at("ports");
  if (!ports) return counters;
  for (const std::string& port : ports->list()) {
    for (const char* group : {"counters", "hw_counters"}) {
      const auto directory = ports->open_at((port + "/" + group).c_str());
      if (!directory) continue;
      for (const std::string& name : directory->list()) {
        if (name == "lifespan") continue;  // a setting: for how many milliseconds hardware counters are kept
        const auto text = directory->read_text(name.c_str());
        const auto value = text ? fabric::parse_number<std::uint64_t>(*text) : std::nullopt;
        if (value) counters.push_back({port, name, *value});
      }
    }
  }
  return counters;
}

// Each container of each grant that is not vanished with each of its HCAs. A grant that nobody uses yet has no
// container.
struct Use {
  const Grant* grant;
  std::string container;
  std::string hca;
};

std::vector<Use> list_uses(const std::vector<Grant>& grants) {
  std::vector<Use> uses;
  for (const Grant& grant : grants) {
    if (grant.vanished) continue;
    for (const PlannedHca& hca : grant.hcas) {
      if (grant.users.empty()) uses.push_back({&grant, "", hca.name});
      for (const GrantUser& user : grant.users)
        uses.push_back({&grant, user.id, hca.name});
    }
  }
  return uses;
}

}  // namespace

std::string prometheus_text(std::vector<Sample> samples) {
  const auto key = [](const Sample& sample) { return std::tie(sample.name, sample.labels); };
  std::stable_sort(samples.begin(), samples.end(), [&](const Sample& a, const Sample& b) { return key(a) < key(b); });
  const auto same = [&](const Sample& a, const Sample& b) { return key(a) == key(b); };
  samples.erase(std::unique(samples.begin(), samples.end(), same), samples.end());
  std::string text;
  std::string_view last;
  for (const Sample& sample : samples) {
    if (sample.name != last) {
      if (!sample.help.empty()) text += fmt::format("# HELP {} {}\n", sample.name, escape(sample.help, false));
      text += fmt::format("# TYPE {} {}\n", sample.name, sample.type == Sample::Type::kCounter ? "counter" : "gauge");
      last = sample.name;
    }
    append_line(text, sample);
  }
  return text;
}

std::vector<Sample> grant_samples(const std::vector<Grant>& grants) {
  std::map<std::string, std::set<const Grant*>> holders;
  std::vector<Sample> samples;
  for (const Use& use : list_uses(grants)) {
    holders[use.hca].insert(use.grant);
    const Owner& owner = use.grant->owner;
    samples.push_back({.name = "rdma_hook_grant_info",
                       .labels = {{"container", use.container},
                                  {"grant", owner.key},
                                  {"hca", use.hca},
                                  {"netns", owner.netns ? owner.netns->path : ""}},
                       .help = "Who has which HCA.",
                       .value = 1});
  }
  for (const auto& [hca, grants_of_it] : holders) {
    samples.push_back({.name = "rdma_hook_holders",
                       .labels = {{"hca", hca}},
                       .help = "Grants that hold an HCA.",
                       .value = grants_of_it.size()});
  }
  return samples;
}

std::vector<Sample> port_samples(const std::string& root, const std::vector<Grant>& grants) {
  std::vector<Sample> samples;
  const auto devices = Directory::open(root + "/sys/class/infiniband");
  if (!devices) return samples;
  std::map<std::string, std::vector<PortCounter>> read;
  for (const Use& use : list_uses(grants)) {
    const auto [found, fresh] = read.try_emplace(use.hca);
    if (fresh) {
      const auto hca = is_file_name(use.hca, kLongestHcaName) ? devices->open_at(use.hca.c_str()) : std::nullopt;
      if (hca) found->second = read_port_counters(*hca);
    }
    for (const PortCounter& counter : found->second) {
      samples.push_back({.name = "rdma_port_counter",
                         .labels = {{"container", use.container},
                                    {"counter", counter.name},
                                    {"grant", use.grant->owner.key},
                                    {"hca", use.hca},
                                    {"port", counter.port}},
                         .type = Sample::Type::kCounter,
                         .help = "A counter of an HCA's port as the kernel has it; port_*_data counts 4 bytes.",
                         .value = counter.value});
    }
  }
  return samples;
}

Result<std::string> metrics_text(const std::string& ledger_directory, const std::vector<Grant>& grants,
                                 const std::string& root) {
  std::vector<Sample> samples;
  if (const auto counters = Counters::open(ledger_directory)) {
    samples = TRY(counters.value().read());
  } else if (counters.error().code != ENOENT) {
    return counters.error();
  }
  for (auto& more : {grant_samples(grants), port_samples(root, grants)})
    samples.insert(samples.end(), more.begin(), more.end());
  return prometheus_text(std::move(samples));
}

}  // namespace hook
