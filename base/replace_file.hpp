// Replaces files and symbolic links by rename(2): a reader finds the old content or the new content, never a part of
// it. The new content has a temporary name first, in a directory of the same file system. rename(2) also removes the
// old file, so a process that still reads or executes the old file can continue.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace base {

// A name in an open directory. directory: AT_FDCWD if the name is a path.
struct NameAt {
  int directory = AT_FDCWD;
  std::string name;
};

struct FileOwner {
  uid_t uid = 0;
  gid_t gid = 0;
};

// Mode, owner and durability of a new file.
struct FileSettings {
  mode_t mode = 0600;                // permissions; other permissions than 0600 do not depend on the umask
  std::optional<FileOwner> owner{};  // nullopt: the user of this process
  // Whether the text is on disk before the file has its name (fsync(2)), so that a crash of the node leaves no empty
  // file. A file below /run needs none, because a crash empties /run.
  bool is_synced = false;
};

// The step that failed, and its errno.
struct FileFailure {
  enum class Step { kCreate, kWrite, kRename };
  Step step = Step::kCreate;
  int code = 0;
};

// A complete file under a temporary name. The destructor removes the file, except after put() or keep().
class NewFile {
 public:
  // Creates and fills the file. Removes a file or link with the temporary name, which a killed process left.
  static NewFile write(NameAt temporary, std::string_view text, const FileSettings& settings = {});
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  // Returns the failure of write(); nullopt: the file is complete.
  const std::optional<FileFailure>& failure() const { return failure_; }
  int fd() const { return fd_.get(); }
  // Gives the file its name, and replaces a file that has this name. Returns the failure, also that of write().
  std::optional<FileFailure> put(const NameAt& name);
  // Leaves the file under the name that it has. Returns its descriptor.
  UniqueFd keep();

 private:
  explicit NewFile(NameAt temporary) : temporary_(std::move(temporary)) {}
  std::optional<FileFailure> fill(std::string_view text, const FileSettings& settings);

  NameAt temporary_;  // without a name: there is no file to remove
  UniqueFd fd_;
  std::optional<FileFailure> failure_;
};

// Writes a file under a temporary name and gives it its name. Returns the failure; nullopt: the file is replaced.
std::optional<FileFailure> replace_file(NameAt temporary, const NameAt& name, std::string_view text,
                                        const FileSettings& settings = {});

// Makes a symbolic link under a temporary name and gives it its name. Returns 0 or an errno; after an error the
// temporary link is removed.
int replace_link(const NameAt& temporary, const NameAt& name, const char* target);

}  // namespace base
