#include "base/process/query_program.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "base/process/program.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace base;
using test_support::must;

// Programs that are executed as root: which are accepted, and the limit of their output.

class AskProgram : public testing::Test {
 protected:
  std::string script(const std::string& name, const std::string& text) {
    const std::string path = temp_ / name;
    test_support::write_file(path, "#!/bin/sh\n" + text + "\n");
    EXPECT_EQ(::chmod(path.c_str(), 0755), 0);
    return path;
  }

  test_support::TempDir temp_;
};

TEST_F(AskProgram, ReadsOutputAndMessages) {
  const auto answer = must(query_program("", {script("says", "echo out $1; echo err >&2; exit 3"), "a b"}));
  EXPECT_FALSE(answer.done);
  EXPECT_EQ(answer.text, "out a b\n");
  EXPECT_EQ(answer.messages, "err\n");
  EXPECT_TRUE(must(query_program("", {std::filesystem::canonical("/bin/true").string()})).done);
}

TEST_F(AskProgram, RefusesProgramThatAnotherUserCanChange) {
  const std::string program = script("dir/program", "touch " + temp_ / "executed");
  const auto refused_for = [&](const std::string& changeable, mode_t mode) {
    EXPECT_EQ(::chmod(changeable.c_str(), mode), 0);
    const Error error = query_program("", {program}).error();
    EXPECT_EQ(error.message,
              fmt::format("cannot execute `{}`: users other than root can change `{}`", program, changeable));
    EXPECT_EQ(error.hint,
              std::string(changeable == program ? "use a regular file that only root can change, in a directory of root"
                                                : "use a path in which only root can change each directory"));
    EXPECT_EQ(error.code, EACCES);
    EXPECT_EQ(::chmod(changeable.c_str(), 0755), 0);
  };
  refused_for(program, 0757);
  refused_for(program, 0775);
  refused_for(temp_ / "dir", 0777);
  EXPECT_FALSE(std::filesystem::exists(temp_ / "executed"));
  EXPECT_TRUE(query_program("", {program}));
  EXPECT_TRUE(std::filesystem::exists(temp_ / "executed"));
}

TEST_F(AskProgram, RefusesScriptWithInterpreterThatAnotherUserCanChange) {
  const std::string interpreter = temp_ / "shell";
  std::filesystem::copy("/bin/sh", interpreter);
  const std::string program = temp_ / "program";
  test_support::write_file(program, "#! " + interpreter + " -e\n: >" + temp_ / "executed");
  ASSERT_EQ(::chmod(program.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(interpreter.c_str(), 0777), 0);
  EXPECT_EQ(query_program("", {program}).error().message,
            fmt::format("cannot execute `{0}`: its interpreter `{1}`: users other than root can change `{1}`", program,
                        interpreter));
  EXPECT_FALSE(std::filesystem::exists(temp_ / "executed"));
  ASSERT_EQ(::chmod(interpreter.c_str(), 0755), 0);
  EXPECT_TRUE(query_program("", {program}));
  EXPECT_TRUE(std::filesystem::exists(temp_ / "executed"));
}

TEST_F(AskProgram, KillsProgramThatWritesTooMuch) {
  for (const char* to : {"", " >&2"}) {
    const std::string text = fmt::format("while :; do echo {}{}; done", std::string(60'000, 'x'), to);
    EXPECT_EQ(query_program("", {script("endless", text)}).error().message,
              fmt::format("`{}` writes more than 16777216 bytes", temp_ / "endless"));
  }
}

TEST_F(AskProgram, KillsProgramAfterTimeoutButNotItsChild) {
  EXPECT_EQ(query_program("", {script("late", "exec sleep 60")}, {}, 200).error().message,
            fmt::format("`{}` does not exit within 200 ms", temp_ / "late"));
  EXPECT_EQ(must(query_program("", {script("leaves", "sleep 20 & echo done")}, {}, 10'000)).text, "done\n");
  EXPECT_EQ(query_program("", {temp_ / "missing"}).error().message,
            fmt::format("cannot execute `{0}`: open `{0}`: No such file or directory", temp_ / "missing"));
}

// Paths resolve as after chroot(2): links and ".." do not leave the root.
TEST_F(AskProgram, StaysBelowRoot) {
  const std::string root = temp_ / "root";
  test_support::write_file(root + "/usr/bin/engine", "inside");
  std::filesystem::create_symlink("usr/bin", root + "/bin");
  std::filesystem::create_symlink("/usr/bin/engine", root + "/absolute");
  std::filesystem::create_symlink("../../../usr/bin/engine", root + "/usr/above");
  for (const char* path : {"/usr/bin/engine", "/bin/engine", "/absolute", "/usr/above", "/../usr/../bin/engine"}) {
    const auto program = must(open_program(path, root));
    EXPECT_EQ(std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", program.get())),
              std::filesystem::canonical(root + "/usr/bin/engine"))
        << path;
  }
  ASSERT_EQ(::chmod(root.c_str(), 0777), 0);
  EXPECT_EQ(open_program("/bin/engine", root).error().message, "users other than root can change `/`");
}

}  // namespace
