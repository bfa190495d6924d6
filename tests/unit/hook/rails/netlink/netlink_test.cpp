// Netlink requests and the kernel's answers, in network namespaces of children and of the tests themselves. For RDMA
// netlink only the bytes of requests: guests with RDMA test the kernel's answers.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <rdma/rdma_netlink.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "hook/rails/netlink/links.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/netlink/rdma_devices.hpp"
#include "hook/rails/netlink/vf.hpp"
#include "unit/hook/ledger/scene.hpp"
#include "unit/hook/rails/network_scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using namespace fabric;
using namespace fabric::netlink;
using namespace test_support;

// A namespace, a socket and a descriptor of it.
struct Place {
  Netlink route = open_route();
  UniqueFd netns = own_netns();
};

// Moves the process into a new namespace.
Place enter_another_namespace() {
  EXPECT_EQ(unshare(CLONE_NEWNET), 0);
  return {};
}

// Returns the ifindex; -1: there is no such netdev.
int index_of(Netlink& route, const char* name) {
  const auto link = find_link(route, name);
  EXPECT_OK(link);
  return link && *link ? (*link)->ifindex : -1;
}

Link link_of(Netlink& route, const char* name) {
  return must(must(find_link(route, name)));
}

// Returns the attributes of a request with the header ifinfomsg.
Attributes attributes_of(const RequestBuilder& request) {
  return request.message().attributes(sizeof(ifinfomsg));
}

// With a veth pair v0 and v1, both down.
class Links : public NetnsTest {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    if (is_allowed_) make_veth(route_, "v0", "v1");
  }
};

TEST(Netlink, AdoptsOnlySocketsOfItsProtocol) {
  EXPECT_FALSE(Netlink::adopt(UniqueFd(), NETLINK_ROUTE));
  EXPECT_FALSE(Netlink::adopt(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)), NETLINK_ROUTE));
  UniqueFd other(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT));
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(Netlink::adopt(std::move(other), NETLINK_ROUTE)) << "of another protocol";
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  const int number = fd.get();
  {
    auto route = must(Netlink::adopt(std::move(fd), NETLINK_ROUTE));
    EXPECT_EQ(route.fd(), number);
    EXPECT_EQ(index_of(route, "lo"), 1);
  }
  EXPECT_EQ(fcntl(number, F_GETFD), -1) << "still open";
}

TEST(Netlink, RefusesRequestsThatAreTooLong) {
  Netlink route = open_route();
  RequestBuilder request(RTM_NEWLINK, 0, ifinfomsg{});
  const auto nest = request.begin(2);
  request.put(1, Bytes(std::vector<std::uint8_t>(RequestBuilder::kRoom)));
  request.end(nest);
  const auto done = route.change(request, "try it");
  EXPECT_EQ(error_code(done), ENOMEM);
  EXPECT_EQ(error_message(done), "cannot try it: Cannot allocate memory");
}

TEST_F(Links, ReportsExtendedAcknowledgement) {
  const auto done = change_link(route_, index_of(route_, "v0"), {.mtu = 1 << 20});
  EXPECT_EQ(error_code(done), EINVAL);
  EXPECT_EQ(error_message(done), "cannot change `v0`: Invalid argument (mtu greater than device maximum)");
}

TEST_F(Links, IgnoresAnswersToOtherRequests) {
  // The test does not read the answer to this request.
  struct {
    nlmsghdr header;
    ifinfomsg link;
  } request{};
  request.header = {sizeof request, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 12345, 0};
  ASSERT_EQ(::send(route_.fd(), &request, sizeof request, 0), static_cast<ssize_t>(sizeof request));
  EXPECT_FALSE(must(find_link(route_, "v9")));
  EXPECT_EQ(index_of(route_, "lo"), 1);
}

