#include "support/temp_dir.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace test_support {
namespace {

[[noreturn]] void end_test(const char* what, const std::string& path) {
  std::fprintf(stderr, "test set-up: cannot %s `%s`\n", what, path.c_str());
  std::abort();
}

// Returns a directory in memory if possible, because file trees have thousands of files.
std::string base_directory() {
  if (const char* chosen = std::getenv("TMPDIR")) return chosen;
  return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
}

}  // namespace

TempDir::TempDir() {
  std::string pattern = base_directory() + "/rdma-init-test.XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) end_test("make the temporary directory", pattern);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;  // files that a test made unreadable stay, without failing the test
  std::filesystem::remove_all(path_, ignored);
}

void write_file(const std::string& path, std::string_view text) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) end_test("write", path);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) end_test("read", path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace test_support
