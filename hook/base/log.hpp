// What the hook says: one line per message, on stderr and to syslog, because crun and NRI throw a hook's stderr away.
// Neither waits for its reader: a line that a full pipe or socket does not take is lost there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"

namespace hook {

// What is no fault, for who looks why nothing was given. An empty text: nothing.
struct Note {
  std::string text = {};
  bool for_all = false;  // else in syslog alone, for debugging
};

class Log {
 public:
  // On stderr only.
  Log() = default;
  // Of a hook stage: with syslog's socket /dev/log, if there is one, and on a stderr that is a pipe, a socket or a
  // terminal, unless crun opened it at the path that an image names in `run.oci.hooks.stderr`, as root. No line waits
  // for room. Opened after isolate(), which closes descriptors, and before the sandbox, which lets no socket be opened.
  static Log of_stage();
  // In syslog alone, under this name: of a program whose stderr is the container's.
  static Log to_syslog(std::string_view program);
  // On stderr alone, under this name.
  static Log to_stderr(std::string_view program);

  // The container that following messages are about.
  void set_container(std::string_view id);

  void error(const Error& error) const;
  void warning(std::string_view message) const;
  void warnings(const std::vector<std::string>& messages) const;
  void info(std::string_view message) const;
  void note(const Note& note) const;

 private:
  enum class Severity { kError = 3, kWarning = 4, kInfo = 6, kDebug = 7 };  // RFC 5424, table 2
  enum class Stderr { kNone, kPolled, kOwn, kSocket };
  void write(Severity severity, std::string_view message) const;
  void say(std::string_view line) const;
  fabric::UniqueFd syslog_;
  std::string program_ = "rdma-hook";
  Stderr stderr_ = Stderr::kPolled;
  fabric::UniqueFd own_;  // of kOwn: never waits
  std::string container_;
};

// One event as one line for programs, in logfmt: `granted container=web-1 hcas=mlx5_0,mlx5_1 total_us=2310`. Whatever
// a value is, the line is printable ASCII and splits at its blanks and quotes as it was meant.

class EventLine {
 public:
  // event and keys: of [a-z_], the program's own words.
  explicit EventLine(std::string_view event) : text_(event) {}

  // As it is, or as a JSON string in quotes when it is empty or has a blank, `"`, `=`, `\` or anything but printable
  // ASCII: escapes are JSON's, "\ufffd" stands for what is no UTF-8. Of a value only the first 128 bytes, then "...".
  EventLine& add(std::string_view key, std::string_view value);
  EventLine& add(std::string_view key, std::uint64_t value);
  // Comma between them; as many as 512 bytes hold, then how many are left out: "a,b,+3". Nothing without any.
  EventLine& add(std::string_view key, const std::vector<std::string>& values);

  // A field that would make the line longer than this is left out whole, and `left_out=N` counts them at the end: what
  // the log cuts off would otherwise be the end of a quoted value.
  static constexpr std::size_t kLongest = 1750;
  std::string text() const;

 private:
  EventLine& put(std::string_view key, std::string_view value);
  std::string text_;
  unsigned left_out_ = 0;
};

}  // namespace hook