TEST_F(Links, IgnoresMessagesOfOtherProcesses) {
  Netlink route = open_route();
  EXPECT_EQ(index_of(route, "lo"), 1);         // binds the socket
  constexpr std::uint32_t first_sequence = 2;  // number of the next request: easy to guess
  sockaddr_nl victim{};
  socklen_t size = sizeof victim;
  ASSERT_EQ(getsockname(route.fd(), reinterpret_cast<sockaddr*>(&victim), &size), 0);
  const UniqueFd other(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  struct {
    nlmsghdr header;
    nlmsgerr error;
  } lie{};
  lie.error.error = -EBUSY;
  for (std::uint32_t guess = 0; guess < 4; ++guess) {
    lie.header = {sizeof lie, NLMSG_ERROR, 0, first_sequence + guess, victim.nl_pid};
    ASSERT_EQ(sendto(other.get(), &lie, sizeof lie, 0, reinterpret_cast<const sockaddr*>(&victim), size),
              static_cast<ssize_t>(sizeof lie));
  }
  EXPECT_EQ(index_of(route, "lo"), 1);
  EXPECT_EQ(index_of(route, "v9"), -1);
}

TEST_F(Links, AreFoundByNameAndIndex) {
  const Link link = link_of(route_, "v0");
  EXPECT_EQ(link.name, "v0");
  EXPECT_EQ(link.kind, "veth");
  EXPECT_EQ(link.mac.size(), 6U);
  EXPECT_EQ(link.mtu, 1500U);
  EXPECT_EQ(link.tx_queue_length, 1000U);
  EXPECT_FALSE(link.up);
  EXPECT_FALSE(link.running);
  EXPECT_EQ(link.lower_ifindex, index_of(route_, "v1"));
  EXPECT_FALSE(link.lower_netns);
  EXPECT_EQ(link.group, 0U);
  EXPECT_EQ(link.bus_address, "");
  EXPECT_EQ(must(must(find_link(route_, link.ifindex))).name, "v0");
  for (const int none : {0, -1, 99999})
    EXPECT_FALSE(must(find_link(route_, none))) << none;
  for (const char* none : {"", "v9", "v0/../v1", "a-name-of-sixteen", "v%d"})
    EXPECT_FALSE(must(find_link(route_, none))) << none;
}

TEST_F(Links, AreListedIfTheyNeedSeveralMessages) {
  for (int i = 1; i < 100; ++i)
    make_veth(route_, fmt::format("a{}", i).c_str(), fmt::format("b{}", i).c_str());
  const auto links = must(all_links(route_));
  const auto veths = std::count_if(links.begin(), links.end(), [](const Link& l) { return l.kind == "veth"; });
  EXPECT_EQ(veths, 200);
}

TEST_F(Links, ChangeInOneMessage) {
  LinkChange change;
  change.name = "rail0";
  change.mtu = 4096;
  change.mac = {2, 0, 0, 0, 0, 7};
  change.tx_queue_length = 50;
  change.group = 7;
  change.up = true;
  change.arp = ArpSettings{};
  ASSERT_OK(change_link(route_, index_of(route_, "v0"), change));
  const Link link = link_of(route_, "rail0");
  EXPECT_EQ(link.mtu, 4096U);
  EXPECT_EQ(link.mac, *change.mac);
  EXPECT_EQ(link.tx_queue_length, 50U);
  EXPECT_EQ(link.group, 7U);
  EXPECT_TRUE(link.up);
  EXPECT_FALSE(link.running) << "its peer is down";
  for (const auto& [name, value] : {std::pair("arp_ignore", 1), {"arp_announce", 2}, {"rp_filter", 2}}) {
    int found = -1;
    std::ifstream(fmt::format("/proc/sys/net/ipv4/conf/rail0/{}", name)) >> found;
    EXPECT_EQ(found, value) << name;
  }
  EXPECT_TRUE(change_link(route_, link.ifindex, {.up = false}));
  EXPECT_FALSE(link_of(route_, "rail0").up);
}

TEST_F(Links, RefuseNamesThatTheKernelInterprets) {
  const int v0 = index_of(route_, "v0");
  for (const char* name : {"", "v%d", "a/b", "a b", "a-name-of-sixteen", ".."})
    EXPECT_EQ(error_code(change_link(route_, v0, {.name = name})), EINVAL) << name;
  EXPECT_EQ(index_of(route_, "v0"), v0);
  EXPECT_FALSE(change_link(route_, 0, {})) << "without an index the kernel would use the name";
}

TEST_F(Links, MoveUnderAnotherName) {
  Place inside = enter_another_namespace();
  const LinkChange change{.name = "rail0", .up = false, .netns = inside.netns.get()};
  ASSERT_OK(change_link(route_, index_of(route_, "v0"), change));
  EXPECT_EQ(index_of(route_, "v0"), -1);
  const Link link = link_of(inside.route, "rail0");
  EXPECT_EQ(link.kind, "veth");
  EXPECT_TRUE(link.lower_netns);
}

TEST_F(Links, ReportNameThatIsTakenInTheTarget) {
  Place inside = enter_another_namespace();
  make_veth(inside.route, "rail0", "x");
  const int v0 = index_of(route_, "v0");
  const auto done = change_link(route_, v0, {.name = "rail0", .netns = inside.netns.get()});
  EXPECT_EQ(error_code(done), EEXIST);
  EXPECT_TRUE(has_text(error_message(done), "`rail0` is taken"));
  // The kernel may have moved the netdev or not: it is in one of the two namespaces.
  EXPECT_NE(index_of(route_, "v0") == v0, index_of(inside.route, "v0") >= 0);
}

TEST_F(Links, AreDeletedOnceAndByGroup) {
  const int v0 = index_of(route_, "v0");
  EXPECT_TRUE(delete_link(route_, v0));
  EXPECT_EQ(index_of(route_, "v1"), -1);
  EXPECT_TRUE(delete_link(route_, v0)) << "deleted already";
  EXPECT_FALSE(delete_link(route_, 0));
  const auto lo = delete_link(route_, 1);
  EXPECT_EQ(error_code(lo), EOPNOTSUPP);
  EXPECT_TRUE(has_text(error_message(lo), "cannot delete `lo`"));
  const LinkChange group{.group = 0x7d000001};
  for (const char* name : {"a", "b", "c"}) {
    make_veth(route_, name, (std::string(name) + "-peer").c_str());
    if (*name == 'c') continue;
    ASSERT_TRUE(change_link(route_, index_of(route_, name), group));
  }
  EXPECT_FALSE(delete_link_group(route_, 0));
  EXPECT_TRUE(delete_link_group(route_, 0x7d000001));
  EXPECT_EQ(index_of(route_, "a"), -1);
  EXPECT_EQ(index_of(route_, "b"), -1);
  EXPECT_GT(index_of(route_, "c"), 0);
  EXPECT_TRUE(delete_link_group(route_, 0x7d000001)) << "deleted already";
}

NewChild macvlan(int parent, const char* name) {
  return {.name = name, .parent = parent};
}

bool has_macvlan(Netlink& route, int parent) {
  const auto made = create_child(route, macvlan(parent, "try"));
  if (error_code(made) == EOPNOTSUPP) return false;
  EXPECT_OK(made);
  EXPECT_OK(delete_link(route, index_of(route, "try")));
  return true;
}

TEST_F(Links, MakeChildrenInAnotherNamespace) {
  Place inside = enter_another_namespace();
  const int parent = index_of(route_, "v0");
  if (!has_macvlan(route_, parent)) GTEST_SKIP() << "this kernel has no macvlan";
  NewChild child = macvlan(parent, "rail0");
  child.mtu = 1400;
  child.mac = {2, 0, 0, 0, 0, 9};
  child.group = 42;
  child.netns = inside.netns.get();
  ASSERT_OK(create_child(route_, child));
  const Link link = link_of(inside.route, "rail0");
  EXPECT_EQ(link.kind, "macvlan");
  EXPECT_EQ(link.mtu, 1400U);
  EXPECT_EQ(link.mac, std::vector<std::uint8_t>(child.mac->begin(), child.mac->end()));
  EXPECT_EQ(link.group, 42U);
  EXPECT_EQ(link.lower_ifindex, parent);
  EXPECT_TRUE(link.lower_netns);
  EXPECT_EQ(index_of(route_, "rail0"), -1);
  const auto again = create_child(route_, child);
  EXPECT_EQ(error_code(again), EEXIST);
  EXPECT_FALSE(error_hint(again).empty());
}

TEST_F(Links, MakeChildWithANameOfANodesNetdev) {
  Place inside = enter_another_namespace();
  make_veth(route_, "rail0", "x");
  const int parent = index_of(route_, "v0");
  if (!has_macvlan(route_, parent)) GTEST_SKIP() << "this kernel has no macvlan";
  NewChild child = macvlan(parent, "rail0");
  child.netns = inside.netns.get();
  ASSERT_OK(create_child(route_, child));
  EXPECT_EQ(link_of(inside.route, "rail0").kind, "macvlan");
  EXPECT_EQ(link_of(route_, "rail0").kind, "veth");
  // Tests the request for older kernels on any kernel.
  child.name = "rail1";
  ASSERT_TRUE(route_.change(child_request(child, 0x20000001), "make it"));
  EXPECT_EQ(link_of(inside.route, "rail1").ifindex, 0x20000001);
}

TEST_F(Links, ExplainRefusedChildren) {
  NewChild child = macvlan(index_of(route_, "v0"), "rail0");
  child.kind = RailKind::kMove;
  EXPECT_FALSE(create_child(route_, child));
  child.kind = RailKind::kMacvlan;
  child.name = "rail%d";
  EXPECT_FALSE(create_child(route_, child));
  child.name = "rail0";
  child.kind = RailKind::kIpoib;  // no kernel makes one on a veth
  child.pkey = 0x8001;
  const auto made = create_child(route_, child);
  ASSERT_FALSE(made);
  EXPECT_EQ(error_message(made).rfind("cannot make ipoib `rail0` of `v0`: ", 0), 0U) << error_message(made);
  EXPECT_EQ(index_of(route_, "rail0"), -1);
}

TEST_F(Links, MakeRequestsForEachKindOfChild) {
  NewChild child = macvlan(5, "rail0");
  const auto data_of = [&] {
    const RequestBuilder message = child_request(child, 0);
    const Bytes data = Attributes(attributes_of(message).get(IFLA_LINKINFO)).get(IFLA_INFO_DATA);
    return std::vector<std::uint8_t>(data.begin(), data.end());
  };
  EXPECT_EQ(data_of(), (std::vector<std::uint8_t>{8, 0, 1, 0, 4, 0, 0, 0})) << "macvlan: bridge";
  child.macvlan_private = true;
  EXPECT_EQ(data_of(), (std::vector<std::uint8_t>{8, 0, 1, 0, 1, 0, 0, 0})) << "macvlan: private";
  child.kind = RailKind::kIpvlan;
  EXPECT_EQ(data_of(), (std::vector<std::uint8_t>{6, 0, 1, 0, 0, 0, 0, 0, 6, 0, 2, 0, 0, 0, 0, 0})) << "ipvlan: l2";
  child.kind = RailKind::kIpoib;
  EXPECT_EQ(data_of(), (std::vector<std::uint8_t>{6, 0, 2, 0, 0, 0, 0, 0})) << "ipoib: datagram";
  child.pkey = 0x8001;
  EXPECT_EQ(data_of(), (std::vector<std::uint8_t>{6, 0, 1, 0, 1, 0x80, 0, 0, 6, 0, 2, 0, 0, 0, 0, 0}));
  const RequestBuilder message = child_request(child, 0);
  EXPECT_FALSE(attributes_of(message).has(IFLA_NET_NS_FD));
  EXPECT_FALSE(attributes_of(message).has(IFLA_GROUP));
}

// Makes a message about two VFs as the kernel does, the second with all attributes that a driver can report.
RequestBuilder link_with_vfs(std::uint16_t type) {
  ifinfomsg header{};
  header.ifi_type = type;
  RequestBuilder link(RTM_NEWLINK, 0, header);
  const auto list = link.begin(IFLA_VFINFO_LIST);
  for (const std::uint32_t vf : {0U, 1U}) {
    const auto info = link.begin(IFLA_VF_INFO);
    link.put(IFLA_VF_MAC, ifla_vf_mac{vf, {2, 0, 0, 0, 0, static_cast<std::uint8_t>(vf)}});
    link.put(IFLA_VF_VLAN, ifla_vf_vlan{vf, 100 * vf, vf});
    link.put(IFLA_VF_RATE, ifla_vf_rate{vf, 10 * vf, 1000 * vf});
    link.put(IFLA_VF_SPOOFCHK, ifla_vf_spoofchk{vf, vf == 0 ? 0xffffffffU : 1U});
    link.put(IFLA_VF_TRUST, ifla_vf_trust{vf, vf == 0 ? 0xffffffffU : 0U});
    link.put(IFLA_VF_LINK_STATE, ifla_vf_link_state{vf, IFLA_VF_LINK_STATE_ENABLE});
    const auto vlans = link.begin(IFLA_VF_VLAN_LIST);
    link.put(IFLA_VF_VLAN_INFO, ifla_vf_vlan_info{vf, 100 * vf, vf, htons(vf == 0 ? 0x8100 : 0x88a8)});
    link.end(vlans);
    if (type == ARPHRD_INFINIBAND) link.put(IFLA_VF_IB_NODE_GUID, ifla_vf_guid{vf, 0x1122334455667788});
    if (type == ARPHRD_INFINIBAND) link.put(IFLA_VF_IB_PORT_GUID, ifla_vf_guid{vf, 0x1122334455667789});
    link.end(info);
  }
  link.end(list);
  return link;
}

TEST(Vfs, ParseAndCompareReportedAttributes) {
  VfAttributes second;
  second.link_state = IFLA_VF_LINK_STATE_ENABLE;
  VfAttributes infiniband = second;
  infiniband.node_guid = 0x1122334455667788;
  infiniband.port_guid = 0x1122334455667789;
  EXPECT_EQ(vf_attributes(link_with_vfs(ARPHRD_INFINIBAND).message()).at(1), infiniband);
  second.mac = MacAddress{2, 0, 0, 0, 0, 1};
  second.vlan = 100;
  second.qos = 1;
  second.vlan_protocol = 0x88a8;
  second.trust = false;
  second.spoofchk = true;
  second.min_tx_rate = 10;
  second.max_tx_rate = 1000;
  const auto vfs = vf_attributes(link_with_vfs(ARPHRD_ETHER).message());
  ASSERT_EQ(vfs.size(), 2U);
  EXPECT_EQ(vfs.at(1), second);
  EXPECT_FALSE(vfs.at(0).trust) << "-1 is not reported";
  EXPECT_FALSE(vfs.at(0).spoofchk);
  EXPECT_TRUE(changed_vf(vfs.at(1), vfs.at(1)).empty());
  VfAttributes now = vfs.at(1);
  now.vlan = 7;
  now.mac = MacAddress{6};
  VfAttributes changed;
  changed.vlan = 100;
  changed.mac = MacAddress{2, 0, 0, 0, 0, 1};
  EXPECT_EQ(changed_vf(vfs.at(1), now), changed);
  EXPECT_TRUE(changed_vf({}, vfs.at(1)).empty()) << "unknown attributes are not changed";
}

TEST(Vfs, ChangeEachAttributeByOneMessage) {
  const VfAttributes wanted = vf_attributes(link_with_vfs(ARPHRD_ETHER).message()).at(1);
  std::string what;
  for (const VfRequest& request : vf_requests(9, 1, wanted)) {
    what += fmt::format("{},", request.what);
    EXPECT_EQ(request.message.message().type, RTM_SETLINK);
    EXPECT_EQ(request.message.message().header<ifinfomsg>()->ifi_index, 9);
    const Attributes list(attributes_of(request.message).get(IFLA_VFINFO_LIST));
    const Bytes info = list.get(IFLA_VF_INFO);
    ASSERT_GE(info.size(), 8U);
    EXPECT_EQ(info[info[2] == IFLA_VF_VLAN_LIST ? 8 : 4], 1) << "the number of the VF in " << request.what;
  }
  EXPECT_EQ(what, "MAC,VLAN,rate,spoofchk,trust,link state,");
  EXPECT_TRUE(vf_requests(9, 1, {}).empty());
}

TEST(Vfs, UseVlanListOnlyForOtherProtocols) {
  VfAttributes wanted;
  wanted.vlan = 7;
  const auto info_of = [&] {
    const auto requests = vf_requests(9, 3, wanted);
    EXPECT_EQ(requests.size(), 1U);
    const Bytes info = Attributes(attributes_of(requests.at(0).message).get(IFLA_VFINFO_LIST)).get(IFLA_VF_INFO);
    return std::vector<std::uint8_t>(info.begin(), info.end());
  };
  EXPECT_EQ(info_of(), (std::vector<std::uint8_t>{16, 0, IFLA_VF_VLAN, 0, 3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0}));
  wanted.vlan_protocol = 0x88a8;
  const auto list = info_of();
  ASSERT_EQ(list.size(), 24U);
  EXPECT_EQ(list[2], IFLA_VF_VLAN_LIST);
  EXPECT_EQ(list[20], 0x88) << "network byte order";
  EXPECT_EQ(list[21], 0xa8);
}

TEST_F(Links, ReportMissingVf) {
  const int v0 = index_of(route_, "v0");
  EXPECT_EQ(error_message(read_vf(route_, v0, 3)), "cannot read VF 3 of `v0`: it has no such VF");
  VfAttributes wanted;
  wanted.trust = true;
  const auto changed = change_vf(route_, v0, 3, wanted);
  EXPECT_EQ(error_code(changed), EOPNOTSUPP);
  EXPECT_EQ(error_message(changed).rfind("cannot set trust of VF 3 of `v0`: ", 0), 0U) << error_message(changed);
  EXPECT_TRUE(change_vf(route_, v0, 3, {})) << "no attribute is set";
  wanted = {};
  wanted.min_tx_rate = 5;
  EXPECT_FALSE(change_vf(route_, v0, 3, wanted)) << "the other rate cannot be read";
}

constexpr NetnsParts kAll{.packet = true, .sysfs = true};

UniqueFd open_path(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

ino_t inode_of(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

std::ptrdiff_t count_descriptors() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

// A process in its own namespace, in which the loopback is down.
class OpenNetns : public testing::Test {
 protected:
  void SetUp() override {
    if (inode_of(open_path(path()).get()) == inode_of(own_netns().get()))
      GTEST_SKIP() << "unshare(CLONE_NEWNET) is not allowed here";
  }
  std::string path() const { return "/proc/" + std::to_string(process_.identity().pid) + "/ns/net"; }
  NetworkNamespace open() const { return must(open_network_namespace(open_path(path()), kAll)); }

  Child process_{[] { (void)unshare(CLONE_NEWNET); }};
};

// Returns "name" or "name up" for each netdev of the socket's namespace.
std::vector<std::string> netdevs(Netlink& route) {
  std::vector<std::string> names;
  ifinfomsg header{};
  RequestBuilder request(RTM_GETLINK, NLM_F_DUMP, header);
  const auto done = route.read(request, "list netdevs", [&](const Message& message) {
    const auto* info = message.header<ifinfomsg>();
    const auto name = message.attributes(sizeof *info).text(IFLA_IFNAME);
    names.push_back(name.value_or("?") + ((info->ifi_flags & IFF_UP) != 0 ? " up" : ""));
  });
  EXPECT_OK(done);
  return names;
}

TEST_F(OpenNetns, OpensSocketsOfTheNamespace) {
  const ino_t own = inode_of(own_netns().get());
  auto opened = open();
  auto here = must(Netlink::open(NETLINK_ROUTE));
  // The loopback inside is down. Setting it up there does not change the one of this namespace.
  const auto before = netdevs(here);
  EXPECT_EQ(netdevs(opened.route).at(0), "lo");
  ifinfomsg up{};
  up.ifi_index = 1;
  up.ifi_flags = up.ifi_change = IFF_UP;
  ASSERT_OK(opened.route.change(RequestBuilder(RTM_NEWLINK, 0, up), "set lo up"));
  EXPECT_EQ(netdevs(opened.route).at(0), "lo up");
  EXPECT_EQ(netdevs(here), before);
  EXPECT_EQ(inode_of(opened.netns.get()), inode_of(open_path(path()).get()));
  EXPECT_EQ(inode_of(own_netns().get()), own) << "this process has not changed its namespace";
}

// The sockets keep the namespace alive, and children do not inherit their descriptors.
TEST_F(OpenNetns, SocketsWorkAfterItsProcessesEnd) {
  auto opened = open();
  process_.kill();
  EXPECT_EQ(netdevs(opened.route).at(0), "lo");
  for (const int fd : {opened.route.fd(), opened.packet.get(), opened.sysfs.get()})
    EXPECT_TRUE(fd < 0 || (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_F(OpenNetns, PacketSocketIsRawAndNotBound) {
  const auto opened = open();
  if (!opened.packet.ok()) GTEST_SKIP() << "this kernel gives no packet socket";
  sockaddr_ll address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(getsockname(opened.packet.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(address.sll_protocol, 0);
  int type = 0;
  size = sizeof type;
  ASSERT_EQ(getsockopt(opened.packet.get(), SOL_SOCKET, SO_TYPE, &type, &size), 0);
  EXPECT_EQ(type, SOCK_RAW);
}

TEST_F(OpenNetns, OpensReadOnlySysfsOfTheNamespace) {
  auto opened = open();
  if (!opened.sysfs.ok()) GTEST_SKIP() << "this kernel gives no detached sysfs";
  const std::string classes = fmt::format("/proc/self/fd/{}/class/net", opened.sysfs.get());
  EXPECT_TRUE(fs::exists(classes + "/lo"));
  const auto links = std::count_if(fs::directory_iterator(classes), fs::directory_iterator(),
                                   [](const auto& entry) { return entry.is_symlink(); });  // bonding_masters is a file
  EXPECT_EQ(static_cast<std::size_t>(links), netdevs(opened.route).size());
  EXPECT_LT(openat(opened.sysfs.get(), "class/net/lo/mtu", O_WRONLY | O_CLOEXEC), 0);
  EXPECT_EQ(errno, EROFS);
}

TEST_F(OpenNetns, LeavesNoDescriptorOrProcess) {
  const auto before = count_descriptors();
  { ASSERT_TRUE(open_network_namespace(open_path(path()), kAll)); }
  ASSERT_FALSE(open_network_namespace(open_path("/dev/null"), kAll));
  EXPECT_EQ(count_descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), 0) << "only the process of the namespace is left";
}

TEST_F(OpenNetns, RunsAFunctionInside) {
  const UniqueFd netns = open_path(path());
  const ino_t inside = inode_of(netns.get());
  const auto check = [&]() -> base::Result<void> {
    if (inode_of(open_path("/proc/self/ns/net").get()) == inside) return {};
    return base::make_error("elsewhere");
  };
  EXPECT_OK(run_in_network_namespace(netns.get(), check));
  EXPECT_EQ(check().error().message, "elsewhere");
  const auto failed = run_in_network_namespace(netns.get(), []() -> base::Result<void> {
    return base::Error{"failed inside", EBUSY, "a hint"};
  });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "failed inside");
  EXPECT_EQ(failed.error().code, EBUSY);
  EXPECT_EQ(failed.error().hint, "a hint");
  const auto died = run_in_network_namespace(netns.get(), []() -> base::Result<void> { _exit(7); });
  ASSERT_FALSE(died);
  EXPECT_TRUE(has_text(died.error().message, "ended with exit status 7"));
}

// Only an error that means "not supported" makes a part optional.
TEST_F(OpenNetns, FailsIfTheKernelRefusesAPartThatItHas) {
  const auto code_without = [&](int call, int code, unsigned argument, std::uint32_t value) {
    return in_child([&] {
      deny(call, code, argument, value);
      const auto opened = open_network_namespace(open_path(path()), kAll);
      return opened ? 0 : opened.error().code;
    });
  };
  EXPECT_EQ(code_without(SYS_socket, ENOMEM, 2, NETLINK_RDMA), ENOMEM);
  EXPECT_EQ(code_without(SYS_socket, EPROTONOSUPPORT, 2, NETLINK_RDMA), 0);
  EXPECT_EQ(code_without(SYS_fsopen, ENOMEM, 1, FSOPEN_CLOEXEC), ENOMEM);
  EXPECT_EQ(code_without(SYS_fsopen, ENOSYS, 1, FSOPEN_CLOEXEC), 0);
}

TEST(OpenNetnsRefusals, RefusesOtherDescriptors) {
  for (const char* path : {"/dev/null", "/proc/self/ns/mnt", "/proc/self/stat", "/"}) {
    const auto opened = open_network_namespace(open_path(path), kAll);
    EXPECT_EQ(error_code(opened), EINVAL) << path;
    EXPECT_TRUE(has_text(error_message(opened), "is no network namespace")) << path;
  }
  EXPECT_EQ(error_code(open_network_namespace(UniqueFd(), kAll)), EBADF);
}

// Returns client and command, then each attribute as "type=hex".
std::string shown(const RequestBuilder& request) {
  const Message message = request.message();
  std::string text = fmt::format("client {} command {}:", message.type >> 10, message.type & 1023);
  const bool is_whole = each_attribute(message.payload, [&](unsigned type, Bytes value) {
    text += fmt::format(" {}=", type & kTypeMask);
    for (const unsigned byte : value)
      text += fmt::format("{:02x}", byte);
  });
  return is_whole ? text : text + " and a rest";
}

// Numbers of include/uapi/rdma/rdma_netlink.h: NLDEV is client 5; SET 2, NEWLINK 3, DELLINK 4; DEV_INDEX 1, DEV_NAME 2,
// NDEV_NAME 51, LINK_TYPE 65, NET_NS_FD 68.
TEST(RdmaDevices, MakeRequestsAndParseNodeGuids) {
  EXPECT_EQ(shown(rdma_move_request(3, 17)), "client 5 command 2: 1=03000000 68=11000000");
  EXPECT_EQ(shown(rdma_rename_request(3, "mlx5_0")), "client 5 command 2: 1=03000000 2=6d6c78355f3000");
  EXPECT_EQ(shown(rdma_link_request("rxe0", "rxe", "net1")),
            "client 5 command 3: 2=7278653000 65=72786500 51=6e65743100");
  EXPECT_EQ(shown(rdma_unlink_request(258)), "client 5 command 4: 1=02010000");
  EXPECT_EQ(parse_node_guid("5054:00ff:fe12:3456"), 0x505400fffe123456U);
  EXPECT_EQ(parse_node_guid("0000:0000:0000:0000"), 0U);
  EXPECT_EQ(parse_node_guid(""), 0U);
  EXPECT_EQ(node_guid_of_mac({0x52, 0x54, 0x00, 0x12, 0x34, 0x56}), 0x505400fffe123456U);
  EXPECT_EQ(node_guid_of_mac(std::vector<std::uint8_t>(20)), 0U) << "IPoIB";
}

TEST(RdmaDevices, ExplainRefusals) {
  const std::tuple<int, std::optional<bool>, const char*> cases[] = {{EOPNOTSUPP, true, "netns_mode=0"},
                                                                     {EOPNOTSUPP, false, "netns shared"},
                                                                     {EOPNOTSUPP, std::nullopt, "netns shared"},
                                                                     {EBUSY, false, "rdma resource show"},
                                                                     {EPERM, false, "CAP_NET_ADMIN"},
                                                                     {EEXIST, false, "rdma dev set"}};
  const auto explain = [](int code, std::optional<bool> shared) {
    return explain_rdma_move(Error{"cannot move RDMA device 3", code, {}}, shared);
  };
  for (const auto& [code, is_shared, hint] : cases)
    EXPECT_TRUE(has_text(explain(code, is_shared).hint, hint)) << code;
  EXPECT_EQ(explain(EIO, false).hint, "");
  const Error shared = explain(EOPNOTSUPP, true);
  EXPECT_EQ(shared.message, "cannot move RDMA device 3; the RDMA subsystem is shared between network namespaces");
  EXPECT_EQ(shared.code, EOPNOTSUPP);
  EXPECT_EQ(explain_rdma_link(Error{"x", EINVAL, {}}, "rxe").hint, "run `modprobe rdma_rxe` or `modprobe rxe`");
  EXPECT_TRUE(has_text(explain_rdma_link(Error{"x", ENODEV, {}}, "rxe").hint, "this network namespace"));
  EXPECT_TRUE(has_text(explain_rdma_link(Error{"x", EEXIST, {}}, "siw").hint, "rdma link"));
  // assign_name() of the kernel returns ENFILE: "Too many open files in system".
  const auto refusal = [](const char* what) { return base::sys_error(ENFILE, "cannot {}", what); };
  const std::string meant = "an RDMA device has this name, and names are unique over all network namespaces";
  for (const Error& error : {explain_rdma_link(refusal("make rxe device `rxe0` on `net1`"), "rxe"),
                             explain_rdma_rename(refusal("rename RDMA device 3 to `rxe0`")),
                             explain_rdma_move(refusal("move RDMA device 3"), false)}) {
    EXPECT_TRUE(error.message.ends_with(": " + meant)) << error.message;
    EXPECT_EQ(error.code, ENFILE);
    EXPECT_TRUE(has_text(error.hint, "rdma dev set OLD name NEW"));
  }
}

// The kernel would cut a name that is too long, and rename or make another device.
TEST(RdmaDevices, CheckNamesBeforeSending) {
  auto socket = Netlink::open(NETLINK_ROUTE);  // another protocol, because no request may be sent
  if (!socket) GTEST_SKIP() << socket.error().message;
  for (const std::string& name : {std::string(), std::string(64, 'a'), std::string("a b"), std::string("../a"),
                                  std::string("rxe%d"), std::string(".."), std::string("a\n")}) {
    const auto renamed = rename_rdma_device(*socket, 1, name);
    const auto made = create_rdma_link(*socket, name, "rxe", "net1");
    ASSERT_FALSE(renamed || made) << name;
    EXPECT_TRUE(has_text(renamed.error().message, "is no name of an RDMA device"));
    EXPECT_EQ(made.error().message, renamed.error().message);
  }
  EXPECT_EQ(error_message(create_rdma_link(*socket, "rxe0", "rxe", "a-netdev-of-16-b")),
            "cannot use `a-netdev-of-16-`: it is no name of a netdev");
}

}  // namespace
}  // namespace hook
