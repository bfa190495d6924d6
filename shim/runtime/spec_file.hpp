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
#include "base/replace_file.hpp"
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

// A complete file under a temporary name, which the destructor removes. It waits there until the container's grant is
// on record; put_in_place() then replaces the old file.
class NewSpecFile {
 public:
  // Writes the file .rdma-runtime@PID.START@RANDOM. name: the name that put_in_place() will give it, in an open
  // directory. writer: this process.
  static Result<NewSpecFile> write(base::NameAt name, std::string_view text, const base::FileSettings& settings,
                                   const base::ProcessIdentity& writer);
  const FileVersion& version() const { return version_; }
  Result<void> put_in_place();

 private:
  NewSpecFile(base::NameAt name, base::NewFile file) : name_(std::move(name)), file_(std::move(file)) {}
  base::NameAt name_;
  base::NewFile file_;
  FileVersion version_;
};

class SpecFile {
 public:
  // Opens and reads a file. nullopt: the file or the directory does not exist; the runtime will report that. Errors: a
  // symbolic link, not a regular file, longer than limits.bytes.
  static Result<std::optional<SpecFile>> open(const std::string& directory, const std::string& name,
                                              const base::JsonLimits& limits = {});
  static Result<std::optional<SpecFile>> open(const std::string& path);
  // Opens and reads another file of this file's directory, as open(). directory() of the result is invalid.
  Result<std::optional<SpecFile>> open_beside(const std::string& name, const base::JsonLimits& limits) const;

  const std::string& text() const { return text_; }
  const FileVersion& version() const { return version_; }
  // Owner and mode of the file. The owner is always set.
  const base::FileSettings& settings() const { return settings_; }
  int directory() const { return directory_.get(); }
  const std::string& name() const { return name_; }
  // Path for messages.
  const std::string& path() const { return path_; }

  // Writes text to a NewSpecFile that has this file's name, owner and mode.
  Result<NewSpecFile> rewrite(std::string_view text, const base::ProcessIdentity& writer) const;

 private:
  // Reads the file `file.name_` of the directory.
  static Result<std::optional<SpecFile>> read_at(int directory, SpecFile file, const base::JsonLimits& limits);

  base::UniqueFd directory_;
  std::string name_;
  std::string path_;
  std::string text_;
  FileVersion version_;
  base::FileSettings settings_;
};

// Returns the version of an open or looked-up file.
FileVersion version_of(const struct stat& status);

// Removes temporary files of killed writers, and the files with the names in `also`. Ignores failures. directory: just
// opened.
void remove_leftovers(int directory, std::span<const std::string_view> also);

}  // namespace shim
