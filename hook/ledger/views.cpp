#include "hook/ledger/views.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "hook/ledger/absence.hpp"
#include "hook/ledger/copies.hpp"
#include "hook/ledger/index.hpp"
#include "hook/ledger/locks.hpp"
#include "hook/ledger/store.hpp"

namespace hook {
namespace {

constexpr std::size_t kLongestEntry = 255;
// Any user of a container may read a view. The node's own users cannot, because DIR above the view has mode 0700.
constexpr mode_t kViewMode = 0555;

// DIR/checked/NAME is a link for the view NAME. Its text is that of look_at() when a call found the whole view as it
// was made. While the text of look_at() is the same, the view is not read again: each change of the entries, the
// content, the mode or the owner of a directory or file changes its ctime, which no call can set back, and a link
// cannot get another target. The link is not below the view, because it would change the ctime of the view's directory.
constexpr const char* kChecked = "checked";

// A link in the directory of a view, beside the mounted directories. Earlier versions made it, for the same purpose.
constexpr const char* kOldChecked = "checked";

// A link in the directory of a view that lacks copies, to their number. Each start of a container with this view tries
// to copy again.
constexpr const char* kLacking = "lacking";

using DirectoryEntries = std::map<std::string, const ViewEntry*>;
using Layout = std::map<std::string, DirectoryEntries>;

Result<Layout> layout_of(const std::vector<ViewEntry>& entries) {
  Layout layout;
  for (const ViewEntry& entry : entries) {
    if (!is_file_name(entry.directory, kLongestEntry) ||
        (!entry.name.empty() && !is_file_name(entry.name, kLongestEntry))) {
      return make_error("cannot make a view of `{}/{}`: that is no name of a device", base::printable(entry.directory),
                        base::printable(entry.name));
    }
    DirectoryEntries& directory = layout[entry.directory];
    if (!entry.name.empty()) directory[entry.name] = &entry;
  }
  return layout;
}

// Opens a directory that has mode kViewMode and exactly the names of `wanted`; it may also have the name `besides`.
// Returns an invalid descriptor if the directory differs.
UniqueFd open_closed(int parent, const std::string& name, const auto& wanted, std::string_view besides = {}) {
  UniqueFd fd = base::open_to_list(parent, name.c_str());
  struct stat info {};
  if (!fd.ok() || ::fstat(fd.get(), &info) != 0 || !is_ours(info) || (info.st_mode & 07777) != kViewMode) return {};
  std::size_t found = 0;
  const bool read = base::next_names(fd.get(), [&](std::string_view entry) {
    if (entry == besides) return true;
    const bool known = wanted.contains(std::string(entry));
    found = known ? found + 1 : wanted.size() + 1;
    return known;
  });
  return read && found == wanted.size() ? std::move(fd) : UniqueFd();
}

bool has_link(int directory, const ViewEntry& entry) {
  char target[PATH_MAX];
  const ssize_t size = ::readlinkat(directory, entry.name.c_str(), target, sizeof target);
  return size >= 0 && std::string_view(target, static_cast<std::size_t>(size)) == entry.target;
}

// path: path of the entry, below the directory.
bool has_file(int directory, const std::string& path, const ViewEntry& entry) {
  const UniqueFd fd = base::open_to_read(directory, path.c_str(), O_NOFOLLOW);
  struct stat info {};
  if (!fd.ok() || ::fstat(fd.get(), &info) != 0 || !is_ours(info) || info.st_mode != (S_IFREG | kViewFileMode))
    return false;
  // The content of a copy is not read again at each start: only root can write to it.
  if (!entry.copy.empty()) return true;
  std::string text(entry.text.size() + 1, '\0');
  const ssize_t size = ::pread(fd.get(), text.data(), text.size(), 0);
  return size >= 0 && text.substr(0, static_cast<std::size_t>(size)) == entry.text;
}

// Returns true if each directory of the view has exactly its entries.
bool is_whole(int view, const Layout& layout) {
  return std::ranges::all_of(layout, [&](const auto& part) {
    const UniqueFd directory = open_closed(view, part.first, part.second);
    return directory.ok() && std::ranges::all_of(part.second, [&](const auto& entry) {
             const bool is_file = entry.second->target.empty();
             return is_file ? has_file(directory.get(), entry.first, *entry.second)
                            : has_link(directory.get(), *entry.second);
           });
  });
}

// The directories and files of a view.
struct Seen {
  std::string text;     // identity and ctime of each
  bool settled = true;  // a later change of one of them cannot get the same ctime
};

// Returns nullopt if one of them is missing or is another file.
std::optional<Seen> look_at(const LedgerFiles& files, const std::string& name, const Layout& layout) {
  const base::ChangeStep step;
  Seen seen;
  const auto add = [&](const std::string& path, mode_t type) {
    struct stat info {};
    if (::fstatat(files.root.fd.get(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        (info.st_mode & S_IFMT) != type)
      return false;
    const timespec& changed = info.st_ctim;
    seen.settled = seen.settled && step.is_after(changed);
    seen.text += fmt::format("{}.{}.{}.{} ", info.st_dev, info.st_ino, changed.tv_sec, changed.tv_nsec);
    return true;
  };
  const std::string view = fmt::format("{}/{}", kViews, name);
  if (!add(view, S_IFDIR)) return std::nullopt;
  for (const auto& [directory, entries] : layout) {
    const std::string path = fmt::format("{}/{}", view, directory);
    if (!add(path, S_IFDIR)) return std::nullopt;
    for (const auto& [entry_name, entry] : entries)
      if (entry->target.empty() && !add(fmt::format("{}/{}", path, entry_name), S_IFREG)) return std::nullopt;
  }
  return seen;
}

std::string checked_path(const std::string& name) {
  return fmt::format("{}/{}", kChecked, name);
}

bool was_checked(const LedgerFiles& files, const std::string& name, const Seen& seen) {
  char text[PATH_MAX] RDMA_INIT_UNSET;
  const ssize_t size = ::readlinkat(files.root.fd.get(), checked_path(name).c_str(), text, sizeof text);
  return size > 0 && std::string_view(text, static_cast<std::size_t>(size)) == seen.text;
}

// Best effort: without the link, or if the text is too long for one, the next call checks the whole view.
void note_checked(const LedgerFiles& files, const std::string& name, const Seen& seen) {
  const int root = files.root.fd.get();
  const std::string path = checked_path(name);
  (void)::unlinkat(root, path.c_str(), 0);
  const auto make = [&] { return ::symlinkat(seen.text.c_str(), root, path.c_str()) == 0; };
  if (make() || errno != ENOENT) return;
  (void)::mkdirat(root, kChecked, 0700);
  (void)make();
}

// Removes a view, and the note that it was checked.
Result<void> remove_view(const LedgerFiles& files, const LedgerDirectory& views, const std::string& name) {
  auto removed = remove_tree(views, name);
  if (removed) (void)::unlinkat(files.root.fd.get(), checked_path(name).c_str(), 0);
  return removed;
}

// Returns true if the view on disk is as `layout` describes it. Returns false also if the view cannot be read: it is
// then made again.
bool is_as_made(const LedgerFiles& files, const std::string& name, const Layout& layout) {
  const auto seen = look_at(files, name, layout);
  if (!seen) return false;
  if (was_checked(files, name, *seen)) return true;
  const auto views = files.open_views();
  const UniqueFd view = views ? open_closed(views->fd.get(), name, layout, kOldChecked) : UniqueFd();
  if (!view.ok() || !is_whole(view.get(), layout)) return false;
  if (seen->settled) note_checked(files, name, *seen);
  return true;
}

Result<UniqueFd> make_directory(int parent, const std::string& name, const std::string& path) {
  if (::mkdirat(parent, name.c_str(), 0700) != 0) return sys_error(errno, "cannot make `{}`", path);
  UniqueFd fd = base::open_to_list(parent, name.c_str());
  if (!fd.ok()) return sys_error(errno, "cannot open `{}`", path);
  return fd;
}

// Sets the mode with fchmod(2), because the umask changes the mode that open(2) and mkdir(2) set.
Result<void> close_to_writing(const UniqueFd& fd, mode_t mode, const std::string& path) {
  return ::fchmod(fd.get(), mode) == 0 ? Result<void>() : sys_error(errno, "cannot make `{}`", path);
}

Result<void> make_entry(int directory, const ViewEntry& entry, const std::string& path) {
  if (!entry.target.empty()) {
    if (::symlinkat(entry.target.c_str(), directory, entry.name.c_str()) == 0) return {};
    return sys_error(errno, "cannot make the link `{}`", path);
  }
  const UniqueFd file = base::create_file(directory, entry.name.c_str(), kViewFileMode);
  const auto size = static_cast<ssize_t>(entry.text.size());
  if (!file.ok() || ::write(file.get(), entry.text.data(), entry.text.size()) != size)
    return sys_error(errno, "cannot make `{}`", path);
  return close_to_writing(file, kViewFileMode, path);
}

// Adds the copy of a file of the node. Errors: the directory then has no such entry.
Result<void> make_copy(const Result<Copies>& copies, int directory, const ViewEntry& entry, const std::string& path) {
  auto copied = copies ? copies->add(directory, entry, path) : Result<void>(copies.error());
  if (!copied) (void)::unlinkat(directory, entry.name.c_str(), 0);
  return copied;
}

bool has_copies(const Layout& layout) {
  return std::ranges::any_of(layout, [](const auto& directory) {
    return std::ranges::any_of(directory.second, [](const auto& entry) { return !entry.second->copy.empty(); });
  });
}

// Makes the directory of a view. Returns one warning for each copy that the view lacks; the container starts without
// them.
Result<std::vector<std::string>> fill(const LedgerFiles& files, const LedgerDirectory& views, const std::string& name,
                                      const Layout& layout) {
  std::vector<std::string> failed;
  const std::string path = views.path + "/" + name;
  const UniqueFd view = TRY(make_directory(views.fd.get(), name, path));
  std::optional<Result<Copies>> copies;
  if (has_copies(layout)) copies = Copies::open(files);
  // Removes unused copies first. If this fails, they only take memory.
  if (copies && *copies) (void)(*copies)->remove_unused().has_value();
  for (const auto& [directory_name, entries] : layout) {
    const std::string below = fmt::format("{}/{}", path, directory_name);
    const UniqueFd directory = TRY(make_directory(view.get(), directory_name, below));
    for (const auto& [entry_name, entry] : entries) {
      const std::string entry_path = fmt::format("{}/{}", below, entry_name);
      if (entry->copy.empty()) {
        TRY_VOID(make_entry(directory.get(), *entry, entry_path));
      } else if (const auto made = make_copy(*copies, directory.get(), *entry, entry_path); !made) {
        failed.push_back(base::with_remedy(made.error()));
      }
    }
    TRY_VOID(close_to_writing(directory, kViewMode, below));
  }
  if (!failed.empty()) (void)!::symlinkat(std::to_string(failed.size()).c_str(), view.get(), kLacking);
  TRY_VOID(close_to_writing(view, kViewMode, path));
  return failed;
}

// Removes the views that killed processes were making. Best effort: recover() reports errors.
void remove_dead(const LedgerDirectory& views) {
  const auto names = list_names(views);
  if (!names) return;
  for (const std::string& name : *names) {
    const auto pending = name.starts_with('@') ? parse_pending_name(name) : std::nullopt;
    if (pending && is_worker_absent(pending->worker)) (void)remove_tree(views, name).has_value();
  }
}

// Returns the number of copies that the view lacks. Returns 0 also if there is no such view.
std::size_t lacking(const LedgerDirectory& views, const std::string& name) {
  const auto count = base::read_link(views.fd.get(), fmt::format("{}/{}", name, kLacking).c_str());
  return base::parse_number<std::size_t>(count.value_or("")).value_or(0);
}

// Returns the name of the lock of a view. A view that was replaced (NAME@PID.START.N) has the lock of the view NAME.
std::string name_in_use(const std::string& name) {
  return name.substr(0, name.find('@'));
}

// Returns true if this is a view that a process is making, and that process is not proven gone.
bool is_being_made(const std::string& name) {
  const auto pending = name.starts_with('@') ? parse_pending_name(name) : std::nullopt;
  return pending && !is_worker_absent(pending->worker);
}

// Returns the names of the views that users of grants have. A grant that cannot be read is an error, because it may
// name any view.
Result<std::set<std::string>> named_views(const LedgerFiles& files) {
  std::set<std::string> named;
  for (const std::string& key : TRY(grant_keys(files)))
    if (const auto grant = TRY(read_grant(files, key))) add_views_of(*grant, named);
  return named;
}

// Makes a view, with the contract of Ledger::make_view(). is_made: set to true if there was no such view, or it was not
// as it should be.
Result<std::vector<std::string>> make_locked(const LedgerFiles& files, const std::string& name, const Layout& layout,
                                             bool& is_made) {
  const KeyLock lock = TRY(KeyLock::take(files, {name}));
  if (is_as_made(files, name, layout)) return std::vector<std::string>();
  is_made = true;
  const LedgerDirectory views = TRY(files.open_views());
  // The view is filled under another name and then renamed, so that no container can mount half a view.
  const std::string made = files.temporary_name();
  const int fd = views.fd.get();
  const std::size_t lacks = lacking(views, name);
  remove_dead(views);
  auto filled = fill(files, views, made, layout);
  if (filled && lacks > 0 && filled->size() >= lacks) {
    (void)remove_tree(views, made).has_value();  // the present view has as many copies
    return filled;
  }
  // A view is a directory, which rename(2) replaces only if it is empty: renameat2(2) exchanges the two instead.
  if (filled && ::renameat2(fd, made.c_str(), fd, name.c_str(), RENAME_NOREPLACE) == 0) return filled;
  if (filled && errno == EEXIST && ::renameat2(fd, made.c_str(), fd, name.c_str(), RENAME_EXCHANGE) == 0) {
    // Containers may have the former view mounted. The former view gets the name NAME@PID.START.N, and stays until no
    // user has the view NAME.
    (void)::renameat(fd, made.c_str(), fd, (name + made).c_str());
    if (lacks == 0)
      filled->push_back(
          fmt::format("`{}/{}` was changed by another process; rdma-hook has made it again", views.path, name));
    return filled;
  }
  if (filled) filled = sys_error(errno, "cannot make `{}/{}`", views.path, name);
  (void)remove_tree(views, made).has_value();
  return filled;
}

// Removes the views that no user names if most of the views may be such: a node with many VFs never has the same set
// of HCAs twice, and recover() may not run. As this removes at least half of the views, the reads of all grants cost
// little per view. made: the view of the caller, which stays. Best effort.
void remove_many_left(const LedgerFiles& files, const LedgerDirectory& views, const std::string& made) {
  constexpr std::size_t kFew = 64;
  auto names = list_names(views);
  if (!names || names->size() <= kFew) return;
  const auto keys = grant_keys(files);
  if (!keys || names->size() <= 2 * keys->size() + kFew) return;
  auto named = named_views(files);
  if (!named) return;
  named->insert(made);
  (void)recover_views(files, views, *std::move(names), *std::move(named), 0).has_value();
}

}  // namespace

Result<std::vector<std::string>> make_view(const LedgerFiles& files, const std::string& name,
                                           const std::vector<ViewEntry>& entries) {
  const Layout layout = TRY(layout_of(entries));
  bool is_made = false;
  auto warnings = make_locked(files, name, layout, is_made);
  if (!is_made) return warnings;
  if (const auto views = files.open_views()) remove_many_left(files, *views, name);
  return warnings;
}

void add_views_of(const StoredGrant& grant, std::set<std::string>& named) {
  for (const StoredUser& user : grant.users)
    for (std::string& view : views_of(user.user))
      named.insert(std::move(view));
}

Result<void> recover_views(const LedgerFiles& files, const LedgerDirectory& directory, std::vector<std::string> views,
                           std::set<std::string> named, int timeout_ms) {
  named.insert(view_name({}));
  std::erase_if(views,
                [&](const std::string& view) { return named.contains(name_in_use(view)) || is_being_made(view); });
  Result<void> all;
  if (!views.empty()) {
    std::vector<std::string> locked;
    std::ranges::transform(views, std::back_inserter(locked), name_in_use);
    const KeyLock lock = TRY(KeyLock::take(files, locked, timeout_ms));
    // Read the grants again under the lock: since the caller read them, a new user may have named the view.
    named.merge(TRY(named_views(files)));
    for (const std::string& view : views) {
      auto removed = named.contains(name_in_use(view)) ? Result<void>() : remove_view(files, directory, view);
      keep_first(all, removed);
    }
  }
  keep_first(all, Copies::remove_unused(files, timeout_ms));
  return all;
}

// A process that is killed between the two, and a program of an earlier version, removes the view only.
void remove_old_checks(const LedgerFiles& files, int timeout_ms) {
  const auto checked = open_directory(files.root.fd.get(), kChecked, files.root.path + "/" + kChecked, false);
  const auto views = checked ? files.open_views() : checked.error();
  const auto names = views ? list_names(*checked) : views.error();
  for (const std::string& name : names ? *names : std::vector<std::string>()) {
    const auto has_view = [&] { return ::faccessat(views->fd.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0; };
    if (has_view()) continue;
    const auto lock = KeyLock::take(files, {name}, timeout_ms);
    if (lock && !has_view() && errno == ENOENT) (void)::unlinkat(checked->fd.get(), name.c_str(), 0);
  }
}

void remove_left_views(const LedgerFiles& files) {
  auto left = std::exchange(files.left_views, {});
  std::erase_if(left, [&](const std::string& name) {
    const auto keys = keys_of_view(files, name);
    return !keys || !keys->empty();
  });
  if (left.empty()) return;
  const auto directory = files.open_views();
  auto views = directory ? list_names(*directory) : directory.error();
  if (!views) return;
  std::erase_if(*views, [&](const std::string& view) { return !left.contains(name_in_use(view)); });
  (void)recover_views(files, *directory, *std::move(views), {}, 0).has_value();
}

}  // namespace hook
