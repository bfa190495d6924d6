#include "hook/ledger/files.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/file.hpp"
#include "base/replace_file.hpp"
#include "base/text.hpp"
#include "hook/ledger/path.hpp"

namespace hook {
namespace {

constexpr const char* kPlace = "place";
constexpr int kDeepest = 32;  // levels that remove_tree() enters: each takes a call frame and a descriptor
// The modification time of DIR/hca after a change by the ledger's functions. Every other change sets the present time.
constexpr timespec kSeal{.tv_sec = 1, .tv_nsec = 0};

// Number of calls of fork(2) that lead from the first process of this program to this one.
unsigned forks = 0;
[[maybe_unused]] const int forks_are_counted = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });

Error path_error(int code, const char* verb, const std::string& path) {
  Error error = sys_error(code, "cannot {} `{}`", verb, path);
  if (code == EROFS) error.hint = "make the file system of the directory writable";
  if (code == ENOSPC || code == EDQUOT) error.hint = "make room on the file system of the directory";
  if (code == EACCES || code == EPERM) error.hint = "run the program as root";
  if (code == ENOENT && verb == std::string_view("make")) error.hint = "make the directory above it";
  return error;
}

// Only the default directory certainly belongs to rdma-hook. A directory of --ledger can be any directory.
Error untrusted(const std::string& path, const char* cause) {
  const bool ours = path == kLedgerPath || path.starts_with(std::string(kLedgerPath) + "/");
  return Error{fmt::format("cannot use `{}`: {}", path, cause), 0,
               ours ? "remove it while no container uses RDMA; rdma-hook makes it again"
                    : "pass a directory of root with mode 0700 to --ledger"};
}

Error ledger_error(int code, const char* verb, const LedgerDirectory& directory, const std::string& name) {
  return path_error(code, verb, directory.path + "/" + base::printable(name));
}

