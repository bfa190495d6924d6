#include "fabric/read_network.hpp"

#include <gtest/gtest.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fabric/port_use.hpp"
#include "support/inventories.hpp"

namespace {

using namespace fabric::netlink;
using Buffer = std::vector<std::uint8_t>;
using namespace fabric;
using namespace test_support;

// Adds one attribute, with a length of the caller's choice, padded to four bytes as the kernel does.
void add(Buffer& buffer, unsigned type, const Buffer& value, int length = -1) {
  const auto size = static_cast<std::uint16_t>(length >= 0 ? length : static_cast<int>(value.size()) + NLA_HDRLEN);
  nlattr header{size, static_cast<std::uint16_t>(type)};
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&header);
  buffer.insert(buffer.end(), bytes, bytes + sizeof header);
  buffer.insert(buffer.end(), value.begin(), value.end());
  buffer.resize((buffer.size() + 3) / 4 * 4);
}

TEST(Attributes, ReturnsTheFirstAttributeOfAType) {
  Buffer buffer;
  add(buffer, 1, {0x78, 0x56, 0x34, 0x12});
  add(buffer, 2, {'e', 't', 'h', '0', 0});
  add(buffer, 3, {7});
  add(buffer, 4, {});
  add(buffer, 5 | NLA_F_NESTED, {9});
  add(buffer, 1, {1, 0, 0, 0});
  add(buffer, 7, {'a', 'b', 'c', 'd'});
  add(buffer, 8, {'a', 0, 'c', 'd'});
  const Attributes attributes{Bytes(buffer)};
  EXPECT_EQ(attributes.u32(1), 0x12345678U) << "the first of two";
  EXPECT_EQ(attributes.text(2), "eth0");
  EXPECT_EQ(attributes.u8(3), 7);
  EXPECT_TRUE(attributes.has(4));
  EXPECT_FALSE(attributes.u8(4));
  EXPECT_FALSE(attributes.text(4));
  EXPECT_EQ(attributes.u8(5), 9) << "flags are not part of the type";
  EXPECT_FALSE(attributes.has(6));
  EXPECT_FALSE(attributes.u32(3)) << "shorter than the requested integer";
  EXPECT_EQ(attributes.text(7), "abcd") << "no terminating zero";
  EXPECT_EQ(attributes.text(8), "a");
}

TEST(AddAddress, ReadsPeerFlagsAndLabel) {
  const auto read = [](int family, std::uint32_t flags, const Buffer& local, const Buffer& address, const char* label) {
    Buffer buffer(sizeof(ifaddrmsg));
    ifaddrmsg header{};
    header.ifa_family = static_cast<std::uint8_t>(family);
    header.ifa_prefixlen = family == AF_INET ? 24 : 120;
    header.ifa_index = 7;
    std::memcpy(buffer.data(), &header, sizeof header);
    add(buffer, IFA_ADDRESS, address);
    if (!local.empty()) add(buffer, IFA_LOCAL, local);
    add(buffer, IFA_LABEL, Buffer(label, label + std::strlen(label) + 1));
    Buffer bits(sizeof flags);
    std::memcpy(bits.data(), &flags, sizeof flags);
    add(buffer, IFA_FLAGS, bits);
    std::vector<Netdev> netdevs = {netdev("eth0", {})};
    netdevs[0].ifindex = 7;
    fabric::netlink::add_address(netdevs, {RTM_NEWADDR, Bytes(buffer)});
    return netdevs[0].addresses.at(0);
  };
  const InterfaceAddress plain = read(AF_INET, IFA_F_PERMANENT, {10, 0, 0, 1}, {10, 0, 0, 1}, "eth0");
  EXPECT_EQ(plain, (InterfaceAddress{address("10.0.0.1"), 24, "10.0.0.1/24"}));
  const InterfaceAddress peer = read(AF_INET, IFA_F_DEPRECATED, {10, 0, 0, 1}, {10, 9, 0, 1}, "net0");
  EXPECT_EQ(peer.peer, address("10.9.0.1"));
  EXPECT_EQ(peer.label, "net0");
  EXPECT_TRUE(peer.deprecated && !peer.tentative);
  const Buffer ipv6 = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  const InterfaceAddress failed = read(AF_INET6, IFA_F_TENTATIVE | IFA_F_DADFAILED, {}, ipv6, "");
  EXPECT_TRUE(failed.tentative && failed.dad_failed && !failed.peer && failed.label.empty());
  EXPECT_FALSE(read(AF_INET6, IFA_F_TENTATIVE | IFA_F_OPTIMISTIC, {}, ipv6, "").tentative)
      << "an optimistic one serves";
  const Buffer mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
  EXPECT_EQ(read(AF_INET6, IFA_F_PERMANENT, mapped, ipv6, ""),
            (InterfaceAddress{address("10.0.0.1"), 24, "10.0.0.1/24"}));
}

