// Network namespaces of this kernel for tests, with veth pairs in them; system calls that fail.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <linux/veth.h>
#include <sched.h>
#include <sys/prctl.h>

#include <cstddef>
#include <cstdint>

#include "base/unique_fd.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "support/results.hpp"

namespace test_support {

using hook::Netlink;
using hook::RequestBuilder;

// Makes this system call fail from now on, in this process and its children, if its argument of this number has this
// value.
inline void deny(int call, int code, unsigned argument, std::uint32_t value) {
  constexpr std::uint16_t kLoad = BPF_LD | BPF_W | BPF_ABS;
  constexpr std::uint16_t kIsEqual = BPF_JMP | BPF_JEQ | BPF_K;
  constexpr std::uint16_t kReturn = BPF_RET | BPF_K;
  // The lower half of the argument, which is first on little-endian machines.
  const auto place = static_cast<std::uint32_t>(offsetof(seccomp_data, args) + argument * sizeof(std::uint64_t));
  sock_filter filter[] = {
      {kLoad, 0, 0, offsetof(seccomp_data, nr)},
      {kIsEqual, 0, 3, static_cast<std::uint32_t>(call)},
      {kLoad, 0, 0, place},
      {kIsEqual, 0, 1, value},
      {kReturn, 0, 0, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(code)},
      {kReturn, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program{std::size(filter), filter};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

inline Netlink open_route() {
  auto opened = Netlink::open(NETLINK_ROUTE);
  if (!opened) ADD_FAILURE() << opened.error().message;
  return std::move(opened).value();
}

inline base::UniqueFd own_netns() {
  return base::UniqueFd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
}

// Each test runs in its own network namespace. The process returns to its first namespace afterwards.
class NetnsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_allowed_) GTEST_SKIP() << "no network namespace of one's own here";
  }
  ~NetnsTest() override {
    if (is_allowed_) {
      EXPECT_EQ(setns(home_.get(), CLONE_NEWNET), 0);
    }
  }

  const base::UniqueFd home_ = own_netns();
  const bool is_allowed_ = unshare(CLONE_NEWNET) == 0;
  Netlink route_ = open_route();
};

inline void make_veth(Netlink& route, const char* name, const char* peer) {
  RequestBuilder request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
  request.put(IFLA_IFNAME, std::string_view(name));
  const auto info = request.begin(IFLA_LINKINFO);
  request.put(IFLA_INFO_KIND, std::string_view("veth"));
  const auto data = request.begin(IFLA_INFO_DATA);
  // VETH_INFO_PEER has a header before its attributes.
  RequestBuilder inner(RTM_NEWLINK, 0, ifinfomsg{});
  inner.put(IFLA_IFNAME, std::string_view(peer));
  request.put(VETH_INFO_PEER, inner.message().payload);
  request.end(data);
  request.end(info);
  ASSERT_OK(route.change(request, "make veth"));
}

}  // namespace test_support
