// JSON files that an engine writes for its runtime: config.json of a bundle, the process file of an `exec`. Each is
// read once and replaced as a whole.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json/json_fwd.hpp"
#include "base/process/identity.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace shim {

// Identifies the content of a file: it differs after a write or replacement.
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

// A complete file under a temporary name. The destructor removes it unless put_in_place() renamed it.
class NewFile {
 public:
  // Writes the file .rdma-runtime@PID.START@RANDOM in the directory. name: the name that put_in_place() will give it.
  // writer: this process.
  static Result<NewFile> write(int directory, const std::string& name, std::string_view text, const FileOwner& owner,
                               const base::ProcessIdentity& writer);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  const FileVersion& version() const { return version_; }
  // Renames the file over `name`: readers find the old file or the new one.
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
  // Opens and reads a file. nullopt: the file or the directory does not exist; the runtime will report that. Errors: a
  // symbolic link, not a regular file, longer than limits.bytes.
  static Result<std::optional<SpecFile>> open(const std::string& directory, const std::string& name,
                                              const base::JsonLimits& limits = {});
  static Result<std::optional<SpecFile>> open(const std::string& path);

  const std::string& text() const { return text_; }
  const FileVersion& version() const { return version_; }
  const FileOwner& owner() const { return owner_; }
  int directory() const { return directory_.get(); }
  // Path for messages.
  const std::string& path() const { return path_; }

  // Writes text to a NewFile that has this file's name, owner and mode.
  Result<NewFile> rewrite(std::string_view text, const base::ProcessIdentity& writer) const;

 private:
  base::UniqueFd directory_;
  std::string name_;
  std::string path_;
  std::string text_;
  FileVersion version_;
  FileOwner owner_;
};

// Removes temporary files of killed writers, and the files with the names in `also`. Ignores failures.
void remove_leftovers(int directory, std::span<const std::string_view> also);

}  // namespace shim
