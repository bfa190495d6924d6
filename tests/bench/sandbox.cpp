#include "sandbox.hpp"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "fabric/unique_fd.hpp"

namespace bench {
namespace {

using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

Result<void> write_file(const char* path, const std::string& text) {
  const UniqueFd fd(::open(path, O_WRONLY | O_CLOEXEC));
  if (!fd.ok() || ::write(fd.get(), text.data(), text.size()) < 0) return sys_error(errno, "write `{}`", path);
  return {};
}

Result<void> enter_namespaces() {
  if (::unshare(CLONE_NEWNS | CLONE_NEWNET) == 0) return {};
  if (errno != EPERM) return sys_error(errno, "create mount and network namespaces");
  const auto uid = ::getuid();
  const auto gid = ::getgid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) != 0) {
    return sys_error(errno, "create namespaces without privileges (run as root)");
  }
  TRY_VOID(write_file("/proc/self/setgroups", "deny"));
  TRY_VOID(write_file("/proc/self/uid_map", fmt::format("0 {} 1\n", uid)));
  return write_file("/proc/self/gid_map", fmt::format("0 {} 1\n", gid));
}

Result<void> mount_scene(const Scene& scene, const std::string& directory) {
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return sys_error(errno, "make mounts private");
  if (::mount("scene", directory.c_str(), "tmpfs", MS_NOSUID, "mode=0755") != 0) {
    return sys_error(errno, "mount a tmpfs on `{}`", directory);
  }
  TRY_VOID(write_tree(scene, directory));
  for (const char* top : {"/sys", "/dev"}) {
    if (::mount((directory + top).c_str(), top, nullptr, MS_BIND, nullptr) != 0) {
      return sys_error(errno, "bind `{}{}` over `{}`", directory, top, top);
    }
  }
  return {};
}

// Runs `ip -batch` in the current network namespace.
Result<void> run_ip(const std::string& commands) {
  const UniqueFd batch(::memfd_create("ip-batch", MFD_CLOEXEC));
  if (!batch.ok() || ::write(batch.get(), commands.data(), commands.size()) < 0 || ::lseek(batch.get(), 0, SEEK_SET)) {
    return sys_error(errno, "write the batch of ip(8)");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, batch.get(), STDIN_FILENO);
  const char* const argv[] = {"ip", "-batch", "-", nullptr};
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, nullptr, const_cast<char* const*>(argv), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return sys_error(error, "run `ip` (Debian package iproute2)");
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status != 0) return make_error("`ip -batch` failed: this kernel may lack veth");
  return {};
}

std::string pod_commands(const Scene& scene, const std::string& wire_netns) {
  std::string text = "link set lo up\n";
  const auto add_pair = [&](const std::string& name, const std::string& extra, const std::string& peer) {
    text += fmt::format("link add {} {} type veth peer name {} netns {}\n", name, extra, peer, wire_netns);
  };
  add_pair("eth0", "", "wire");
  text += "addr add 192.168.0.2/24 dev eth0\nlink set eth0 up\nroute add default via 192.168.0.1\n";
  const bool ipv6 = ::access("/proc/sys/net/ipv6", F_OK) == 0;
  unsigned number = 0;
  for (const Rail& rail : rails(scene)) {
    add_pair(rail.netdev, "address " + rail.mac, fmt::format("wire{}", number++));
    // The link-local address by hand, or it would come whenever duplicate detection is through.
    if (ipv6) text += fmt::format("link set {} addrgenmode none\n", rail.netdev);
    text += fmt::format("link set {} up\naddr add {} dev {}\n", rail.netdev, rail.ipv4, rail.netdev);
    if (ipv6) text += fmt::format("addr add {} dev {} nodad\n", rail.ipv6, rail.netdev);
  }
  return text;
}

std::string wire_commands(const Scene& scene) {
  std::string text = "link set wire up\n";
  for (unsigned number = 0; number < scene.hcas; ++number)
    text += fmt::format("link set wire{} up\n", number);
  return text;
}

UniqueFd open_netns() {
  return UniqueFd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
}

// The current network namespace becomes the wire, a new one the pod.
Result<void> make_network(const Scene& scene) {
  UniqueFd wire = open_netns();
  if (!wire.ok() || ::unshare(CLONE_NEWNET) != 0) return sys_error(errno, "create a network namespace");
  const UniqueFd pod = open_netns();
  TRY_VOID(run_ip(pod_commands(scene, fmt::format("/proc/{}/fd/{}", ::getpid(), wire.get()))));
  if (::setns(wire.get(), CLONE_NEWNET) != 0) return sys_error(errno, "enter the wire's network namespace");
  TRY_VOID(run_ip(wire_commands(scene)));
  if (::setns(pod.get(), CLONE_NEWNET) != 0) return sys_error(errno, "enter the pod's network namespace");
  // Nothing else keeps the other ends alive, and with them the rails: open as long as this process.
  (void)wire.release();
  return {};
}

}  // namespace

Result<void> enter(const Scene& scene, const std::string& directory) {
  TRY_VOID(enter_namespaces());
  // Before the mounts: ip(8) may read /sys.
  TRY_VOID(make_network(scene));
  return mount_scene(scene, directory);
}

}  // namespace bench
