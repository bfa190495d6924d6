// Work that may take long, or come to harm, away from the plugin: in a process beside it, for so long and no longer.
// What a runtime gets is then always an answer in time; a late one it takes for none, and starts the container with
// nothing. The process stays for the next request: a fork for each would take longer than what most of them ask for.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "shim/result.hpp"

namespace shim {

class Worker {
 public:
  using Clock = std::chrono::steady_clock;
  struct Answer {
    Result<std::string> result;
    std::function<void()> afterwards = {};  // done when the answer is out; of an error, before
  };
  using Serve = std::function<Answer(std::string_view request)>;
  // Called in the process once it is isolated (hook::isolate): what it says is called for each request.
  using Begin = std::function<Result<Serve>()>;

  explicit Worker(Begin begin) : begin_(std::move(begin)) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { retire(); }

  // Starts the process if there is none, with what this one has in memory at that moment, so that the first request
  // need not wait for it. Errors: no process can be made.
  Result<void> start();
  // Has the process serve a request of at most 16 MiB and returns its answer of at most 4 MiB, or its error (message,
  // code, hint). At the deadline the process is killed (ETIMEDOUT): the work has to be of a kind that survives that.
  // After any error the next request meets a new process. Also errors: a process that ends without an answer.
  Result<std::string> ask(std::string_view request, Clock::time_point deadline);
  // The next request meets a new process.
  void retire();

 private:
  [[noreturn]] void be_worker(pid_t parent, int socket) const;
  Result<void> send(std::string_view request, Clock::time_point deadline);
  Result<std::string> exchange(std::string_view request, Clock::time_point deadline);
  void reap();

  Begin begin_;
  pid_t pid_ = 0;  // 0: there is none
  fabric::UniqueFd socket_;
  // Killed, and not gone yet: what waits for a device that does not answer cannot be killed.
  std::vector<pid_t> ending_;
};

}  // namespace shim
