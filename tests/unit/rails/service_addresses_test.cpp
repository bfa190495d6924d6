// By which addresses the node is reached, and its default routes as the kernel has them.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hook/rails/plan/rails.hpp"
#include "support/inventories.hpp"

namespace hook {
namespace {

using test_support::address;
using Services = std::map<fabric::Address, std::string>;

constexpr const char* kHeading =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
constexpr const char* kHeading6 =
    "  sl  local_address                         remote_address                        st tx_queue rx_queue tr "
    "tm->when retrnsmt   uid  timeout inode\n";

std::string line(const std::string& local, const std::string& remote, const std::string& state) {
  return "   0: " + local + " " + remote + " " + state +
         " 00000000:00000000 00:00000000 00000000     0        0 17 1 0000000000000000 100 0 0 10 0\n";
}

// Numbers of a little-endian host, as all that run this are.
TEST(ServiceAddresses, Ipv4) {
  struct Row {
    const char* what;
    std::string line;
    Services expected;
  };
  const std::string ten = "0501000A";  // 10.0.1.5
  const Services sshd = {{address("10.0.1.5"), "sshd"}};
  const Services kubelet = {{address("10.0.1.5"), "kubelet"}};
  for (const Row& row : std::vector<Row>{
           {"a session of ssh", line(ten + ":0016", "0902000A:C350", "01"), sshd},
           {"sshd listens on one address", line(ten + ":0016", "00000000:0000", "0A"), sshd},
           {"sshd listens on all", line("00000000:0016", "00000000:0000", "0A"), {}},
           {"loopback", line("0100007F:0016", "0100007F:C350", "01"), {}},
           {"a session that is over", line(ten + ":0016", "0902000A:C350", "06"), {}},
           {"somebody on the node uses ssh", line(ten + ":C350", "0902000A:0016", "01"), {}},
           {"kubelet answers", line(ten + ":280A", "0902000A:C350", "01"), kubelet},
           {"kubelet and the API server", line(ten + ":C350", "0902000A:192B", "01"), kubelet},
           {"an API server here, asked by others", line(ten + ":192B", "0902000A:C350", "01"), {}},
           {"another port", line(ten + ":0050", "0902000A:C350", "01"), {}},
           {"both", line(ten + ":280A", "0902000A:C350", "01") + line(ten + ":0016", "0902000A:C351", "01"), sshd},
           {"both, the other way", line(ten + ":0016", "0902000A:C351", "01") + line(ten + ":280A", "0:0", "01"), sshd},
       }) {
    SCOPED_TRACE(row.what);
    EXPECT_EQ(service_addresses(kHeading + row.line, ""), row.expected);
  }
}

TEST(ServiceAddresses, Ipv6) {
  const std::string any(32, '0');
  const std::string fd00 = "000000FD000000000000000005000000";    // fd00::5
  const std::string mapped = "0000000000000000FFFF00000501000A";  // ::ffff:10.0.1.5
  const std::string text = kHeading6 + line(any + ":0016", any + ":0000", "0A") +
                           line(fd00 + ":0016", fd00 + ":C350", "01") +
                           line(mapped + ":280A", "0000000000000000FFFF00000902000A:C350", "01") +
                           line("0000000000000000FFFF000000000000:0016", any + ":0000", "0A") +
                           line("0000000000000000FFFF00000100007F:0016", any + ":0000", "0A") +
                           line("00000000000000000000000001000000:0016", any + ":0000", "0A");
  EXPECT_EQ(service_addresses("", text), (Services{{address("fd00::5"), "sshd"}, {address("10.0.1.5"), "kubelet"}}));
}

TEST(ServiceAddresses, LinesThatAreNone) {
  for (const char* text : {"", "\n", "   0:", "   0: 0501000A:0016", "   0: 0501000A:0016 0902000A:C350",
                           "   0: 0501000A:0016 0902000A:C350 0", "   0: 0501000A:00016 0902000A:C350 01 ",
                           "   0: 0501000:0016 0902000A:C350 01 ", "   0: 0501000A0016 0902000A:C350 01 ",
                           "   0: 050100-1:0016 0902000A:C350 01 ", "   0: 0501000A:0016 0902000A:C350 101 "})
    EXPECT_TRUE(service_addresses(text, text).empty()) << text;
  EXPECT_EQ(service_addresses("garbage\n" + line("0501000A:0016", "0902000A:C350", "01") + "   1: 06", "").size(), 1U)
      << "a last line that is cut off does not hide the others";
}

constexpr int kLeftOut = 77;

// In a network namespace of its own: veth pairs as uplinks, a default route over two of them.
int read_own_namespace() {
  constexpr const char* kPairs =
      "ip link add up0 type veth peer name far0 2>&1 && ip link add up1 type veth peer name far1";
  constexpr const char* kRoutes =
      "set -e; ip addr add 192.0.2.1/25 dev up0; ip addr add 192.0.2.129/25 dev up1;"
      "ip addr add 2001:db8::1/64 dev up1 nodad; for n in lo up0 up1 far0 far1; do ip link set $n up; done;"
      "ip route add default nexthop via 192.0.2.2 dev up0 nexthop via 192.0.2.130 dev up1;"
      "ip route add default via 192.0.2.2 dev up0 table 100; ip -6 route add default via 2001:db8::2 dev up1";
  // NOLINTBEGIN(bugprone-command-processor,concurrency-mt-unsafe): fixed texts, and the child has one thread
  if (::unshare(CLONE_NEWNET) != 0 || std::system(kPairs) != 0) return kLeftOut;
  if (std::system(kRoutes) != 0) return 5;
  // NOLINTEND(bugprone-command-processor,concurrency-mt-unsafe)
  const auto node = read_node_network(true);
  if (!node) return std::fprintf(stderr, "%s\n", node.error().message.c_str()), 1;
  const auto has = [&](const char* destination, const char* netdev) {
    return std::count(node->routes.begin(), node->routes.end(), fabric::Route{destination, netdev, 254}) == 1;
  };
  if (!has("0.0.0.0/0", "up0") || !has("0.0.0.0/0", "up1") || !has("::/0", "up1") || node->routes.size() != 3) return 2;
  if (node->netdevs.size() != 5 || !node->services.empty()) return 3;
  const auto without = read_node_network(false);
  return without && without->netdevs.size() == 5 ? 0 : 4;
}

TEST(NodeNetwork, DefaultRoutesOverSeveral) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(read_own_namespace());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kLeftOut) GTEST_SKIP() << "no network namespace of one's own with veth here (root, ip)";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace hook
