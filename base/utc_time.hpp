// Times as text.
#pragma once

#include <ctime>
#include <string>

namespace base {

// Returns "2026-11-30T09:05:00Z" (RFC 3339) for seconds since 1970; "?" for a year that time_t has and struct tm has
// not.
inline std::string utc_text(std::time_t time) {
  std::tm parts{};
  char text[32];
  if (!::gmtime_r(&time, &parts) || std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) return "?";
  return text;
}

}  // namespace base
