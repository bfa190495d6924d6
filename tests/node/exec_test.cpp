// The environment of the command, and failures of exec that only a process with more than the kernel's limit can reach.
// The Python tests in this folder cover the other behaviour of a started rdma-init.
#include "init/exec.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace {

std::vector<std::string> strings_of(const init::Environment& environment) {
  std::vector<std::string> result;
  for (char* const* entry = environment.envp(); *entry != nullptr; ++entry)
    result.emplace_back(*entry);
  return result;
}

using Strings = std::vector<std::string>;

// Returns null-terminated pointers to the strings, which the caller keeps.
std::vector<char*> pointers_to(Strings& strings) {
  std::vector<char*> result;
  for (std::string& string : strings)
    result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

TEST(Environment, SharesTheStringsOfTheOriginal) {
  Strings strings{"B=2", "A=1", "no equals sign", "=x", ""};
  const std::vector<char*> pointers = pointers_to(strings);
  const init::Environment environment(pointers.data());
  EXPECT_EQ(strings_of(environment), strings);
  EXPECT_EQ(*environment.envp(), pointers[0]) << "strings are shared, not copied";
}

TEST(Environment, SetReplacesEveryEntryOfTheName) {
  Strings strings{"A=1", "AB=2", "A=3", "A", "=A=4"};
  init::Environment environment(pointers_to(strings).data());
  environment.set("A", "new");
  EXPECT_EQ(strings_of(environment), (Strings{"AB=2", "A", "=A=4", "A=new"}));
  environment.set("A", "");
  EXPECT_EQ(strings_of(environment), (Strings{"AB=2", "A", "=A=4", "A="}));
}

TEST(Environment, KeepsSetVariablesWhileItGrows) {
  char* none[] = {nullptr};
  init::Environment environment(none);
  for (int i = 0; i < 1000; ++i)
    environment.set("NAME_" + std::to_string(i), std::to_string(i));
  const Strings strings = strings_of(environment);
  ASSERT_EQ(strings.size(), 1000U);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(strings[static_cast<std::size_t>(i)], "NAME_" + std::to_string(i) + "=" + std::to_string(i));
}

TEST(StandardDescriptors, AreOpenedIfClosedAndUnchangedOtherwise) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(0);
    ::close(2);
    init::guard_standard_descriptors();
    const int opened = ::open("/", O_RDONLY | O_DIRECTORY);
    const bool guarded = ::fcntl(0, F_GETFD) == FD_CLOEXEC && ::fcntl(2, F_GETFD) == FD_CLOEXEC;
    ::_exit(opened > 2 && guarded && ::fcntl(1, F_GETFD) == 0 && ::write(2, "x", 1) == -1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

struct Ended {
  int code;
  std::string message;
};

// Runs exec_command() in a child and captures its stderr.
Ended exec_in_child(Strings arguments, Strings variables) {
  const std::vector<char*> argv = pointers_to(arguments);
  const std::vector<char*> envp = pointers_to(variables);
  int ends[2];
  if (::pipe(ends) != 0) return {-1, "pipe"};
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::_exit(init::exec_command(argv.data(), envp.data()));
  }
  ::close(ends[1]);
  Ended ended{-1, {}};
  char buffer[4096];
  for (ssize_t size; (size = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    ended.message.append(buffer, static_cast<std::size_t>(size));
  ::close(ends[0]);
  int status = 0;
  if (child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

TEST(ExecCommand, SearchesThePathOfTheNewEnvironment) {
  EXPECT_EQ(exec_in_child({"true"}, {"PATH=/nowhere:/bin"}).code, 0);
  const Ended ended = exec_in_child({"true"}, {"PATH=/nowhere"});
  EXPECT_EQ(ended.code, 127);
  EXPECT_NE(ended.message.find("PATH `/nowhere`"), std::string::npos) << ended.message;
}

TEST(ExecCommand, ReportsTheSizeOfATooLargeEnvironment) {
  Strings variables{"PATH=/bin"};
  for (int i = 0; i < 100; ++i)
    variables.push_back("FILL_" + std::to_string(i) + "=" + std::string(100000, 'x'));
  const Ended ended = exec_in_child({"true"}, variables);
  EXPECT_EQ(ended.code, 126);
  EXPECT_NE(ended.message.find("environment and arguments are larger than the kernel allows (1000"), std::string::npos)
      << ended.message;
  EXPECT_EQ(ended.message.find('\n'), ended.message.size() - 1);
}

TEST(ExecCommand, ReportsATooLongString) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::string longest = "LONG=" + std::string(32 * page - 6, 'x');  // with its NUL exactly MAX_ARG_STRLEN
  EXPECT_EQ(exec_in_child({"true"}, {"PATH=/bin", longest}).code, 0);
  const Ended ended = exec_in_child({"true"}, {"PATH=/bin", longest + "x"});
  EXPECT_EQ(ended.code, 126);
  EXPECT_NE(ended.message.find("`LONG` has"), std::string::npos) << ended.message;
  EXPECT_EQ(ended.message.find("xxx"), std::string::npos) << "the value may be a secret";
  EXPECT_NE(ended.message.find(std::to_string(32 * page)), std::string::npos) << ended.message;
  const Ended by_argument = exec_in_child({"true", "--token=" + std::string(32 * page, 'x')}, {"PATH=/bin"});
  EXPECT_NE(by_argument.message.find(": argument 1 has"), std::string::npos) << by_argument.message;
  EXPECT_EQ(by_argument.message.find("token"), std::string::npos) << by_argument.message;
}

}  // namespace
