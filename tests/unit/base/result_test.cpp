// Result, TRY, UniqueFd and the command line, which all programs use.
#include "base/result.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/options.hpp"
#include "base/unique_fd.hpp"
#include "support/arguments.hpp"

namespace {

using namespace fabric;

Result<int> half(int number) {
  if (number % 2 != 0) return base::make_error("halve {}: odd", number);
  return number / 2;
}

Result<int> quarter(int number) {
  const int once = TRY(half(number));
  return half(once);
}

Result<void> check_even(int number) {
  TRY_VOID(quarter(number));
  return {};
}

TEST(Result, HasTheValueOrTheError) {
  EXPECT_EQ(*half(4), 2);
  const auto bad = half(3);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message, "halve 3: odd");
  EXPECT_EQ(bad.error().code, 0);
}

TEST(Result, TryReturnsTheFirstError) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message, "halve 3: odd");
  EXPECT_TRUE(check_even(8));
  EXPECT_EQ(check_even(5).error().message, "halve 5: odd");
}

TEST(Result, TryMovesMoveOnlyValues) {
  const auto make = [] { return Result<std::unique_ptr<int>>(std::make_unique<int>(5)); };
  const auto use = [&]() -> Result<int> { return *TRY(make()); };
  EXPECT_EQ(*use(), 5);
}

TEST(Result, SysErrorHasCauseAndCode) {
  const Error error = base::sys_error(ENOENT, "open `{}`", "/x");
  EXPECT_EQ(error.message, "open `/x`: No such file or directory");
  EXPECT_EQ(error.code, ENOENT);
  const Error outer = base::wrap(error, "container `abc`");
  EXPECT_EQ(outer.message, "container `abc`: open `/x`: No such file or directory");
  EXPECT_EQ(outer.code, ENOENT);
}

int open_null() {
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) != -1;
}

TEST(UniqueFd, ClosesInItsDestructor) {
  EXPECT_EQ(UniqueFd().get(), -1);
  EXPECT_FALSE(UniqueFd().ok());
  int number = -1;
  {
    const UniqueFd fd(open_null());
    number = fd.get();
    ASSERT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, DoesNotCloseAReleasedDescriptor) {
  UniqueFd zero(0);
  EXPECT_TRUE(zero.ok()) << "zero is a valid descriptor";
  EXPECT_EQ(zero.release(), 0);
  UniqueFd fd(open_null());
  const int number = fd.release();
  EXPECT_FALSE(fd.ok());
  fd.reset();
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(UniqueFd, ResetClosesTheOldDescriptorAndKeepsErrno) {
  UniqueFd fd(open_null());
  const int old = fd.get();
  const int fresh = open_null();
  fd.reset(fresh);
  EXPECT_FALSE(is_open(old));
  EXPECT_EQ(fd.get(), fresh);
  ::close(fresh);  // so that the second close fails with EBADF
  errno = ENODEV;
  fd.reset();
  EXPECT_EQ(errno, ENODEV);
}

TEST(UniqueFd, MoveEmptiesTheSourceAndClosesTheTargetsDescriptor) {
  UniqueFd first(open_null());
  const int moved = first.get();
  UniqueFd source(std::move(first));
  EXPECT_FALSE(first.ok());  // a moved-from UniqueFd is empty
  EXPECT_EQ(source.get(), moved);
  EXPECT_TRUE(is_open(moved));
  UniqueFd target(open_null());
  const int old = target.get();
  const int number = source.get();
  target = std::move(source);
  EXPECT_FALSE(is_open(old));
  EXPECT_EQ(target.get(), number);
  UniqueFd& same = target;
  target = std::move(same);
  EXPECT_EQ(target.get(), number) << "moving to itself changes nothing";
  EXPECT_TRUE(is_open(number));
}

TEST(RemedyOf, NamesTheLimitOfOpenFiles) {
  const auto remedy = [](int code, const char* hint) {
    base::Error error = base::sys_error(code, "open `/x`");
    error.hint = hint;
    return base::remedy_of(error);
  };
  EXPECT_NE(remedy(EMFILE, "").find("LimitNOFILE="), std::string::npos);
  EXPECT_EQ(remedy(ENFILE, "make its directory"), "raise the node's limit of open files: sysctl fs.file-max");
  EXPECT_EQ(remedy(ENOENT, "make its directory"), "make its directory");
  EXPECT_EQ(remedy(EIO, ""), "");
  EXPECT_EQ(base::remedy_of({"rename: the name is taken", ENFILE, "take another name"}), "take another name");
}

struct Settings {
  std::string file;
  bool quick = false;
};

base::Result<void> set_file(Settings& settings, std::string_view value) {
  if (value.empty()) return base::make_error("--file: no name");
  settings.file = value;
  return {};
}

base::Result<void> set_quick(Settings& settings, std::string_view value) {
  settings.quick = value == "1";
  return {};
}

constexpr base::Option<Settings> kRows[] = {{"file", "FILE", "a file that is read", set_file, "read write"},
                                            {"quick", "", "sooner", set_quick}};
constexpr std::span<const base::Option<Settings>> kTable(kRows);

// The settings after one option, or the error.
std::string applied(std::vector<std::string> arguments) {
  Settings settings;
  std::size_t at = 0;
  const auto done = base::apply_option(kTable, test_support::pointers_to(arguments), at, settings);
  return done ? fmt::format("{} {} {}", settings.file, settings.quick, at) : done.error().message;
}

TEST(CommandLine, AppliesAnOptionOrReportsTheError) {
  EXPECT_EQ(applied({"--file", "a"}), "a false 1");
  EXPECT_EQ(applied({"--file=a=b", "c"}), "a=b false 0");
  EXPECT_EQ(applied({"--file", "--quick"}), "--quick false 1");
  EXPECT_EQ(applied({"--quick", "c"}), " true 0");
  EXPECT_EQ(applied({"--file"}), "`--file` needs a value: FILE");
  EXPECT_EQ(applied({"--file="}), "--file: no name");
  EXPECT_EQ(applied({"--quick=0"}), "`--quick` takes no value");
  EXPECT_EQ(applied({"--token=secret"}), "unknown option `--token`");
  EXPECT_EQ(applied({"--quik=1"}), "unknown option `--quik` (did you mean `--quick`?)");
  EXPECT_EQ(applied({"--\x1b[2J"}), "unknown option `--?[2J`");
  EXPECT_EQ(applied({"--"}), "unknown option `--`");
  EXPECT_EQ(applied({"file"}), "unexpected argument `file`");
}

TEST(CommandLine, HelpListsTheOptionsOfACommand) {
  EXPECT_EQ(base::option_help(kTable), "  --file FILE  a file that is read\n  --quick      sooner\n");
  EXPECT_EQ(base::option_help(kTable, "write"), base::option_help(kTable));
  EXPECT_EQ(base::option_help(kTable, "delete"), "  --quick      sooner\n");
}

TEST(CommandLine, WrapsAtEightyColumns) {
  const std::string a(30, 'a');
  EXPECT_EQ(base::help_lines("  x", a + " " + a + " " + a, 19),
            "  x                " + a + " " + a + "\n" + std::string(19, ' ') + a + "\n");
  EXPECT_EQ(base::help_lines("  too-long-for-it", "b c", 6), "  too-long-for-it\n      b c\n");
  EXPECT_EQ(base::wrapped("a b"), "a b\n");
  const std::string longest(100, 'b');
  EXPECT_EQ(base::wrapped("a " + longest + " c"), "a\n" + longest + "\nc\n");
}

}  // namespace
