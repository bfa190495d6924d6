// A directory that is gone when the test is.
#pragma once

#include <string>
#include <string_view>

namespace test_support {

class TempDir {
 public:
  // Aborts the test program when no directory can be made: nothing could be tested.
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  // The path of an entry in it.
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// Writes a file and the directories above it. Aborts when it cannot.
void write_file(const std::string& path, std::string_view text);
// The whole file; aborts when it cannot be read.
std::string read_file(const std::string& path);

}  // namespace test_support
