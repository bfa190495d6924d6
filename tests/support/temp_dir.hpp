// A directory that is removed at the end of the test.
#pragma once

#include <string>
#include <string_view>

namespace test_support {

class TempDir {
 public:
  // Aborts the test program if it cannot make a directory.
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  // Returns the path of an entry.
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// Writes a file and the directories above it. Aborts on error.
void write_file(const std::string& path, std::string_view text);
// Returns the content of a file. Aborts on error.
std::string read_file(const std::string& path);

}  // namespace test_support
