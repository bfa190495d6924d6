// Programs that are executed as root: which ones, and how much they may print.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "hook/base/process/open_program.hpp"
#include "hook/install/ask_program.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

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
  const auto answer = ask_program("", {script("says", "echo out $1; echo err >&2; exit 3"), "a b"});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_FALSE(answer->done);
  EXPECT_EQ(answer->text, "out a b\n");
  EXPECT_EQ(answer->messages, "err\n");
  const auto binary = ask_program("", {std::filesystem::canonical("/bin/true").string()});
  EXPECT_TRUE(binary && binary->done);
}

TEST_F(AskProgram, RefusesProgramThatOthersCanChange) {
  const std::string program = script("dir/program", "touch " + temp_ / "executed");
  const auto refused_for = [&](const std::string& changeable, mode_t mode) {
    EXPECT_EQ(::chmod(changeable.c_str(), mode), 0);
    const auto answer = ask_program("", {program});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().message,
              fmt::format("cannot execute `{}`: others than root may change `{}`", program, changeable));
    EXPECT_EQ(answer.error().hint, fmt::format("chown -h root {0}; chmod go-w {0}", changeable));
    EXPECT_EQ(answer.error().code, EACCES);
    EXPECT_EQ(::chmod(changeable.c_str(), 0755), 0);
  };
  refused_for(program, 0757);
  refused_for(program, 0775);
  refused_for(temp_ / "dir", 0777);
  EXPECT_FALSE(std::filesystem::exists(temp_ / "executed"));
  EXPECT_TRUE(ask_program("", {program}));
  EXPECT_TRUE(std::filesystem::exists(temp_ / "executed"));
}

TEST_F(AskProgram, RefusesScriptWhoseInterpreterOthersCanChange) {
  const std::string interpreter = temp_ / "shell";
  std::filesystem::copy("/bin/sh", interpreter);
  const std::string program = temp_ / "program";
  test_support::write_file(program, "#! " + interpreter + " -e\n: >" + temp_ / "executed");
  ASSERT_EQ(::chmod(program.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(interpreter.c_str(), 0777), 0);
  const auto refused = ask_program("", {program});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            fmt::format("cannot execute `{0}`: its interpreter `{1}`: others than root may change `{1}`", program,
                        interpreter));
  EXPECT_FALSE(std::filesystem::exists(temp_ / "executed"));
  ASSERT_EQ(::chmod(interpreter.c_str(), 0755), 0);
  EXPECT_TRUE(ask_program("", {program}));
  EXPECT_TRUE(std::filesystem::exists(temp_ / "executed"));
}

TEST_F(AskProgram, KillsProgramThatWritesWithoutEnd) {
  for (const char* to : {"", " >&2"}) {
    const auto answer =
        ask_program("", {script("endless", fmt::format("while :; do echo {}{}; done", std::string(60'000, 'x'), to))});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().message, fmt::format("`{}` writes more than 16777216 bytes", temp_ / "endless"));
  }
}

TEST_F(AskProgram, KillsProgramThatDoesNotEnd) {
  const auto answer = ask_program("", {script("late", "exec sleep 60")}, {}, 200);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message, fmt::format("`{}` gives no answer", temp_ / "late"));
}

TEST_F(AskProgram, DoesNotWaitForProcessLeftBehind) {
  const auto answer = ask_program("", {script("leaves", "sleep 20 & echo done")}, {}, 10'000);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->text, "done\n");
}

TEST_F(AskProgram, NamesProgramThatIsMissing) {
  const auto answer = ask_program("", {temp_ / "missing"});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message,
            fmt::format("cannot execute `{0}`: open `{0}`: No such file or directory", temp_ / "missing"));
}

// As chroot(2) resolves a path: links and ".." do not leave the root.
TEST_F(AskProgram, StaysBelowRoot) {
  const std::string root = temp_ / "root";
  test_support::write_file(root + "/usr/bin/engine", "inside");
  std::filesystem::create_symlink("usr/bin", root + "/bin");
  std::filesystem::create_symlink("/usr/bin/engine", root + "/absolute");
  std::filesystem::create_symlink("../../../usr/bin/engine", root + "/usr/above");
  for (const char* path : {"/usr/bin/engine", "/bin/engine", "/absolute", "/usr/above", "/../usr/../bin/engine"}) {
    const auto program = open_program(path, root);
    ASSERT_TRUE(program) << path << ": " << program.error().message;
    EXPECT_EQ(std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", program->get())),
              std::filesystem::canonical(root + "/usr/bin/engine"))
        << path;
  }
  ASSERT_EQ(::chmod(root.c_str(), 0777), 0);
  const auto refused = open_program("/bin/engine", root);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "others than root may change `/`");
}

}  // namespace
}  // namespace hook
