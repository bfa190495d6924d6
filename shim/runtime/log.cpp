#include "shim/runtime/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "base/utc_time.hpp"

namespace shim {
namespace {

constexpr std::size_t kLongestMessage = 2000;
// The engine shows the message as if runc had written it, so the message names its program.
const std::string kPrefix = "rdma-runtime: ";

void write_stderr(const std::string& text) {
  const std::string line = kPrefix + base::one_line(text.substr(0, kLongestMessage)) + "\n";
  // A closed stderr is not a reason to fail.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

std::string log_line(std::string_view level, std::string_view message, std::time_t time, bool json) {
  const base::Json text = base::one_line(message.substr(0, kLongestMessage));
  if (!json) return fmt::format("time=\"{}\" level={} msg={}\n", base::utc_text(time), level, text.dump());
  return base::Json{{"level", level}, {"msg", text}, {"time", base::utc_text(time)}}.dump() + "\n";
}

std::string log_file(const std::string& log, Dialect dialect) {
  if (dialect == Dialect::kRunc) return log;
  if (log.starts_with("file:")) return log.substr(5);
  return log.find(':') == std::string::npos ? log : "";
}

RuntimeLog::RuntimeLog(const Invocation& invocation)
    : file_(log_file(invocation.log, invocation.dialect)), json_(invocation.json_log), container_(invocation.id) {}

void RuntimeLog::error(const Error& error) const {
  const std::string text = base::with_remedy(error);
  append("error", kPrefix + text);
  write_stderr("error: " + text);
  syslog().error(error);
}

void RuntimeLog::warning(std::string_view message) const {
  const bool shown = append("warning", kPrefix + std::string(message));
  if (!shown && ::isatty(STDERR_FILENO) == 1) write_stderr("warning: " + std::string(message));
  syslog().warning(message);
}

// Syslog is opened for each message, because messages are rare and most calls write none.
base::Log RuntimeLog::syslog() const {
  base::Log log = base::Log::to_syslog("rdma-runtime");
  log.set_container(container_);
  return log;
}

bool RuntimeLog::append(std::string_view level, std::string_view message) const {
  if (file_.empty()) return false;
  // O_NONBLOCK is set, because a FIFO without a reader must not block the start of the container. 0644 is the mode that
  // runc uses.
  const base::UniqueFd fd(
      ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644));
  if (!fd.ok()) return false;
  // Each line is one write(2), so that O_APPEND keeps lines of rdma-runtime and the runtime apart.
  const std::string line = log_line(level, message, std::time(nullptr), json_);
  return ::write(fd.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

}  // namespace shim
