// Sockets of a network namespace that this process never joins. The namespace is a child's (unshare).
#include "hook/rails/netlink/netlink.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "unit/ledger/scene.hpp"
#include "unit/rails/network_scene.hpp"

namespace {

using fabric::UniqueFd;
using hook::open_network_namespace;

constexpr hook::NetnsParts kAll{.packet = true, .sysfs = true};

UniqueFd open_path(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

ino_t inode_of(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

int count_descriptors() {
  DIR* dir = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(dir) != nullptr)
    ++count;
  closedir(dir);
  return count;
}

// A process in a namespace of its own, and what it needs to be told apart: a netdev that only it has is not to be had
// everywhere, but its loopback is down.
class OpenNetns : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd in(ends[0]);
    UniqueFd out(ends[1]);
    child_ = fork();
    if (child_ == 0) {
      const char done = unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
      (void)!write(out.get(), &done, 1);
      pause();
      _exit(0);
    }
    out.reset();
    char done = 'n';
    ASSERT_EQ(read(in.get(), &done, 1), 1);
    if (done != 'y') GTEST_SKIP() << "unshare(CLONE_NEWNET) is not allowed here";
  }
  void TearDown() override { stop(); }
  void stop() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  std::string path() const { return "/proc/" + std::to_string(child_) + "/ns/net"; }

  pid_t child_ = -1;
};

// "name" or "name up" of each netdev of the socket's namespace.
std::vector<std::string> netdevs(hook::Netlink& route) {
  std::vector<std::string> names;
  ifinfomsg header{};
  hook::RequestBuilder request(RTM_GETLINK, NLM_F_DUMP, header);
  const auto done = route.read(request.take(), "list netdevs", [&](const nlmsghdr* answer) {
    const auto message = hook::to_message(answer);
    const auto* info = message.header<ifinfomsg>();
    const auto name = message.attributes(sizeof *info).text(IFLA_IFNAME);
    names.push_back(name.value_or("?") + ((info->ifi_flags & IFF_UP) != 0 ? " up" : ""));
  });
  EXPECT_TRUE(done) << done.error().message;
  return names;
}

TEST_F(OpenNetns, SocketsAreOfThatNamespace) {
  const UniqueFd own = open_path("/proc/self/ns/net");
  auto opened = open_network_namespace(open_path(path()), kAll);
  ASSERT_TRUE(opened) << opened.error().message;
  auto here = hook::Netlink::open(NETLINK_ROUTE);
  ASSERT_TRUE(here);
  // Its loopback was never set up; changing it there leaves ours alone.
  const auto before = netdevs(*here);
  EXPECT_EQ(netdevs(opened->route).at(0), "lo");
  ifinfomsg up{};
  up.ifi_index = 1;
  up.ifi_flags = up.ifi_change = IFF_UP;
  ASSERT_TRUE(opened->route.change(hook::RequestBuilder(RTM_NEWLINK, 0, up).take(), "set lo up"));
  EXPECT_EQ(netdevs(opened->route).at(0), "lo up");
  EXPECT_EQ(netdevs(*here), before);
  EXPECT_EQ(inode_of(opened->netns.get()), inode_of(open_path(path()).get()));
  EXPECT_EQ(inode_of(open_path("/proc/self/ns/net").get()), inode_of(own.get()));  // this process stayed where it was
}

