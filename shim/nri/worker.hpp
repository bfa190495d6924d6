// A child process of the plugin for work that may take long or crash. The plugin kills it at a deadline, so the runtime
// always gets an answer in time. A runtime ignores a late answer and starts the container without HCAs. The process
// stays for later requests, because a fork for each request would take longer than most requests.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/frame_socket.hpp"
#include "base/result.hpp"

namespace shim {

class Worker {
 public:
  using Clock = std::chrono::steady_clock;
  struct Answer {
    Result<std::string> result;
    std::function<void()> afterwards = {};  // runs after a successful answer was sent, or before an error is sent
  };
  using Serve = std::function<Answer(std::string_view request)>;
  // Called once in the new process, after base::isolate(). Returns the function that serves each request.
  using Begin = std::function<Result<Serve>()>;

  explicit Worker(Begin begin) : begin_(std::move(begin)) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // Ends the process. Waits a short time for its work after the last answer, then kills it.
  ~Worker();

  // Starts the process, if there is none, with a copy of the plugin's memory. If this is done early, the first request
  // does not wait for the start. Errors: fork(2) or socketpair(2) fails.
  Result<void> start();
  // Sends a request of at most 16 MiB. Returns the answer of at most 4 MiB, or the worker's error. Kills the process at
  // the deadline: the work must be safe to interrupt at any point. After any error the next request starts a new
  // process. Errors: ETIMEDOUT; the process ended without an answer.
  Result<std::string> ask(std::string_view request, Clock::time_point deadline);
  // Kills the process. The next request starts a new one.
  void retire();

 private:
  [[noreturn]] void be_worker(int socket) const;
  void reap();

  Begin begin_;
  pid_t pid_ = 0;  // 0: no process
  base::FrameSocket socket_;
  // Processes that were killed but still exist: a kill has no effect while a process waits for an unresponsive device.
  std::vector<pid_t> ending_;
};

}  // namespace shim
