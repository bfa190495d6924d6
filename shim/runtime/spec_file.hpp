// A JSON file that an engine wrote for its runtime: config.json of a bundle, the process of an `exec`. Read once,
// replaced as a whole.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fabric/unique_fd.hpp"
#include "hook/base/json/json_fwd.hpp"
#include "hook/base/process/identity.hpp"
#include "shim/result.hpp"

namespace shim {

// Which content a file has: changes when it is written or replaced.
struct FileVersion {
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t size = 0;
  friend bool operator==(const FileVersion&, const FileVersion&) = default;
};

struct FileOwner {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t mode = 0600;
};

// A file that is written but not yet where readers look. Removed unless put in place.
class NewFile {
 public:
  // In that directory, as .rdma-runtime@PID.START@RANDOM; name: of the file that it will be. writer: this process.
  static Result<NewFile> write(int directory, const std::string& name, std::string_view text, const FileOwner& owner,
                               const hook::ProcessIdentity& writer);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  const FileVersion& version() const { return version_; }
  // Over whatever has the name: readers see the old file or the new one.
  Result<void> put_in_place();

 private:
  NewFile(int directory, std::string name) : directory_(directory), name_(std::move(name)) {}
  int directory_;
  std::string name_;
  std::string temporary_;
  FileVersion version_;
};

class SpecFile {
 public:
  // nullopt: there is no such file or directory; the runtime says that better. Errors: a symbolic link, no regular
  // file, over limits.bytes.
  static Result<std::optional<SpecFile>> open(const std::string& directory, const std::string& name,
                                              const hook::JsonLimits& limits = {});

  const std::string& text() const { return text_; }
  const FileVersion& version() const { return version_; }
  const FileOwner& owner() const { return owner_; }
  int directory() const { return directory_.get(); }
  // For messages.
  const std::string& path() const { return path_; }

  // Another text for it, with its owner and mode.
  Result<NewFile> rewrite(std::string_view text, const hook::ProcessIdentity& writer) const;

 private:
  fabric::UniqueFd directory_;
  std::string name_;
  std::string path_;
  std::string text_;
  FileVersion version_;
  FileOwner owner_;
};

// Removes what writers of a NewFile left in this directory that were killed, and the files of these names. Best effort.
void remove_leftovers(int directory, std::span<const std::string_view> also);

// The directory and name of a path, as openat(2) takes them: "x.json" is in ".".
struct PathParts {
  std::string directory;
  std::string name;
};
PathParts split_path(const std::string& path);

}  // namespace shim