// They hold the namespace, and their descriptors are not inherited.
TEST_F(OpenNetns, SocketsOutliveItsProcesses) {
  auto opened = open_network_namespace(open_path(path()), kAll);
  ASSERT_TRUE(opened) << opened.error().message;
  stop();
  EXPECT_EQ(netdevs(opened->route).at(0), "lo");
  for (const int fd : {opened->route.fd(), opened->packet.get(), opened->sysfs.get()}) {
    EXPECT_TRUE(fd < 0 || (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
}

TEST_F(OpenNetns, PacketSocketIsRawAndNotBound) {
  auto opened = open_network_namespace(open_path(path()), kAll);
  ASSERT_TRUE(opened) << opened.error().message;
  if (!opened->packet.ok()) GTEST_SKIP() << "this kernel gives no packet socket";
  sockaddr_ll address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(getsockname(opened->packet.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(address.sll_protocol, 0);
  int type = 0;
  size = sizeof type;
  ASSERT_EQ(getsockopt(opened->packet.get(), SOL_SOCKET, SO_TYPE, &type, &size), 0);
  EXPECT_EQ(type, SOCK_RAW);
}

TEST_F(OpenNetns, SysfsIsThatOfTheNamespaceAndReadOnly) {
  auto opened = open_network_namespace(open_path(path()), kAll);
  ASSERT_TRUE(opened) << opened.error().message;
  if (!opened->sysfs.ok()) GTEST_SKIP() << "this kernel gives no detached sysfs";
  const UniqueFd classes(openat(opened->sysfs.get(), "class/net", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_TRUE(classes.ok());
  EXPECT_EQ(faccessat(classes.get(), "lo", F_OK, 0), 0);
  std::size_t count = 0;
  DIR* dir = fdopendir(dup(classes.get()));
  while (const dirent* entry = readdir(dir))
    count += entry->d_name[0] != '.' && entry->d_type == DT_LNK ? 1 : 0;  // bonding_masters is a file
  closedir(dir);
  EXPECT_EQ(count, netdevs(opened->route).size());
  EXPECT_LT(openat(opened->sysfs.get(), "class/net/lo/mtu", O_WRONLY | O_CLOEXEC), 0);
  EXPECT_EQ(errno, EROFS);
}

TEST_F(OpenNetns, LeavesNothingOpen) {
  const int before = count_descriptors();
  { ASSERT_TRUE(open_network_namespace(open_path(path()), kAll)); }
  ASSERT_FALSE(open_network_namespace(open_path("/dev/null"), kAll));
  EXPECT_EQ(count_descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), 0) << "only the namespace's own process is left";
}

TEST_F(OpenNetns, RunsAFunctionInside) {
  const UniqueFd netns = open_path(path());
  const ino_t inside = inode_of(netns.get());
  const auto check = [&]() -> fabric::Result<void> {
    if (inode_of(open_path("/proc/self/ns/net").get()) == inside) return {};
    return fabric::make_error("elsewhere");
  };
  const auto done = hook::run_in_network_namespace(netns.get(), check);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(check().error().message, "elsewhere");
  const auto failed = hook::run_in_network_namespace(netns.get(), []() -> fabric::Result<void> {
    return fabric::Error{"said inside", EBUSY, "a hint"};
  });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "said inside");
  EXPECT_EQ(failed.error().code, EBUSY);
  EXPECT_EQ(failed.error().hint, "a hint");
  const auto died = hook::run_in_network_namespace(netns.get(), []() -> fabric::Result<void> { _exit(7); });
  ASSERT_FALSE(died);
  EXPECT_NE(died.error().message.find("ended with wait status"), std::string::npos);
}

// What the kernel has, but does not give at the moment, is not missing.
TEST_F(OpenNetns, WhatFailsIsNoMissingPart) {
  const auto code_without = [&](int call, int code, unsigned argument, std::uint32_t value) {
    return test_support::in_child([&] {
      test_support::deny(call, code, argument, value);
      const auto opened = open_network_namespace(open_path(path()), kAll);
      return opened ? 0 : opened.error().code;
    });
  };
  EXPECT_EQ(code_without(SYS_socket, ENOMEM, 2, NETLINK_RDMA), ENOMEM);
  EXPECT_EQ(code_without(SYS_socket, EPROTONOSUPPORT, 2, NETLINK_RDMA), 0);
  EXPECT_EQ(code_without(SYS_fsopen, ENOMEM, 1, FSOPEN_CLOEXEC), ENOMEM);
  EXPECT_EQ(code_without(SYS_fsopen, ENOSYS, 1, FSOPEN_CLOEXEC), 0);
}

TEST(OpenNetnsRefusals, OtherDescriptors) {
  for (const char* path : {"/dev/null", "/proc/self/ns/mnt", "/proc/self/stat", "/"}) {
    const auto opened = open_network_namespace(open_path(path), kAll);
    ASSERT_FALSE(opened) << path;
    EXPECT_EQ(opened.error().code, EINVAL) << path;
    EXPECT_NE(opened.error().message.find("something else"), std::string::npos) << path;
  }
  const auto opened = open_network_namespace(UniqueFd(), kAll);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, EBADF);
}

}  // namespace
