// The hook's log: one line for each message, on stderr and to syslog, because crun and NRI discard a hook's stderr. A
// write never waits for the reader: if the pipe or socket is full, the line is lost there.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace base {

// A message that explains why a container got no HCA. It is neither error nor warning. An empty text is not logged.
struct Note {
  std::string text = {};
  bool for_all = false;  // true: to stderr and syslog, as info; false: to syslog only, as debug
};

class Log {
 public:
  // Writes to stderr only.
  Log() = default;
  // Opens the log of a hook stage: syslog's socket /dev/log, if there is one, and stderr if that is a pipe, a socket or
  // a terminal. An image can name a path in `run.oci.hooks.stderr`, which crun then opens as root; such a stderr is not
  // used. Call it after isolate(), which closes descriptors, and before the sandbox, which forbids new sockets. This
  // log and that of to_syslog() write the same warning only once, because each serves one container.
  static Log of_stage();
  // Opens syslog only; lines begin with the name of `program`. For a program whose stderr belongs to the container.
  static Log to_syslog(std::string_view program);
  // Writes to stderr only; lines begin with the name of `program`.
  static Log to_stderr(std::string_view program);

  // Sets the name of the container in later messages.
  void set_container(std::string_view id);
  // Sets the text, a constant of the program, for an error that neither syslog nor stderr takes: one line on stderr has
  // it in place of the message, because an image may have chosen the file of stderr. A stderr that was opened for
  // append, as crun opens the path of an image, gets no line. Lasts until set_container(), which proves that a runtime
  // calls.
  void set_own_text(std::string_view text);
  // Keeps later messages that are no warning or error, until write_held(): the caller does not wait for their writes.
  void hold();
  void write_held();

  void error(const Error& error) const;
  void warning(std::string_view message) const;
  void warnings(const std::vector<std::string>& messages) const;
  void info(std::string_view message) const;
  void note(const Note& note) const;

 private:
  enum class Severity { kError = 3, kWarning = 4, kInfo = 6, kDebug = 7 };  // the severities of RFC 5424, table 2
  // kPipe: a pipe about which the first message decides (open_stderr()).
  enum class Stderr { kNone, kPolled, kOwn, kSocket, kPipe };
  void write(Severity severity, std::string_view message) const;
  void put(Severity severity, const std::string& text) const;
  void write_line(std::string_view line) const;
  // Opens stderr again, or decides to write nothing to it. mode: of fstat(2).
  void open_stderr(mode_t mode) const;
  UniqueFd syslog_;
  std::string program_ = "rdma-hook";
  mutable Stderr stderr_ = Stderr::kPolled;
  mutable UniqueFd own_;  // with kOwn: stderr, opened again as nonblocking
  std::string container_;
  std::string_view own_text_;
  bool warns_once_ = false;
  mutable std::vector<std::string> warned_;  // the warnings that were written, if warns_once_ is set
  bool holds_ = false;
  mutable std::vector<std::pair<Severity, std::string>> held_;
};

// One event as one line for programs, in logfmt: `granted container=web-1 hcas=mlx5_0,mlx5_1 total_us=2310`. For any
// value, the line is printable ASCII and can be split at its blanks and quotes.

class EventLine {
 public:
  // event and keys: [a-z_], constants of the program.
  explicit EventLine(std::string_view event) : text_(event) {}

  // Adds a value as it is, or as a quoted JSON string if it is empty or has a blank, `"`, `=`, `\` or a character that
  // is not printable ASCII. Escapes are JSON's; "\ufffd" replaces invalid UTF-8. A longer value is cut to 128 bytes and
  // "...".
  EventLine& add(std::string_view key, std::string_view value);
  EventLine& add(std::string_view key, std::uint64_t value);
  // Adds a list, separated by commas. After 512 bytes, the number of the remaining values replaces these values:
  // "a,b,+3". Adds no field for an empty list.
  EventLine& add(std::string_view key, const std::vector<std::string>& values);

  // Longest line, in bytes. A field that would exceed it is left out, and `left_out=N` at the end counts such fields. A
  // longer line could be cut by the log inside a quoted value.
  static constexpr std::size_t kLongest = 1750;
  std::string text() const;

 private:
  EventLine& put(std::string_view key, std::string_view value);
  std::string text_;
  unsigned left_out_ = 0;
};

}  // namespace base
