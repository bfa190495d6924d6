#include "hook/oci/state.hpp"

#include <algorithm>
#include <climits>

#include "base/json/json.hpp"
#include "base/json/tree.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

constexpr std::size_t kMaxState = std::size_t{1} << 20;
constexpr std::size_t kMaxId = 1024;
constexpr std::int64_t kMaxPid = 4194304;  // PID_MAX_LIMIT of include/linux/threads.h

// Returns an empty text for a missing member: runtimes write different members at each stage.
Result<std::string> string_member(const Json& state, const char* name) {
  const auto found = state.find(name);
  if (found == state.end()) return std::string();
  const auto* text = found->get_ptr<const std::string*>();
  if (!text) return make_error("cannot read the container's state: `{}` is not a string", name);
  return *text;
}

bool is_odd_id(std::string_view id) {
  const auto odd = [](char c) { return c <= ' ' || c >= 0x7f || c == '/'; };
  return id.empty() || id.size() > kMaxId || id == "." || id == ".." || std::ranges::any_of(id, odd);
}

Result<pid_t> parse_pid(const Json& state, std::string_view status) {
  const auto found = state.find("pid");
  if (found == state.end()) return pid_t{0};
  if (!found->is_number_integer()) return make_error("cannot read the container's state: `pid` is not an integer");
  const bool huge = found->is_number_unsigned() && found->get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxPid);
  const std::int64_t pid = huge ? -1 : found->get<std::int64_t>();
  // Without a process crun writes 0, and gVisor's runsc -1. 1 is the pid inside a container, and on the node it is the
  // node's init.
  if (pid < 0 && !huge && status == "stopped") return pid_t{0};
  if (pid < 0 || pid == 1) return make_error("cannot read the container's state: `pid` is out of range");
  return static_cast<pid_t>(pid);
}

Result<void> check_bundle(const std::string& bundle) {
  if (bundle.empty()) return {};
  const std::string shown = base::printable(bundle.substr(0, 256));
  if (bundle.front() != '/') return make_error("cannot use bundle `{}`: it is not absolute", shown);
  if (bundle.size() >= PATH_MAX) return make_error("cannot use bundle `{}...`: it is too long", shown);
  // A system call would end the path at a NUL, but the checks below would not.
  if (bundle.find('\0') != std::string::npos) return make_error("cannot use bundle `{}`: it has a NUL byte", shown);
  for (const auto part : base::split(bundle, '/'))
    if (part == "..") return make_error("cannot use bundle `{}`: it has a `..` component", shown);
  return {};
}

}  // namespace

Result<OciState> parse_oci_state(std::string_view text) {
  if (text.size() > kMaxState) return make_error("cannot read the container's state: it is over {} bytes", kMaxState);
  const Json state = TRY(parse_json(text, "the container's state", {.bytes = kMaxState}));
  if (!state.is_object()) return make_error("cannot read the container's state: it is not an object");
  OciState result;
  result.id = TRY(string_member(state, "id"));
  if (is_odd_id(result.id))
    return make_error("cannot read the container's state: `id` is not 1 to {} printable bytes without `/`", kMaxId);
  result.status = TRY(string_member(state, "status"));
  result.pid = TRY(parse_pid(state, result.status));
  result.bundle = TRY(string_member(state, "bundle"));
  TRY_VOID(check_bundle(result.bundle));
  result.from_crun = state.contains("root");
  return result;
}

Result<std::string> read_state_text(int fd, int timeout_ms) {
  // A runtime writes the whole state at once: the read that would find the end of the file is saved.
  const auto is_whole = [](std::string_view text) { return text.ends_with('}') && try_parse_tree(text).has_value(); };
  return read_text_fd(fd, kMaxState, timeout_ms, "the container's state on stdin", is_whole);
}

}  // namespace hook
