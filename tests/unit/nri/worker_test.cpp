// Work in another process, which may be slow, or die.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "fabric/text.hpp"
#include "shim/nri/worker.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace shim {
namespace {

using namespace std::chrono_literals;
using fabric::Error;
using fabric::Result;
using Clock = Worker::Clock;

// Serves `pid` and what else the test has it do.
Worker::Begin does(std::function<Worker::Answer(std::string_view)> work) {
  return [work = std::move(work)]() -> Result<Worker::Serve> {
    return Worker::Serve([work](std::string_view request) -> Worker::Answer {
      if (request == "pid") return {fmt::format("{}", ::getpid())};
      return work(request);
    });
  };
}

Result<std::string> ask(Worker& worker, std::string_view request) {
  return worker.ask(request, Clock::now() + 30s);
}

pid_t pid_of(Worker& worker) {
  const auto text = ask(worker, "pid");
  return text ? fabric::parse_number<pid_t>(*text).value_or(0) : 0;
}

TEST(Worker, AnswersOneRequestAfterTheOther) {
  Worker worker(does([](std::string_view request) { return Worker::Answer{std::string(request)}; }));
  const std::string large(1'000'000, 'x');
  for (const std::string& request : {std::string("done"), std::string(), large}) {
    const auto answer = ask(worker, request);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(*answer, request);
  }
  const pid_t pid = pid_of(worker);
  EXPECT_NE(pid, ::getpid());
  EXPECT_EQ(pid_of(worker), pid);
  worker.retire();
  EXPECT_EQ(::kill(pid, 0), -1) << "it is still there";
  EXPECT_NE(pid_of(worker), pid);
}

TEST(Worker, AnErrorComesWholeAndEndsIt) {
  const test_support::TempDir work;
  const std::string counted = work / "counted";
  Worker worker(does([&](std::string_view) -> Worker::Answer {
    return {Error{"no \xff HCA", EBUSY, "wait"}, [&] { test_support::write_file(counted, "1"); }};
  }));
  const pid_t pid = pid_of(worker);
  const auto failed = ask(worker, "fail");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "no \xEF\xBF\xBD HCA");
  EXPECT_EQ(failed.error().code, EBUSY);
  EXPECT_EQ(failed.error().hint, "wait");
  EXPECT_EQ(test_support::read_file(counted), "1");
  EXPECT_EQ(::kill(pid, 0), -1) << "what it had half done would be a living process' work";
  EXPECT_NE(pid_of(worker), pid);
}

TEST(Worker, WhatComesAfterwardsDoesNotKeepTheAnswer) {
  const auto began = Clock::now();
  Worker worker(does([](std::string_view) -> Worker::Answer { return {std::string("done"), [] { ::pause(); }}; }));
  EXPECT_EQ(*ask(worker, "now"), "done");
  EXPECT_LT(Clock::now() - began, 30s);
}

TEST(Worker, HasNothingOfOurs) {
  const int fd = ::open("/dev/null", O_RDONLY);
  ASSERT_GE(fd, 0);
  Worker worker(
      does([&](std::string_view) { return Worker::Answer{std::string(::fcntl(fd, F_GETFD) < 0 ? "no" : "yes")}; }));
  const auto has = ask(worker, "it");
  ::close(fd);
  EXPECT_EQ(*has, "no") << "a runtime's socket in it would outlive the plugin";
}

TEST(Worker, IsKilledAtTheDeadline) {
  Worker worker(does([](std::string_view) -> Worker::Answer {
    for (;;)
      ::pause();
  }));
  const pid_t pid = pid_of(worker);
  const auto began = Clock::now();
  const auto late = worker.ask("wait", began + 50ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ETIMEDOUT);
  EXPECT_GE(Clock::now() - began, 50ms);
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_NE(pid_of(worker), 0);
}

TEST(Worker, ADeathIsAnError) {
  Worker worker(does([](std::string_view request) -> Worker::Answer {
    if (request == "throw") throw std::bad_alloc();
    ::kill(::getpid(), SIGKILL);
    return {std::string()};
  }));
  const auto killed = ask(worker, "die");
  ASSERT_FALSE(killed);
  EXPECT_EQ(killed.error().message, "the worker of rdma-nri ended without an answer");
  const auto thrown = ask(worker, "throw");
  ASSERT_FALSE(thrown);
  EXPECT_EQ(thrown.error().message, "std::bad_alloc");
}

TEST(Worker, OneThatWasKilledBetweenRequestsIsReplaced) {
  Worker worker(does([](std::string_view) { return Worker::Answer{std::string("done")}; }));
  const pid_t pid = pid_of(worker);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  const auto answer = ask(worker, "go on");
  // It may have died while it was being asked.
  if (answer) {
    EXPECT_EQ(*answer, "done");
  } else {
    EXPECT_EQ(answer.error().code, EIO);
  }
  EXPECT_EQ(*ask(worker, "go on"), "done");
}

TEST(Worker, OneThatCannotBeginSaysWhy) {
  Worker worker([]() -> Result<Worker::Serve> { return Error{"no filter", EINVAL}; });
  const auto answer = ask(worker, "it");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message, "no filter");
}

}  // namespace
}  // namespace shim
