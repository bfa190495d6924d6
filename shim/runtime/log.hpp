// What rdma-runtime says goes to syslog, and where the engine reads what its runtime says: the file of --log, in the
// format of --log-format. containerd and Podman show the last line of level "error" of a JSON log, and one line that is
// no JSON hides all others.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "hook/base/log.hpp"
#include "shim/result.hpp"
#include "shim/runtime/invocation.hpp"

namespace shim {

// {"level":"error","msg":"...","time":"2026-01-02T03:04:05Z"}, or the same as runc's text. Ends with the end of the
// line. level: "error" or "warning". What is not printable becomes '?'; at most 2,000 bytes of the message are kept, so
// that one write(2) does it.
std::string log_line(std::string_view level, std::string_view message, std::time_t time, bool json);

// The file that --log names; empty: stderr, and crun's "syslog:" and "journald:".
std::string log_file(const std::string& log, Dialect dialect);

class RuntimeLog {
 public:
  RuntimeLog(const Invocation& invocation, Dialect dialect);

  // To the file, and to stderr: CRI-O shows that one.
  void error(const Error& error) const;
  // To the file. Without one, as by CRI-O, stderr is the log of the container, which is no place for the node's words:
  // a terminal alone has them.
  void warning(std::string_view message) const;

 private:
  bool append(std::string_view level, std::string_view message) const;
  hook::Log syslog() const;
  std::string file_;
  bool json_ = false;
  std::string container_;
};

}  // namespace shim
