#include "unit/shim/nri/peer.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>

namespace shim_peer {
namespace {

constexpr std::chrono::seconds kPatience{30};

std::uint32_t to_u32(std::string_view bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i)
    value = value * 256 + static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
  return value;
}

std::string varint(std::uint64_t value) {
  std::string out;
  while (value > 127) {
    out += static_cast<char>(value % 128 + 128);
    value /= 128;
  }
  return out + static_cast<char>(value);
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value += std::uint64_t{byte & 127U} << shift;
    if (byte < 128) break;
  }
  return value;
}

}  // namespace

std::string u32(std::uint32_t value) {
  std::string out(4, '\0');
  for (std::size_t i = 4; i-- > 0; value /= 256)
    out[i] = static_cast<char>(value % 256);
  return out;
}

std::string frame(std::uint32_t connection, std::string_view payload) {
  return u32(connection) + u32(static_cast<std::uint32_t>(payload.size())) + std::string(payload);
}

std::string message(std::uint32_t connection, std::uint32_t stream, int type, std::string_view data, int flags) {
  std::string bytes = u32(static_cast<std::uint32_t>(data.size())) + u32(stream);
  bytes += static_cast<char>(type);
  bytes += static_cast<char>(flags);
  return frame(connection, bytes + std::string(data));
}

std::string number(unsigned field, std::uint64_t value) {
  return varint(std::uint64_t{field} * 8) + varint(value);
}

std::string text(unsigned field, std::string_view bytes) {
  return varint(std::uint64_t{field} * 8 + 2) + varint(bytes.size()) + std::string(bytes);
}

std::string entry(unsigned field, std::string_view key, std::string_view value) {
  return text(field, text(1, key) + text(2, value));
}

std::string request(std::string_view method, std::string_view payload, std::string_view service) {
  return text(1, service) + text(2, method) + text(3, payload) + number(4, 1'999'000'000) +
         entry(5, "traceparent", "00-1-2-01");
}

std::map<unsigned, std::string> fields(std::string_view data) {
  std::map<unsigned, std::string> found;
  while (!data.empty()) {
    const std::uint64_t tag = take_varint(data);
    const std::uint64_t value = take_varint(data);
    if (tag % 8 == 2) {
      found[static_cast<unsigned>(tag / 8)] = data.substr(0, value);
      data.remove_prefix(value);
    } else {
      found[static_cast<unsigned>(tag / 8)] = std::to_string(value);
    }
  }
  return found;
}

std::string answer(std::string_view response) {
  auto parts = fields(response);
  if (!parts.contains(1)) return parts[2];
  auto status = fields(parts[1]);
  return "status " + status[1] + ": " + status[2];
}

Peer::Peer() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  plugin_.reset(ends[0]);
  runtime_.reset(ends[1]);
}