TEST(PrivilegedQkey, IsReadFromTheAnswerOfTheKernel) {
  constexpr unsigned kMode = 96;  // Linux 6.7, include/uapi/rdma/rdma_netlink.h
  for (const bool is_on : {false, true}) {
    Buffer answer;
    add(answer, 66, {1});  // RDMA_NLDEV_SYS_ATTR_NETNS_MODE
    EXPECT_EQ(fabric::netlink::privileged_qkey_of(Attributes{Bytes(answer)}), std::nullopt);
    add(answer, kMode, {static_cast<std::uint8_t>(is_on)});
    EXPECT_EQ(fabric::netlink::privileged_qkey_of(Attributes{Bytes(answer)}), is_on);
  }
}

TEST(Attributes, StopsAtAMalformedLength) {
  for (const int length : {0, 1, 3, 9, 100, 65535}) {
    SCOPED_TRACE(length);
    Buffer buffer;
    add(buffer, 1, {1, 0, 0, 0});
    add(buffer, 2, {2, 0, 0, 0}, length);
    const Attributes attributes{Bytes(buffer)};
    EXPECT_EQ(attributes.u32(1), 1U) << "the attribute before it is kept";
    EXPECT_FALSE(attributes.has(2));
  }
}

TEST(Attributes, ReadsNothingBeyondATruncatedBuffer) {
  Buffer buffer;
  add(buffer, 1, {'a', 'b', 'c', 0});
  add(buffer, 2, {1, 2, 3});
  for (std::size_t size = 0; size <= buffer.size(); ++size) {
    // The buffer has exactly that size, so that a sanitizer detects a read beyond its end.
    const Buffer cut(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(size));
    const Attributes attributes{Bytes(cut)};
    EXPECT_EQ(attributes.has(1), size >= 8);
    EXPECT_EQ(attributes.has(2), size >= 15);
  }
}

TEST(Message, HasNoHeaderIfItIsTooShort) {
  const Buffer buffer(sizeof(ifinfomsg) - 1);
  const Message message{RTM_NEWLINK, Bytes(buffer)};
  EXPECT_EQ(message.header<ifinfomsg>(), nullptr);
  EXPECT_FALSE(message.attributes(sizeof(ifinfomsg)).has(IFLA_IFNAME));
}

TEST(Socket, ReportsAnUnsupportedProtocol) {
  // MAX_LINKS is 32, and the kernel has no protocol 31.
  EXPECT_EQ(base::netlink::Socket::open(31).error().message,
            "open netlink socket (protocol 31): Protocol not supported");
}

TEST(Socket, ReturnsTheErrnoOfTheKernel) {
  auto socket = base::netlink::Socket::open(NETLINK_ROUTE);
  ASSERT_TRUE(socket);
  ifinfomsg header{};
  header.ifi_index = 0x7ffffff0;
  const auto take = [](const Message&) { return true; };
  EXPECT_EQ(socket->request(base::netlink::Query(RTM_GETLINK, 0, header), take).error().code, ENODEV);
}

const fabric::Netdev* find(const std::vector<fabric::Netdev>& netdevs, const char* name) {
  const auto found =
      std::find_if(netdevs.begin(), netdevs.end(), [&](const fabric::Netdev& netdev) { return netdev.name == name; });
  return found == netdevs.end() ? nullptr : &*found;
}

TEST(LiveNetwork, ListsTheLoopbackNetdev) {
  const auto network = fabric::netlink::read_network(true);
  if (!network && (network.error().code == EPERM || network.error().code == EAFNOSUPPORT))
    GTEST_SKIP() << network.error().message;
  ASSERT_TRUE(network) << network.error().message;
  const fabric::Netdev* lo = find(network->netdevs, "lo");
  ASSERT_NE(lo, nullptr);
  EXPECT_EQ(lo->type, 772);
  EXPECT_EQ(lo->in_this_netns, true);
}

// Exit code of a child that cannot create its network namespace.
constexpr int kCannot = 77;

