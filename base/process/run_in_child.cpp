#include "base/process/run_in_child.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/json/error.hpp"
#include "base/process/helper.hpp"

namespace base {
namespace {

// The report of the child, sent as one message together with the descriptors that are `present`. If the function
// failed, a second message has its error.
struct Report {
  bool failed = false;
  bool present[kChildFiles] = {};
};
using Rights = std::array<char, CMSG_SPACE(kChildFiles * sizeof(int))>;

constexpr std::size_t kLongestText = 1999;
constexpr std::size_t kLongestError = 16 * kLongestText;  // JSON writes a character as at most six, such as \u0001

// The report is not const, because msghdr has no const pointers.
bool send_report(int channel, Report& report, const ChildFiles& files) {
  std::array<int, kChildFiles> fds{};
  std::size_t count = 0;
  for (std::size_t place = 0; place < kChildFiles; ++place) {
    report.present[place] = files[place].ok();
    if (files[place].ok()) fds[count++] = files[place].get();
  }
  iovec text{&report, sizeof report};
  alignas(cmsghdr) Rights rights{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = rights.data();
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), count * sizeof(int));
  }
  return sendmsg(channel, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof report);
}

// Returns false if the child ended without a report, or if this process could not receive all descriptors
// (RLIMIT_NOFILE).
bool receive_report(int channel, Report& report, ChildFiles& files) {
  iovec text{&report, sizeof report};
  alignas(cmsghdr) Rights rights{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = rights.data();
  message.msg_controllen = rights.size();
  ssize_t count = 0;
  do {
    count = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  std::array<int, kChildFiles> fds{};
  std::size_t arrived = 0;
  const cmsghdr* header = count < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    arrived = std::min<std::size_t>((header->cmsg_len - CMSG_LEN(0)) / sizeof(int), kChildFiles);
    std::memcpy(fds.data(), CMSG_DATA(header), arrived * sizeof(int));
  }
  std::size_t used = 0;
  for (std::size_t place = 0; place < kChildFiles && used < arrived; ++place)
    if (report.present[place]) files[place].reset(fds[used++]);
  const auto expected = static_cast<std::size_t>(std::count(report.present, report.present + kChildFiles, true));
  return count == static_cast<ssize_t>(sizeof report) && arrived == expected;
}

bool send_error(int channel, Error error) {
  for (std::string* text : {&error.message, &error.hint})
    text->resize(std::min(text->size(), kLongestText));
  const std::string text = error_text(error);
  return send(channel, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

std::optional<Error> receive_error(int channel) {
  std::string text(kLongestError, '\0');
  const ssize_t count = TEMP_FAILURE_RETRY(recv(channel, text.data(), text.size(), 0));
  return parse_error(std::string_view(text).substr(0, static_cast<std::size_t>(std::max<ssize_t>(count, 0))));
}

[[noreturn]] void be_the_child(int channel, const std::function<Result<void>(ChildFiles&)>& function) {
  Report report;
  ChildFiles files;
  auto done = function(files);
  if (!done) {
    report.failed = true;
    files = {};
  }
  _exit(send_report(channel, report, files) && (done || send_error(channel, std::move(done).error())) ? 0 : 1);
}

}  // namespace

Result<ChildFiles> run_in_child(std::string_view where, const std::function<Result<void>(ChildFiles&)>& function) {
  // The hook's seccomp filter allows only a pair of this type.
  const Helper helper = start_helper(
      SOCK_SEQPACKET, [&](pid_t, const UniqueFd&, const UniqueFd& theirs) { be_the_child(theirs.get(), function); });
  if (!helper.socket.ok()) return sys_error(errno, "cannot make a pair of sockets for {}", where);
  if (helper.pid < 0) return sys_error(errno, "cannot fork");
  Report report;
  ChildFiles files;
  const bool reported = receive_report(helper.socket.get(), report, files);
  auto failed = reported && report.failed ? receive_error(helper.socket.get()) : std::nullopt;
  int status = 0;
  while (waitpid(helper.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (failed) return *std::move(failed);
  if (!reported || report.failed) {
    const bool killed = WIFSIGNALED(status);
    return make_error("cannot work in {}: the child process ended with {} {}", where, killed ? "signal" : "exit status",
                      killed ? WTERMSIG(status) : WEXITSTATUS(status));
  }
  return files;
}

}  // namespace base
