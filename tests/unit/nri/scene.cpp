#include "unit/nri/scene.hpp"

#include <map>
#include <utility>

#include "shim/nri/wire/messages.hpp"

namespace shim_peer {
namespace {

// LinuxResources{1 memory{1 limit{1}}}: not for the plugin.
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
         text(7, "python") + text(8, "A=1") + text(8, "B=") + text(9, mount) + text(10, text(1, text(1, "/hook"))) +
         text(11, part) + number(12, 4712) +
         text(13, text(1, "RLIMIT_MEMLOCK") + number(2, shim::kUnlimited) + number(3, 65536)) + number(14, 1) +
         text(18, "reason") + text(20, text(1, "vendor.com/net=0")) + text(21, number(1, 1000)) +
         text(22, text(1, "image"));
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
          .env = {"A=1", "B="},
          .mounts = {{"/data", "bind", {}, {}}},
          .devices = {{"/dev/infiniband/uverbs0", "c", 231, 192, {}, {}, {}}},
          .device_rules = {{"c", true, false, true, "rwm"}},
          .rlimits = {{"RLIMIT_MEMLOCK", shim::kUnlimited, 65536}},
          .namespaces = {{"pid", ""}},
          .pid = 4712,
          .cdi_devices = {"vendor.com/net=0"},
          .net_devices = {"rail0"}};
}

Result<std::vector<shim::Event>> Recorder::configure(const shim::RuntimeInfo& info) {
  runtime = info;
  told.emplace_back("configure");
  if (failure) return *std::exchange(failure, std::nullopt);
  return wanted;
}

Result<std::string> Recorder::answer(const shim::NriRequest& request) {
  static const std::map<shim::Event, std::string> kVerbs = {
      {shim::Event::kRunPodSandbox, "run"},
      {shim::Event::kStopPodSandbox, "stop"},
      {shim::Event::kRemovePodSandbox, "remove"},
      {shim::Event::kCreateContainer, "create"},
      {shim::Event::kPostCreateContainer, "post create"},
      {shim::Event::kStartContainer, "start"},
      {shim::Event::kPostStartContainer, "post start"},
      {shim::Event::kUpdateContainer, "update"},
      {shim::Event::kPostUpdateContainer, "post update"},
      {shim::Event::kStopContainer, "stop"},
      {shim::Event::kRemoveContainer, "remove"},
  };
  pod = request.pod;
  container = request.container;
  TRY_VOID(tell(kVerbs.at(request.event) + " " + pod.id + (request.of_pod() ? "" : "/" + container.id)));
  const bool creates = request.event == shim::Event::kCreateContainer;
  return creates ? shim::create_response(adjustment) : std::string();
}

Result<void> Recorder::tell(const std::string& what) {
  told.push_back(what);
  if (failure) return *std::exchange(failure, std::nullopt);
  return {};
}

}  // namespace shim_peer
