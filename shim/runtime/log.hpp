// The log of rdma-runtime: syslog, and the file of --log in the format of --log-format, which the engine reads.
// containerd and Podman show the last line of level "error" of a JSON log. One line that is not JSON hides all other
// lines.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "base/result.hpp"
#include "shim/runtime/invocation.hpp"

namespace shim {

// Returns one line with its line break: JSON {"level":"error","msg":"...","time":"2026-01-02T03:04:05Z"}, or the same
// fields in runc's text format. level: "error" or "warning". Replaces unprintable characters by '?' and keeps at most
// 2,000 bytes of the message, so that one write(2) is enough.
std::string log_line(std::string_view level, std::string_view message, std::time_t time, bool json);

// Returns the file that --log names; empty: --log is missing, or is crun's "syslog:" or "journald:".
std::string log_file(const std::string& log, Dialect dialect);

class RuntimeLog {
 public:
  explicit RuntimeLog(const Invocation& invocation);

  // Writes to syslog, to the file of --log and to stderr, because CRI-O shows stderr.
  void error(const Error& error) const;
  // Writes to syslog and to the file of --log. Without such a file, writes to stderr only if it is a terminal: CRI-O
  // passes no --log, and stderr is then the container's log, which must not contain warnings about the node.
  void warning(std::string_view message) const;
  base::Log syslog() const;

 private:
  bool append(std::string_view level, std::string_view message) const;
  std::string file_;
  bool json_ = false;
  std::string container_;
};

}  // namespace shim
