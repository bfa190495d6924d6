// Result, TRY and UniqueFd: what every other file leans on.
#include "fabric/result.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "fabric/unique_fd.hpp"

namespace {

using fabric::Error;
using fabric::Result;
using fabric::UniqueFd;

Result<int> half(int number) {
  if (number % 2 != 0) return fabric::make_error("halve {}: odd", number);
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

TEST(Result, HoldsTheValueOrTheError) {
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

TEST(Result, TryMovesWhatCannotBeCopied) {
  const auto make = [] { return Result<std::unique_ptr<int>>(std::make_unique<int>(5)); };
  const auto use = [&]() -> Result<int> { return *TRY(make()); };
  EXPECT_EQ(*use(), 5);
}

TEST(Result, SystemErrorsNameCauseAndCode) {
  const Error error = fabric::sys_error(ENOENT, "open `{}`", "/x");
  EXPECT_EQ(error.message, "open `/x`: No such file or directory");
  EXPECT_EQ(error.code, ENOENT);
  const Error outer = fabric::wrap(error, "container `abc`");
  EXPECT_EQ(outer.message, "container `abc`: open `/x`: No such file or directory");
  EXPECT_EQ(outer.code, ENOENT);
}

int open_null() {
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) != -1;
}

TEST(UniqueFd, StartsEmpty) {
  const UniqueFd fd;
  EXPECT_EQ(fd.get(), -1);
  EXPECT_FALSE(fd.ok());
}

TEST(UniqueFd, ClosesWhenItGoes) {
  int number = -1;
  {
    const UniqueFd fd(open_null());
    number = fd.get();
    ASSERT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, ZeroIsADescriptor) {
  UniqueFd fd(0);
  EXPECT_TRUE(fd.ok());
  EXPECT_EQ(fd.release(), 0);
}

TEST(UniqueFd, ReleaseGivesUpOwnership) {
  UniqueFd fd(open_null());
  const int number = fd.release();
  EXPECT_FALSE(fd.ok());
  fd.reset();
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(UniqueFd, ResetClosesTheOldOne) {
  UniqueFd fd(open_null());
  const int old = fd.get();
  const int fresh = open_null();
  fd.reset(fresh);
  EXPECT_FALSE(is_open(old));
  EXPECT_EQ(fd.get(), fresh);
}

TEST(UniqueFd, MoveConstructionEmptiesTheSource) {
  UniqueFd source(open_null());
  const int number = source.get();
  const UniqueFd target(std::move(source));
  EXPECT_FALSE(source.ok());  // NOLINT(bugprone-use-after-move): that is the contract
  EXPECT_EQ(target.get(), number);
  EXPECT_TRUE(is_open(number));
}

TEST(UniqueFd, MoveAssignmentClosesWhatTheTargetHad) {
  UniqueFd source(open_null());
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

TEST(UniqueFd, ResetKeepsErrno) {
  UniqueFd fd(open_null());
  ::close(fd.get());  // so that the second close fails with EBADF
  errno = ENODEV;
  fd.reset();
  EXPECT_EQ(errno, ENODEV);
}

TEST(RemedyOf, NamesTheLimitOfOpenFiles) {
  const auto remedy = [](int code, const char* hint) {
    fabric::Error error = fabric::sys_error(code, "open `/x`");
    error.hint = hint;
    return fabric::remedy_of(error);
  };
  EXPECT_NE(remedy(EMFILE, "").find("LimitNOFILE="), std::string::npos);
  EXPECT_EQ(remedy(ENFILE, "make its directory"), "raise the node's limit of open files: sysctl fs.file-max");
  EXPECT_EQ(remedy(ENOENT, "make its directory"), "make its directory");
  EXPECT_EQ(remedy(EIO, ""), "");
  EXPECT_EQ(fabric::remedy_of({"rename: the name is taken", ENFILE, "take another name"}), "take another name");
}

}  // namespace