void expect_in_new_netns(int (*test)(), const char* otherwise) {
  const pid_t child = fork();
  if (child == 0) _exit(unshare(CLONE_NEWNET) != 0 ? kCannot : test());
  int status = 0;
  waitpid(child, &status, 0);
  const int result = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  if (result == kCannot) GTEST_SKIP() << otherwise;
  EXPECT_EQ(result, 0);
}

bool ip(const std::string& arguments) {
  return std::system(("ip " + arguments + " 2>/dev/null").c_str()) == 0;
}

#define CHECK_OR_FAIL(condition)                              \
  do {                                                        \
    if (!(condition)) {                                       \
      std::fprintf(stderr, "%d: %s\n", __LINE__, #condition); \
      return 1;                                               \
    }                                                         \
  } while (false)

int loopback_of_a_new_netns() {
  const auto network = fabric::netlink::read_network(false);
  CHECK_OR_FAIL(network.has_value());
  CHECK_OR_FAIL(network->netdevs.size() >= 1);
  const fabric::Netdev* lo = find(network->netdevs, "lo");
  CHECK_OR_FAIL(lo && !lo->is_up() && lo->addresses.empty());
  CHECK_OR_FAIL(std::get_if<base::Unreadable>(&lo->carrier) != nullptr);
  CHECK_OR_FAIL(network->routes.empty());
  return 0;
}

TEST(LiveNetwork, ReportsADownLoopbackInANewNetns) {
  expect_in_new_netns(loopback_of_a_new_netns, "cannot create a network namespace");
}

int kinds_addresses_and_routes() {
  if (!ip("link add va type veth peer name vb")) return kCannot;
  CHECK_OR_FAIL(ip("link set va up") && ip("link set vb up"));
  CHECK_OR_FAIL(ip("addr add 10.9.0.1/24 dev va") && ip("addr add fd00:9::1/64 dev va nodad"));
  CHECK_OR_FAIL(ip("route add default via 10.9.0.254") && ip("route add 10.8.0.0/16 via 10.9.0.253 table 77"));
  const bool macvlan = ip("link add mv link va type macvlan mode bridge");
  const auto network = fabric::netlink::read_network(true);
  CHECK_OR_FAIL(network.has_value());
  const fabric::Netdev* va = find(network->netdevs, "va");
  CHECK_OR_FAIL(va && va->kind == "veth" && va->is_up() && va->type == 1 && va->mac);
  const auto has = [&](const char* text) {
    return std::any_of(va->addresses.begin(), va->addresses.end(), [&](const auto& own) { return own.text == text; });
  };
  CHECK_OR_FAIL(has("10.9.0.1/24") && has("fd00:9::1/64"));
  if (macvlan) {
    const fabric::Netdev* mv = find(network->netdevs, "mv");
    CHECK_OR_FAIL(mv && mv->kind == "macvlan" && mv->lower_ifindex == va->ifindex && !mv->lower_netns_id);
  }
  const auto route = [&](const char* dst, unsigned table) {
    return std::any_of(network->routes.begin(), network->routes.end(), [&](const fabric::Route& one) {
      return one.dst == dst && one.dev == "va" && one.table == table;
    });
  };
  CHECK_OR_FAIL(route("0.0.0.0/0", 254) && route("10.8.0.0/16", 77) && route("10.9.0.0/24", 254));
  const auto defaults = fabric::netlink::read_network(false);
  CHECK_OR_FAIL(defaults && defaults->routes.size() == 1 && defaults->routes[0].dst == "0.0.0.0/0");
  return 0;
}

TEST(LiveNetwork, ReadsKindsAddressesAndRoutes) {
  expect_in_new_netns(kinds_addresses_and_routes,
                      "cannot create a network namespace with a veth (needs root and iproute2)");
}

// A macvlan with its lower device in another network namespace, as in a pod.
int lower_device_in_another_netns() {
  if (!ip("link add va type veth peer name vb")) return kCannot;
  const pid_t sleeper = fork();
  if (sleeper == 0) {
    unshare(CLONE_NEWNET);
    pause();
    _exit(0);
  }
  const std::string target = std::to_string(sleeper);
  bool moved = false;
  for (int i = 0; i < 200 && !moved; ++i) {  // until the child is in its namespace
    usleep(10000);
    char mine[64] = "", other[64] = "";
    (void)!readlink("/proc/self/ns/net", mine, sizeof mine - 1);
    (void)!readlink(("/proc/" + target + "/ns/net").c_str(), other, sizeof other - 1);
    moved = other[0] != 0 && std::strcmp(mine, other) != 0;
  }
  const bool made = moved && ip("link add mv link va type macvlan mode bridge") && ip("link set mv netns " + target);
  int result = kCannot;
  if (made) {
    const pid_t reader = fork();
    if (reader == 0) {
      FILE* ns = std::fopen(("/proc/" + target + "/ns/net").c_str(), "re");
      if (!ns || setns(fileno(ns), CLONE_NEWNET) != 0) _exit(kCannot);
      const auto network = fabric::netlink::read_network(false);
      const fabric::Netdev* mv = network ? find(network->netdevs, "mv") : nullptr;
      _exit(mv && mv->kind == "macvlan" && mv->lower_netns_id && mv->lower_ifindex > 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(reader, &status, 0);
    result = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  kill(sleeper, SIGKILL);
  waitpid(sleeper, nullptr, 0);
  return result;
}

TEST(LiveNetwork, ReportsTheNetnsIdOfALowerDeviceInAnotherNetns) {
  expect_in_new_netns(lower_device_in_another_netns, "cannot move a macvlan between network namespaces");
}

TEST(LiveRdma, ListsPortNetdevsOfListedHcasOnly) {
  const auto answer = fabric::netlink::read_rdma(true);
  if (!answer) GTEST_SKIP() << "this kernel has no RDMA netlink";
  for (const auto& [key, netdev] : answer->port_netdevs.netdevs) {
    EXPECT_TRUE(answer->port_netdevs.hcas.contains(key.first));
    EXPECT_FALSE(netdev.empty());
  }
}

Netdev of_kind(std::string name, const char* kind, int ifindex, std::initializer_list<std::string_view> addresses) {
  Netdev device = netdev(std::move(name), addresses);
  device.kind = kind;
  device.ifindex = ifindex;
  return device;
}

// Stacks a netdev on another one, which is in this network namespace or in the one with that id.
Netdev over(Netdev device, int lower, std::optional<int> netns = std::nullopt) {
  device.lower_ifindex = lower;
  device.lower_netns_id = netns;
  return device;
}

using Netdevs = std::vector<Netdev>;

TEST(StackedOn, FollowsVlansMacvlansAndBonds) {
  Netdevs netdevs = {of_kind("eth1", "", 1, {}),
                     over(of_kind("eth1.100", "vlan", 2, {}), 1),
                     over(of_kind("mv0", "macvlan", 3, {}), 2),
                     over(of_kind("veth0", "veth", 4, {}), 1),
                     of_kind("bond0", "bond", 5, {}),
                     over(of_kind("bond0.7", "vlan", 6, {}), 5),
                     of_kind("eth2", "", 7, {})};
  netdevs[0].master_ifindex = 5;
  netdevs[0].master = "bond0";
  // eth1 itself, a VLAN, a macvlan on the VLAN; not the veth, which links to its peer; the bond of eth1 and a VLAN on
  // it.
  const std::vector<bool> expected = {true, true, true, false, true, true, false};
  for (std::size_t i = 0; i < netdevs.size(); ++i)
    EXPECT_EQ(fabric::is_stacked_on(netdevs, netdevs[i], netdevs[0]), expected[i]) << netdevs[i].name;
}

TEST(StackedOn, EndsAtALoop) {
  const Netdevs netdevs = {over(of_kind("a", "vlan", 1, {}), 2), over(of_kind("b", "vlan", 2, {}), 1),
                           of_kind("c", "", 3, {})};
  EXPECT_FALSE(fabric::is_stacked_on(netdevs, netdevs[0], netdevs[2]));
  EXPECT_FALSE(fabric::leaves_netns(netdevs, netdevs[0]));
}

TEST(LeavesNetns, IsTrueForStackedNetdevsWithALowerDeviceInAnotherNetns) {
  const Netdevs netdevs = {over(of_kind("net1", "macvlan", 2, {}), 9, 0),
                           over(of_kind("net1.5", "vlan", 3, {}), 2),
                           over(of_kind("eth0", "veth", 4, {}), 9, 0),
                           over(of_kind("ip0", "ipvlan", 5, {}), 9, 0),
                           of_kind("br0", "bridge", 6, {}),
                           over(of_kind("tun0", "vxlan", 7, {}), 9, 0),
                           over(of_kind("here", "macvlan", 8, {}), 6)};
  const std::vector<bool> expected = {true, true, false, true, false, false, false};
  for (std::size_t i = 0; i < netdevs.size(); ++i)
    EXPECT_EQ(fabric::leaves_netns(netdevs, netdevs[i]), expected[i]) << netdevs[i].name;
}

struct SearchCase {
  const char* name;
  Netdevs netdevs;
  std::optional<std::string> own;  // the port's netdev
  std::vector<const char*> found;
};

TEST(GidSearch, IsCompleteAfterTheLastGidOfThisNetns) {
  const Netdev eth0 = of_kind("eth0", "veth", 2, {"192.168.0.2"});
  const auto net1 = [](std::initializer_list<std::string_view> addresses, int lower = 70) {
    return over(of_kind("net1", "macvlan", 3, addresses), lower, 0);
  };
  const auto net2 = [](std::initializer_list<std::string_view> addresses, int lower, int netns = 0) {
    return over(of_kind("net2", "macvlan", 4, addresses), lower, netns);
  };
  const Netdev rail0 = of_kind("rail0", "", 3, {"10.0.0.1"});
  Netdev down = over(of_kind("rail0.5", "vlan", 4, {"10.5.0.1"}), 3);
  down.carrier = 0;
  Netdev elsewhere = of_kind("other", "", 5, {"10.6.0.1"});
  elsewhere.in_this_netns = false;
  Netdev slave = of_kind("eth1", "", 1, {});
  slave.master_ifindex = 5;
  slave.master = "bond0";
  Netdev loopback = netdev("lo", {"127.0.0.1"});
  loopback.type = 772;
  const std::vector<SearchCase> cases = {
      {"the port's netdev and a vlan on it",
       {eth0, of_kind("rail0", "", 3, {"10.0.0.1", "fe80::1"}), over(of_kind("rail0.5", "vlan", 4, {"10.5.0.1"}), 3)},
       "rail0",
       {"fe80::1", "10.0.0.1", "10.5.0.1"}},
      {"no GIDs of other netns and of down netdevs", {rail0, down, elsewhere}, "rail0", {"10.0.0.1"}},
      {"a slave has the GIDs of its bond", {slave, of_kind("bond0", "bond", 5, {"10.0.0.1"})}, "eth1", {"10.0.0.1"}},
      // The first GID of one of a pod's macvlans shows that it is on this port. GIDs of the other macvlans cannot
      // follow.
      {"the first macvlan found decides the group",
       {eth0, net1({"10.1.0.1", "fe80::1"}), net2({"10.2.0.1", "fe80::2"}, 71)},
       {},
       {"fe80::2", "10.2.0.1"}},
      {"two macvlans over one device", {net1({"10.1.0.1"}), net2({"10.2.0.1"}, 70)}, {}, {"10.1.0.1", "10.2.0.1"}},
      {"one address on two groups decides nothing",
       {net1({"fe80::1", "10.1.0.1"}), net2({"fe80::1", "10.2.0.1"}, 71)},
       {},
       {"fe80::1", "10.2.0.1"}},
      {"the same lower index in two netns", {net1({"10.1.0.1"}), net2({"10.2.0.1"}, 70, 1)}, {}, {"10.1.0.1"}},
      // A pod with a veth only owns no GID on a port with its netdev in another namespace. The scan reads no slot.
      {"veth, bridge and tunnel",
       {over(eth0, 9, 0), of_kind("docker0", "bridge", 3, {"172.17.0.1"}), of_kind("t0", "vxlan", 4, {"10.9.0.1"})},
       {},
       {}},
      // Without kinds (a file tree), every netdev may be on the port, so that the scan misses no GID.
      {"the stacking is not known",
       {netdev("eth0", {"192.168.0.2"}), netdev("net1", {"10.1.0.1"})},
       {},
       {"10.1.0.1", "192.168.0.2"}},
      {"loopback", {loopback}, {}, {}},
      {"no netdev", {}, {}, {}}};
  for (const SearchCase& one : cases) {
    SCOPED_TRACE(one.name);
    GidSearch search(one.netdevs, one.own);
    EXPECT_FALSE(search.any());
    for (const char* gid : one.found) {
      EXPECT_FALSE(search.complete()) << "before " << gid;
      search.found_v2(address(gid));
      EXPECT_TRUE(search.any());
    }
    EXPECT_TRUE(search.complete());
  }
  EXPECT_FALSE(GidSearch({over(eth0, 9, 0)}, "eth0").complete()) << "rxe on a veth: the veth is the port's own netdev";
}

TEST(GidSearch, IgnoresAGidOfAnotherNetns) {
  GidSearch search({of_kind("rail0", "", 3, {"10.0.0.1"})}, "rail0");
  search.found_v2(address("10.0.0.2"));
  EXPECT_FALSE(search.complete());
  EXPECT_FALSE(search.any());
}

}  // namespace