Result<void> remove_below(const LedgerDirectory& directory, const std::string& name, int levels) {
  if (::unlinkat(directory.fd.get(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
  // unlink(2) of a directory fails with EISDIR on Linux, and with EPERM by POSIX.
  if ((errno != EISDIR && errno != EPERM) || levels == 0) return ledger_error(errno, "remove", directory, name);
  const std::string path = directory.path + "/" + name;
  const LedgerDirectory inner{base::open_to_list(directory.fd.get(), name.c_str()), path};
  if (!inner.fd.ok()) return errno == ENOENT ? Result<void>() : path_error(errno, "open", path);
  (void)::fchmod(inner.fd.get(), 0700);  // views have mode 0555: an owner other than root could not remove entries
  for (const std::string& entry : TRY(list_names(inner)))
    TRY_VOID(remove_below(inner, entry, levels - 1));
  if (::unlinkat(directory.fd.get(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
    return path_error(errno, "remove", path);
  return {};
}

// Returns the PID namespace and the time namespace of this process. A pid and a start time are valid only in them.
// "pid-4026531836.time-4026531834".
Result<std::string> own_place() {
  std::string place;
  for (const char* name : {"pid", "time"}) {
    struct stat info {};
    const std::string path = fmt::format("/proc/self/ns/{}", name);
    // Linux before 5.6 has no time namespaces.
    if (::stat(path.c_str(), &info) != 0 && errno != ENOENT) return sys_error(errno, "cannot read `{}`", path);
    place += fmt::format("{}{}-{}", place.empty() ? "" : ".", name, info.st_ino);
  }
  return place;
}

bool is_place(std::string_view text) {
  const std::size_t dot = text.find('.');
  const auto names = [](std::string_view part, std::string_view name) {
    return part.starts_with(name) && base::parse_number<std::uint64_t>(part.substr(name.size()));
  };
  return dot != std::string_view::npos && names(text.substr(0, dot), "pid-") && names(text.substr(dot + 1), "time-");
}

// Returns the text of the link DIR/place, which names two namespaces; nullopt: there is no link. Returns the text of a
// damaged link too, which is_place() refuses. If DIR/place is another file than a link, the text is empty.
Result<std::optional<std::string>> noted_place(const LedgerDirectory& root) {
  auto target = base::read_link(root.fd.get(), kPlace);
  if (!target && errno == ENOENT) return target;
  if (!target && errno == EINVAL) return std::optional(std::string());
  if (!target) return ledger_error(errno, "read", root, kPlace);
  return target;
}

// Returns true if the ledger has a grant or a pending change: their pids and start times are valid only in the
// namespaces of DIR/place. An empty ledger can be used in other namespaces.
Result<bool> has_facts(const LedgerFiles& files) {
  for (const LedgerDirectory* directory : {&files.grants, &files.pending}) {
    if (!directory->fd.ok()) continue;  // pending/ may be missing after open_to_list()
    bool any = false;
    const bool read = base::each_name(directory->fd.get(), [&](std::string_view) { return !(any = true); });
    if (!read) return sys_error(errno, "cannot list `{}`", directory->path);
    if (any) return true;
  }
  return false;
}

}  // namespace

bool is_ours(const struct stat& info) {
  return info.st_uid == 0 || info.st_uid == ::geteuid();
}

// Returns the FNV-1a hash. For one character, each step maps different hashes to different hashes. So two texts of
// equal length that differ in one byte never have the same checksum.
std::uint64_t checksum(std::string_view text, std::uint64_t before) {
  std::uint64_t hash = before;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3U;
  }
  return hash;
}

Result<void> check_hca_name(const std::string& name) {
  if (is_file_name(name, kLongestHcaName)) return {};
  return make_error("cannot use HCA `{}`: the name is not 1 to 63 of [A-Za-z0-9_.-]", base::printable(name));
}

Result<void> check_place(const LedgerFiles& files, bool note) {
  const std::string own = TRY(own_place());
  const auto noted = TRY(noted_place(files.root));
  if (noted == own) return {};
  if (noted && TRY(has_facts(files))) {
    if (!is_place(*noted)) {
      return Error{fmt::format("cannot use `{}/{}`: it is damaged, and names no PID and time namespace",
                               files.root.path, kPlace),
                   EBADMSG, "remove it, then run `rdma-hook recover` where containers are started"};
    }
    return Error{fmt::format("cannot use `{}` here: it belongs to the namespaces {}, this process is in {}",
                             files.root.path, base::printable(*noted), own),
                 EXDEV,
                 fmt::format("run this command in the PID namespace that starts containers: `hostPID: true` "
                             "in Kubernetes, `--pid host`, or `nsenter -t 1 -a`; if it already runs there, "
                             "remove `{}/{}`",
                             files.root.path, kPlace)};
  }
  if (!note) return {};
  if (noted) TRY_VOID(remove_file(files.root, kPlace));
  if (::symlinkat(own.c_str(), files.root.fd.get(), kPlace) == 0) return {};
  // Another process may have made the link DIR/place first. Such a link is an error only if it names other namespaces.
  if (errno == EEXIST && TRY(noted_place(files.root)) == own) return {};
  return ledger_error(errno, "write", files.root, kPlace);
}

Result<LedgerDirectory> open_directory(int parent, const std::string& name, std::string path, bool make) {
  UniqueFd fd = base::open_to_list(parent, name.c_str());
  if (!fd.ok() && errno == ENOENT && make) {
    if (::mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST) return path_error(errno, "make", path);
    fd = base::open_to_list(parent, name.c_str());
  }
  if (!fd.ok() && (errno == ENOTDIR || errno == ELOOP)) return untrusted(path, "it is not a directory");
  struct stat info {};
  if (!fd.ok() || ::fstat(fd.get(), &info) != 0) return path_error(errno, "open", path);
  if (!is_ours(info)) return untrusted(path, "its owner is not root");
  if ((info.st_mode & 077) != 0) {
    Error error = untrusted(path, "other users can read or change it");
    if (path == kLedgerPath) error.hint = fmt::format("run `chmod 0700 {}`", path);
    return error;
  }
  return LedgerDirectory{std::move(fd), std::move(path)};
}

Result<std::shared_ptr<LedgerFiles>> LedgerFiles::open(const std::string& path,
                                                       std::shared_ptr<const GrantEffects> effects,
                                                       std::string container) {
  auto files = std::make_shared<LedgerFiles>();
  files->effects_ = std::move(effects);
  files->container = std::move(container);
  files->self = TRY(identify_self());
  files->root = TRY(open_directory(AT_FDCWD, path, path, true));
  const std::pair<LedgerDirectory*, const char*> parts[] = {
      {&files->hca, "hca"}, {&files->grants, "grants"}, {&files->pending, "pending"}};
  for (const auto& [part, name] : parts)
    *part = TRY(open_directory(files->root.fd.get(), name, path + "/" + name, true));
  TRY_VOID(check_place(*files, true));
  return files;
}

void LedgerFiles::begin_call(std::shared_ptr<const GrantEffects> effects, std::string of_container) {
  effects_ = std::move(effects);
  container = std::move(of_container);
  begun.clear();
  left_views.clear();
  released.clear();
  new_key.clear();
  key_wait_ms = kKeyLockTimeoutMs;
}

Result<int> LedgerFiles::key_locks() const {
  // A child made by fork() shares the open file description, and thus the locks of its parent.
  if (!key_locks_.ok() || key_locks_forks_ != forks) {
    key_locks_forks_ = forks;
    key_locks_.reset(::openat(root.fd.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
  }
  if (!key_locks_.ok()) return sys_error(errno, "cannot open `{}/lock`", root.path);
  return key_locks_.get();
}

Result<std::shared_ptr<const LedgerFiles>> LedgerFiles::open_to_list(const std::string& path) {
  auto files = std::make_shared<LedgerFiles>();
  auto root = open_directory(AT_FDCWD, path, path, false);
  if (!root && root.error().code == ENOENT) return std::shared_ptr<const LedgerFiles>();
  files->root = TRY(std::move(root));
  auto grants = open_directory(files->root.fd.get(), "grants", path + "/grants", false);
  if (!grants && grants.error().code == ENOENT) return std::shared_ptr<const LedgerFiles>();
  files->grants = TRY(std::move(grants));
  auto pending = open_directory(files->root.fd.get(), "pending", path + "/pending", false);
  if (!pending && pending.error().code != ENOENT) return pending.error();
  if (pending) files->pending = std::move(*pending);
  auto hca = open_directory(files->root.fd.get(), "hca", path + "/hca", false);
  if (!hca && hca.error().code != ENOENT) return hca.error();
  if (hca) files->hca = std::move(*hca);
  return std::shared_ptr<const LedgerFiles>(std::move(files));
}

Result<LedgerDirectory> LedgerFiles::open_hca(const std::string& name, bool make) const {
  TRY_VOID(check_hca_name(name));
  return open_directory(hca.fd.get(), name, hca.path + "/" + name, make);
}

Result<void> LedgerFiles::begin_hca(const std::string& name) const {
  TRY_VOID(check_hca_name(name));
  const int all = hca.fd.get();
  struct stat info {};
  const bool is_sealed =
      ::fstat(all, &info) == 0 && info.st_mtim.tv_sec == kSeal.tv_sec && info.st_mtim.tv_nsec == kSeal.tv_nsec;
  const bool is_complete = is_sealed || TRY(list_names(grants)).empty();
  if (::mkdirat(all, name.c_str(), 0700) != 0)
    return errno == EEXIST ? Result<void>() : path_error(errno, "make", hca.path + "/" + name);
  if (!is_complete) return {};
  const std::string link = name + "/exclusive";
  if (::symlinkat(kFreeLink, all, link.c_str()) != 0 && errno != EEXIST)
    return path_error(errno, "write", hca.path + "/" + link);
  seal_hcas();
  return {};
}

void LedgerFiles::seal_hcas() const {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, kSeal};
  (void)::futimens(hca.fd.get(), times);
}

Result<LedgerDirectory> LedgerFiles::open_entries(const LedgerDirectory& hca_directory) const {
  return open_directory(hca_directory.fd.get(), "holders", hca_directory.path + "/holders", true);
}

Result<LedgerDirectory> LedgerFiles::open_views() const {
  return open_directory(root.fd.get(), kViews, root.path + "/" + kViews, true);
}

std::string LedgerFiles::temporary_name() const {
  static std::atomic<unsigned> counter{0};
  return fmt::format("@{}.{}.{}", self.pid, self.start_time, counter++);
}

Result<void> LedgerFiles::replace_file(const LedgerDirectory& directory, const std::string& name,
                                       std::string_view text) const {
  return replace_ledger_file(pending, temporary_name(), directory, name, text);
}

Result<void> replace_ledger_file(const LedgerDirectory& pending, const std::string& temporary,
                                 const LedgerDirectory& directory, const std::string& name, std::string_view text) {
  const auto failed = base::replace_file({pending.fd.get(), temporary}, {directory.fd.get(), name}, text);
  if (!failed) return {};
  const bool is_made = failed->step != base::FileFailure::Step::kCreate;
  return is_made ? ledger_error(failed->code, "write", directory, name)
                 : ledger_error(failed->code, "write", pending, temporary);
}

Result<std::optional<std::string>> read_ledger_file(const LedgerDirectory& directory, const std::string& name) {
  const UniqueFd fd = base::open_to_read(directory.fd.get(), name.c_str(), O_NOFOLLOW);
  if (!fd.ok() && errno == ENOENT) return std::optional<std::string>();
  struct stat info {};
  if (!fd.ok() || ::fstat(fd.get(), &info) != 0) return ledger_error(errno, "read", directory, name);
  const std::string path = directory.path + "/" + name;
  if (!S_ISREG(info.st_mode)) return untrusted(path, "it is not a file");
  if (!is_ours(info) || (info.st_mode & 022) != 0) return untrusted(path, "users other than root can change it");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size > kLargestLedgerFile) return path_error(EFBIG, "read", path);
  // The file cannot grow after fstat(2): files of the ledger are replaced, never written in place.
  std::string text(size, '\0');
  const ssize_t count = base::read_bytes(fd.get(), text.data(), size);
  if (count < 0) return path_error(errno, "read", path);
  text.resize(static_cast<std::size_t>(count));
  return std::optional(std::move(text));
}

bool make_file(int directory, const std::string& path) {
  return ::mknodat(directory, path.c_str(), S_IFREG | 0600, 0) == 0;
}

Result<void> make_empty_file(const LedgerDirectory& directory, const std::string& name) {
  if (make_file(directory.fd.get(), name) || errno == EEXIST) return {};
  // Some file systems support only open(2).
  const UniqueFd fd(
      ::openat(directory.fd.get(), name.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!fd.ok()) return ledger_error(errno, "write", directory, name);
  return {};
}

Result<void> remove_file(const LedgerDirectory& directory, const std::string& name) {
  if (::unlinkat(directory.fd.get(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
  return ledger_error(errno, "remove", directory, name);
}

Result<void> remove_tree(const LedgerDirectory& directory, const std::string& name) {
  return remove_below(directory, name, kDeepest);
}

Result<std::vector<std::string>> list_names(const LedgerDirectory& directory) {
  std::vector<std::string> names;
  if (!base::list_names(directory.fd.get(), names)) return sys_error(errno, "cannot list `{}`", directory.path);
  return names;
}

}  // namespace hook
