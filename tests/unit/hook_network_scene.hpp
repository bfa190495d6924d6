// Network namespaces of this kernel for tests, with veth pairs in them.
#pragma once

#include <gtest/gtest.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "hook/rails/netlink/netlink.hpp"

namespace test_support {

using hook::Netlink;
using hook::NetlinkMessage;
using hook::RequestBuilder;
using hook::to_message;

inline constexpr int kRefused = 77;
inline constexpr int kNoMacvlan = 78;

// The body runs in a child with a network namespace of its own; its expectations count.
inline void in_network_namespace(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0) _exit(kRefused);
    body();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == kRefused) GTEST_SKIP() << "no network namespace of one's own here";
  if (WEXITSTATUS(status) == kNoMacvlan) GTEST_SKIP() << "this kernel has no macvlan";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see what it printed above";
}

inline Netlink open_route() {
  auto opened = Netlink::open(NETLINK_ROUTE);
  if (!opened) ADD_FAILURE() << opened.error().message;
  return std::move(opened).value();
}

inline void make_veth(Netlink& route, const char* name, const char* peer) {
  RequestBuilder request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
  request.put(IFLA_IFNAME, std::string_view(name));
  nlattr* info = request.begin(IFLA_LINKINFO);
  request.put(IFLA_INFO_KIND, std::string_view("veth"));
  nlattr* data = request.begin(IFLA_INFO_DATA);
  // VETH_INFO_PEER has a header of its own in front of its attributes.
  RequestBuilder inner(RTM_NEWLINK, 0, ifinfomsg{});
  inner.put(IFLA_IFNAME, std::string_view(peer));
  const NetlinkMessage made = inner.take();
  request.put(VETH_INFO_PEER, to_message(nlmsg_hdr(made.get())).payload);
  request.end(data);
  request.end(info);
  const auto done = route.change(request.take(), "make veth");
  ASSERT_TRUE(done) << done.error().message;
}

}  // namespace test_support