void Peer::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::send(runtime_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::vector<Message> Peer::received() {
  while (read_some(std::chrono::milliseconds(0))) {
  }
  std::vector<Message> messages;
  while (auto message = take_message())
    messages.push_back(*std::move(message));
  return messages;
}

std::optional<Message> Peer::wait() {
  for (;;) {
    if (auto message = take_message()) return message;
    if (!read_some(kPatience)) return std::nullopt;
  }
}

bool Peer::read_some(std::chrono::milliseconds patience) {
  pollfd watched{runtime_.get(), POLLIN, 0};
  if (::poll(&watched, 1, static_cast<int>(patience.count())) <= 0) return false;
  std::string chunk(std::size_t{1} << 16, '\0');
  const ssize_t count = ::recv(runtime_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (count <= 0) return false;
  input_.append(chunk, 0, static_cast<std::size_t>(count));
  return true;
}

std::optional<Message> Peer::take_message() {
  while (input_.size() >= 8 && input_.size() >= 8 + to_u32(std::string_view(input_).substr(4))) {
    const std::size_t length = to_u32(std::string_view(input_).substr(4));
    streams_[to_u32(input_)].append(input_, 8, length);
    input_.erase(0, 8 + length);
  }
  for (auto& [connection, bytes] : streams_) {
    if (bytes.size() < 10 || bytes.size() < 10 + to_u32(bytes)) continue;
    const std::size_t length = to_u32(bytes);
    Message message{connection, to_u32(std::string_view(bytes).substr(4)), bytes[8], bytes.substr(10, length)};
    bytes.erase(0, 10 + length);
    return message;
  }
  return std::nullopt;
}

namespace {

// LinuxResources{1 memory{1 limit{1}}}: unknown to the plugin.
std::string resources() {
  return text(1, text(1, text(1, number(1, 1 << 30))));
}

std::string device() {
  return text(1, "/dev/infiniband/uverbs0") + text(2, "c") + number(3, 231) + number(4, 192) +
         text(5, number(1, 0666)) + text(6, "");
}

// LinuxDeviceCgroup{1 allow, 2 type, 3 major{1}, 5 access}
std::string device_rule() {
  return number(1, 1) + text(2, "c") + text(3, number(1, 231)) + text(5, "rwm");
}

}  // namespace

std::string pod_message(std::string_view id) {
  const std::string part = text(1, resources()) + text(3, "/kubepods") + text(4, "/kubepods/pause") +
                           text(5, text(1, "network") + text(2, "/run/netns/cni-1")) + text(5, text(1, "ipc")) +
                           text(6, resources());
  return text(1, id) + text(2, "trainer-0") + text(3, "uid-1") + text(4, "team-a") + entry(5, "app", "train") +
         entry(6, "rdma-init.io/devices", "old") + entry(6, "rdma-init.io/devices", "all") + entry(6, "empty", "") +
         text(7, "runc") + text(8, part) + number(9, 4711) + text(10, "10.0.0.1") + number(99, 7);
}

std::string container_message(std::string_view id) {
  const std::string mount = text(1, "/data") + text(2, "bind") + text(3, "/srv") + text(4, "rbind") + text(4, "ro");
  const std::string part = text(1, text(1, "pid")) + text(2, device()) + text(3, resources() + text(7, device_rule())) +
                           text(4, number(1, 999)) + text(5, "/kubepods/c") + entry(9, "net.ipv4.x", "1") +
                           text(10, text(1, "rail0") + text(2, text(1, "net1")));
  return text(1, id) + text(2, "pod") + text(3, "main") + number(4, 1) + entry(5, "l", "v") + entry(6, "k", "v") +
         text(7, "python") + text(8, "PATH=/bin") + text(8, "RDMA_A=1") + text(8, "RDMA_B=") + text(9, mount) +
         text(10, text(1, text(1, "/hook"))) + text(11, part) + number(12, 4712) +
         text(13, text(1, "RLIMIT_MEMLOCK") + number(2, UINT64_MAX) + number(3, 65536)) +
         text(13, text(1, "RLIMIT_NOFILE") + number(2, 9) + number(3, 8)) + number(14, 1) + text(18, "reason") +
         text(20, text(1, "vendor.com/net=0")) + text(21, number(1, 1000)) + text(22, text(1, "image"));
}

std::string create_message() {
  return text(1, pod_message("pod")) + text(2, container_message("c"));
}

shim::NriPod pod_value(std::string_view id) {
  return {.id = std::string(id),
          .name = "trainer-0",
          .uid = "uid-1",
          .pod_namespace = "team-a",
          .annotations = {{"rdma-init.io/devices", "all"}, {"empty", ""}},
          .namespaces = {{"network", "/run/netns/cni-1"}, {"ipc", ""}}};
}

shim::NriContainer container_value(std::string_view id) {
  return {.id = std::string(id),
          .pod_id = "pod",
          .name = "main",
          .annotations = {{"k", "v"}},
          .env = {"RDMA_A=1", "RDMA_B="},
          .mounts = {{"/data", true}},
          .devices = {{"/dev/infiniband/uverbs0", 'c', 231, 192}},
          .device_rules = {{"c", true, false, true, "rwm"}},
          .memlock = hook::Rlimit{65536, UINT64_MAX},
          .namespaces = {{"pid", ""}},
          .pid = 4712,
          .cdi_devices = {"vendor.com/net=0"},
          .net_devices = {"rail0"}};
}

Result<std::vector<shim::Event>> Recorder::configure(const shim::RuntimeInfo& info) {
  runtime = info;
  calls.emplace_back("configure");
  if (failure) return *std::exchange(failure, std::nullopt);
  return wanted;
}

Result<std::string> Recorder::answer(shim::NriRequest request) {
  using enum shim::Event;
  static const std::map<shim::Event, std::string> kVerbs = {{kRunPodSandbox, "run"},
                                                            {kStopPodSandbox, "stop"},
                                                            {kRemovePodSandbox, "remove"},
                                                            {kCreateContainer, "create"},
                                                            {kStartContainer, "start"},
                                                            {kPostCreateContainer, "post create"},
                                                            {kPostStartContainer, "post start"},
                                                            {kUpdateContainer, "update"},
                                                            {kPostUpdateContainer, "post update"},
                                                            {kStopContainer, "stop"},
                                                            {kRemoveContainer, "remove"}};
  pod = std::move(request.pod);
  container = std::move(request.container);
  TRY_VOID(note(kVerbs.at(request.event) + " " + pod.id + (request.of_pod() ? "" : "/" + container.id)));
  const bool creates = request.event == shim::Event::kCreateContainer;
  return creates ? shim::create_response(adjustment) : std::string();
}

Result<void> Recorder::note(const std::string& what) {
  calls.push_back(what);
  if (failure) return *std::exchange(failure, std::nullopt);
  return {};
}

}  // namespace shim_peer
