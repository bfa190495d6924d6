// One event as one line for programs, in logfmt: `granted container=web-1 hcas=mlx5_0,mlx5_1 total_us=2310`. Whatever
// a value is, the line is printable ASCII and splits at its blanks and quotes as it was meant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hook {

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
