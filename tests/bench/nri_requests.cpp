#include "nri_requests.hpp"

#include <fmt/format.h>

#include <string_view>

#include "shim/ttrpc/wire_fields.hpp"

namespace bench {
namespace {

using shim::append_bytes_field;
using shim::append_varint_field;

constexpr unsigned kGpus = 8;
constexpr unsigned kServices = 12;  // of the namespace: a kubelet sets seven variables for each

void append_entry(std::string& out, std::uint32_t field, std::string_view key, std::string_view value) {
  std::string entry;
  append_bytes_field(entry, 1, key);
  append_bytes_field(entry, 2, value);
  append_bytes_field(out, field, entry);
}

void append_mount(std::string& out, std::string_view destination, std::string_view type, std::string_view source,
                  std::initializer_list<std::string_view> options) {
  std::string mount;
  append_bytes_field(mount, 1, destination);
  append_bytes_field(mount, 2, type);
  append_bytes_field(mount, 3, source);
  for (const std::string_view option : options)
    append_bytes_field(mount, 4, option);
  append_bytes_field(out, 9, mount);
}

void append_device(std::string& linux_part, const std::string& path, unsigned major_number, unsigned minor_number) {
  std::string device;
  append_bytes_field(device, 1, path);
  append_bytes_field(device, 2, "c");
  append_varint_field(device, 3, major_number);
  append_varint_field(device, 4, minor_number);
  std::string mode;
  append_varint_field(mode, 1, 0666);
  append_bytes_field(device, 5, mode);
  append_bytes_field(linux_part, 2, device);
}

constexpr std::string_view kPodUid = "7f0f2c1e-9f0a-4a3e-8a57-4d0f6f1b2c3d";

std::string sandbox(const Pod& asking) {
  std::string pod;
  append_bytes_field(pod, 1, "5c1d64a0a5b1d64ff2a7cf4bf0bd4a3b7a3b0e6a0a4b9d6ef3f0a8f6f7b1c2d3");
  append_bytes_field(pod, 2, "llama-70b-worker-0");
  append_bytes_field(pod, 3, kPodUid);
  append_bytes_field(pod, 4, "training");
  for (const auto& [key, value] : {std::pair("training.kubeflow.org/job-name", "llama-70b"),
                                   std::pair("training.kubeflow.org/operator-name", "pytorchjob-controller"),
                                   std::pair("training.kubeflow.org/replica-index", "0"),
                                   std::pair("training.kubeflow.org/replica-type", "worker")})
    append_entry(pod, 5, key, value);
  append_entry(pod, 6, "kubernetes.io/config.source", "api");
  append_entry(pod, 6, "kubernetes.io/config.seen", "2026-05-11T08:12:44.123456789Z");
  append_entry(pod, 6, "kubectl.kubernetes.io/last-applied-configuration", std::string(1800, 'x'));
  if (!asking.devices.empty()) append_entry(pod, 6, "rdma-init.io/devices", asking.devices);
  append_bytes_field(pod, 7, "nvidia");
  std::string of_linux;
  append_bytes_field(of_linux, 3, "/kubepods.slice/kubepods-pod7f0f2c1e_9f0a_4a3e_8a57_4d0f6f1b2c3d.slice");
  if (!asking.netns.empty()) {
    std::string space;
    append_bytes_field(space, 1, "network");
    append_bytes_field(space, 2, asking.netns);
    append_bytes_field(of_linux, 5, space);
  }
  append_bytes_field(pod, 8, of_linux);
  return pod;
}

void append_environment(std::string& out) {
  const auto variable = [&](std::string_view name, std::string_view value) {
    append_bytes_field(out, 8, fmt::format("{}={}", name, value));
  };
  variable("PATH", "/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin");
  variable("LD_LIBRARY_PATH", "/usr/local/nvidia/lib:/usr/local/nvidia/lib64");
  variable("NVIDIA_VISIBLE_DEVICES", "all");
  variable("NVIDIA_DRIVER_CAPABILITIES", "compute,utility");
  variable("MASTER_ADDR", "llama-70b-master-0");
  variable("WORLD_SIZE", "64");
  for (unsigned i = 0; i < kServices; ++i) {
    const std::string name = fmt::format("SERVICE_NUMBER_{}", i);
    const std::string address = fmt::format("10.96.12.{}", i);
    variable(name + "_SERVICE_HOST", address);
    variable(name + "_SERVICE_PORT", "8080");
    variable(name + "_PORT", fmt::format("tcp://{}:8080", address));
    variable(name + "_PORT_8080_TCP", fmt::format("tcp://{}:8080", address));
    variable(name + "_PORT_8080_TCP_PROTO", "tcp");
    variable(name + "_PORT_8080_TCP_PORT", "8080");
    variable(name + "_PORT_8080_TCP_ADDR", address);
  }
}

void append_mounts(std::string& out) {
  append_mount(out, "/proc", "proc", "proc", {"nosuid", "noexec", "nodev"});
  append_mount(out, "/dev", "tmpfs", "tmpfs", {"nosuid", "strictatime", "mode=755", "size=65536k"});
  append_mount(out, "/dev/pts", "devpts", "devpts", {"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"});
  append_mount(out, "/dev/mqueue", "mqueue", "mqueue", {"nosuid", "noexec", "nodev"});
  append_mount(out, "/sys", "sysfs", "sysfs", {"nosuid", "noexec", "nodev", "ro"});
  append_mount(out, "/sys/fs/cgroup", "cgroup", "cgroup", {"nosuid", "noexec", "nodev", "relatime", "ro"});
  for (const char* name : {"etc-hosts", "checkpoints", "datasets", "scripts", "shm", "tokens"}) {
    append_mount(out, fmt::format("/mnt/{}", name), "bind",
                 fmt::format("/var/lib/kubelet/pods/{}/volumes/kubernetes.io~csi/{}/mount", kPodUid, name),
                 {"rbind", "rprivate", "rw"});
  }
}

std::string linux_part() {
  std::string part;
  for (const char* type : {"pid", "ipc", "uts", "mount"}) {
    std::string space;
    append_bytes_field(space, 1, type);
    append_bytes_field(part, 1, space);
  }
  for (unsigned i = 0; i < kGpus; ++i)
    append_device(part, fmt::format("/dev/nvidia{}", i), 195, i);
  append_device(part, "/dev/nvidiactl", 195, 255);
  append_device(part, "/dev/nvidia-uvm", 510, 0);
  append_bytes_field(part, 5, "kubepods-pod7f0f2c1e_9f0a_4a3e_8a57_4d0f6f1b2c3d.slice:cri-containerd:0");
  return part;
}

std::string container(unsigned number) {
  std::string out;
  append_bytes_field(out, 1, fmt::format("{:064x}", number));
  append_bytes_field(out, 2, "5c1d64a0a5b1d64ff2a7cf4bf0bd4a3b7a3b0e6a0a4b9d6ef3f0a8f6f7b1c2d3");
  append_bytes_field(out, 3, "pytorch");
  append_varint_field(out, 4, 1);
  append_entry(out, 5, "io.kubernetes.container.name", "pytorch");
  append_entry(out, 6, "io.kubernetes.cri.container-type", "container");
  append_entry(out, 6, "io.kubernetes.cri.image-name", "registry.example.com/training/llama:2026-05");
  append_entry(out, 6, "io.kubernetes.cri.sandbox-namespace", "training");
  for (const char* word :
       {"torchrun", "--nproc-per-node=8", "--nnodes=8", "train.py", "--config", "/mnt/scripts/a.yaml"})
    append_bytes_field(out, 7, word);
  append_environment(out);
  append_mounts(out);
  append_bytes_field(out, 11, linux_part());
  return out;
}

}  // namespace

std::string pod_change(PodEvent event, const Pod& pod) {
  std::string change;
  append_varint_field(change, 1, static_cast<unsigned>(event));
  append_bytes_field(change, 2, sandbox(pod));
  return change;
}

std::string container_request(unsigned number, const Pod& pod) {
  std::string request;
  append_bytes_field(request, 1, sandbox(pod));
  append_bytes_field(request, 2, container(number));
  return request;
}

}  // namespace bench
