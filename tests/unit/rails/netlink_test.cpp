#include "hook/rails/netlink/netlink.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <functional>

#include "hook/rails/netlink/links.hpp"
#include "hook/rails/netlink/vf.hpp"
#include "unit/rails/network_scene.hpp"

namespace hook {
namespace {

using fabric::UniqueFd;
using fabric::netlink::Attributes;
using fabric::netlink::Bytes;

using test_support::in_network_namespace;
using test_support::kNoMacvlan;
using test_support::make_veth;
using test_support::open_route;

// A namespace, a socket and a descriptor of it.
struct Place {
  Netlink route = open_route();
  UniqueFd netns{::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)};
};

// Two: the process ends up in the second.
std::pair<Place, Place> two_namespaces() {
  Place first;
  EXPECT_EQ(unshare(CLONE_NEWNET), 0);
  return {std::move(first), Place()};
}

// -1: there is none.
int index_of(Netlink& route, const char* name) {
  const auto link = find_link(route, name);
  EXPECT_TRUE(link) << link.error().message;
  return link && *link ? (*link)->ifindex : -1;
}

Link link_of(Netlink& route, const char* name) {
  auto link = find_link(route, name);
  if (link && *link) return std::move(**link);
  ADD_FAILURE() << "no `" << name << "`";
  return {};
}

// Attributes of a request, whose header is ifinfomsg.
Attributes attributes_of(const NetlinkMessage& message) {
  return to_message(nlmsg_hdr(message.get())).attributes(sizeof(ifinfomsg));
}

TEST(Netlink, RefusesWhatIsNoNetlinkSocket) {
  EXPECT_FALSE(Netlink::adopt(UniqueFd(), NETLINK_ROUTE));
  EXPECT_FALSE(Netlink::adopt(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)), NETLINK_ROUTE));
  UniqueFd other(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT));
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(Netlink::adopt(std::move(other), NETLINK_ROUTE)) << "of another protocol";
}

TEST(Netlink, OwnsWhatItAdopts) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  const int number = fd.get();
  {
    auto route = Netlink::adopt(std::move(fd), NETLINK_ROUTE);
    ASSERT_TRUE(route);
    EXPECT_EQ(route->fd(), number);
    EXPECT_EQ(index_of(*route, "lo"), 1);
  }
  EXPECT_EQ(fcntl(number, F_GETFD), -1) << "still open";
}

TEST(Netlink, TakesNoMessageForNoMemory) {
  Netlink route = open_route();
  const auto done = route.change(nullptr, "try it");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ENOMEM);
  EXPECT_EQ(done.error().message, "cannot try it: Cannot allocate memory");
}

TEST(Netlink, GivesUpARequestThatDoesNotFit) {
  RequestBuilder request(RTM_NEWLINK, 0, ifinfomsg{});
  const std::vector<std::uint8_t> much(3000);
  request.put(1, Bytes(much));
  request.put(1, Bytes(much));
  nlattr* nest = request.begin(2);
  request.end(nest);
  EXPECT_EQ(request.take(), nullptr);
}

TEST(Netlink, SaysWhatTheKernelSays) {
  in_network_namespace([] {
    Netlink route = open_route();
    make_veth(route, "v0", "v1");
    LinkChange change;
    change.mtu = 1 << 20;
    const auto done = change_link(route, index_of(route, "v0"), change);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, EINVAL);
    EXPECT_EQ(done.error().message, "cannot change `v0`: Invalid argument (mtu greater than device maximum)");
  });
}

TEST(Netlink, SkipsAnswersToOtherRequests) {
  in_network_namespace([] {
    Netlink route = open_route();
    // A request that nobody reads the answer of.
    struct {
      nlmsghdr header;
      ifinfomsg link;
    } request{};
    request.header = {sizeof request, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 12345, 0};
    ASSERT_EQ(::send(route.fd(), &request, sizeof request, 0), static_cast<ssize_t>(sizeof request));
    const auto missing = find_link(route, "v0");
    ASSERT_TRUE(missing) << missing.error().message;
    EXPECT_FALSE(*missing);
    EXPECT_EQ(index_of(route, "lo"), 1);
  });
}

TEST(Netlink, ListensToNobodyButTheKernel) {
  in_network_namespace([] {
    const auto first_sequence = static_cast<std::uint32_t>(time(nullptr));  // where libnl starts: easily guessed
    Netlink route = open_route();
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
    EXPECT_EQ(index_of(route, "v0"), -1);
  });
}

TEST(Links, AreFoundByNameAndIndex) {
  in_network_namespace([] {
    Netlink route = open_route();
    make_veth(route, "v0", "v1");
    const Link link = link_of(route, "v0");
    EXPECT_EQ(link.name, "v0");
    EXPECT_EQ(link.kind, "veth");
    EXPECT_EQ(link.mac.size(), 6U);
    EXPECT_EQ(link.mtu, 1500U);
    EXPECT_EQ(link.tx_queue_length, 1000U);
    EXPECT_FALSE(link.up);
    EXPECT_FALSE(link.running);
    EXPECT_EQ(link.lower_ifindex, index_of(route, "v1"));
    EXPECT_FALSE(link.lower_is_elsewhere);
    EXPECT_EQ(link.group, 0U);
    EXPECT_EQ(link.bus_address, "");
    const auto same = find_link(route, link.ifindex);
    ASSERT_TRUE(same && *same);
    EXPECT_EQ((*same)->name, "v0");
    for (const int none : {0, -1, 99999}) {
      const auto missing = find_link(route, none);
      EXPECT_TRUE(missing && !*missing) << none;
    }
    for (const char* none : {"", "v9", "v0/../v1", "a-name-of-sixteen", "v%d"}) {
      const auto missing = find_link(route, none);
      EXPECT_TRUE(missing && !*missing) << none;
    }
  });
}

TEST(Links, AreListedHoweverManyTheyAre) {
  in_network_namespace([] {
    Netlink route = open_route();
    for (int i = 0; i < 100; ++i)
      make_veth(route, fmt::format("a{}", i).c_str(), fmt::format("b{}", i).c_str());
    const auto links = all_links(route);
    ASSERT_TRUE(links) << links.error().message;
    const auto veths = std::count_if(links->begin(), links->end(), [](const Link& l) { return l.kind == "veth"; });
    EXPECT_EQ(veths, 200);
  });
}

TEST(Links, ChangeInOneMessage) {
  in_network_namespace([] {
    Netlink route = open_route();
    make_veth(route, "v0", "v1");
    LinkChange change;
    change.name = "rail0";
    change.mtu = 4096;
    change.mac = {2, 0, 0, 0, 0, 7};
    change.tx_queue_length = 50;
    change.group = 7;
    change.up = true;
    change.arp = ArpSettings{};
    const auto done = change_link(route, index_of(route, "v0"), change);
    ASSERT_TRUE(done) << done.error().message;
    const Link link = link_of(route, "rail0");
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
    change = {};
    change.up = false;
    EXPECT_TRUE(change_link(route, link.ifindex, change));
    EXPECT_FALSE(link_of(route, "rail0").up);
  });
}

TEST(Links, RefuseNamesThatTheKernelWouldTakeOtherwise) {
  in_network_namespace([] {
    Netlink route = open_route();
    make_veth(route, "v0", "v1");
    const int v0 = index_of(route, "v0");
    for (const char* name : {"", "v%d", "a/b", "a b", "a-name-of-sixteen", ".."}) {
      LinkChange change;
      change.name = name;
      const auto done = change_link(route, v0, change);
      ASSERT_FALSE(done) << name;
      EXPECT_EQ(done.error().code, EINVAL) << name;
    }
    EXPECT_EQ(index_of(route, "v0"), v0);
    EXPECT_FALSE(change_link(route, 0, {})) << "no index: the kernel would look for a name";
  });
}

TEST(Links, MoveUnderAnotherName) {
  in_network_namespace([] {
    auto [node, inside] = two_namespaces();
    make_veth(node.route, "v0", "v1");
    LinkChange change;
    change.netns = inside.netns.get();
    change.name = "rail0";
    change.up = false;
    const auto done = change_link(node.route, index_of(node.route, "v0"), change);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(index_of(node.route, "v0"), -1);
    const Link link = link_of(inside.route, "rail0");
    EXPECT_EQ(link.kind, "veth");
    EXPECT_TRUE(link.lower_is_elsewhere);
  });
}

TEST(Links, SayThatTheNameIsTakenWhereTheyMove) {
  in_network_namespace([] {
    auto [node, inside] = two_namespaces();
    make_veth(node.route, "v0", "v1");
    make_veth(inside.route, "rail0", "x");
    const int v0 = index_of(node.route, "v0");
    LinkChange change;
    change.netns = inside.netns.get();
    change.name = "rail0";
    const auto done = change_link(node.route, v0, change);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, EEXIST);
    EXPECT_NE(done.error().message.find("`rail0` is taken"), std::string::npos) << done.error().message;
    // Wherever the kernel left it, it is in one of the two.
    EXPECT_NE(index_of(node.route, "v0") == v0, index_of(inside.route, "v0") >= 0);
  });
}

TEST(Links, AreDeletedOnce) {
  in_network_namespace([] {
    Netlink route = open_route();
    make_veth(route, "v0", "v1");
    const int v0 = index_of(route, "v0");
    EXPECT_TRUE(delete_link(route, v0));
    EXPECT_EQ(index_of(route, "v1"), -1);
    EXPECT_TRUE(delete_link(route, v0)) << "there is none any more";
    EXPECT_FALSE(delete_link(route, 0));
    const auto lo = delete_link(route, 1);
    ASSERT_FALSE(lo);
    EXPECT_EQ(lo.error().code, EOPNOTSUPP);
    EXPECT_NE(lo.error().message.find("cannot delete `lo`"), std::string::npos) << lo.error().message;
  });
}

TEST(Links, AreDeletedByGroup) {
  in_network_namespace([] {
    Netlink route = open_route();
    LinkChange group;
    group.group = 0x7d000001;
    for (const char* name : {"a", "b", "c"}) {
      make_veth(route, name, (std::string(name) + "-peer").c_str());
      if (*name == 'c') continue;
      ASSERT_TRUE(change_link(route, index_of(route, name), group));
    }
    EXPECT_FALSE(delete_link_group(route, 0));
    EXPECT_TRUE(delete_link_group(route, 0x7d000001));
    EXPECT_EQ(index_of(route, "a"), -1);
    EXPECT_EQ(index_of(route, "b"), -1);
    EXPECT_GT(index_of(route, "c"), 0);
    EXPECT_TRUE(delete_link_group(route, 0x7d000001)) << "none any more";
  });
}

NewChild macvlan(int parent, const char* name) {
  NewChild child;
  child.name = name;
  child.parent = parent;
  return child;
}

// Ends the child when this kernel has no macvlan.
void need_macvlan(Netlink& route, int parent) {
  const auto made = create_child(route, macvlan(parent, "try"));
  if (!made && made.error().code == EOPNOTSUPP) _exit(kNoMacvlan);
  EXPECT_TRUE(made) << made.error().message;
  EXPECT_TRUE(delete_link(route, index_of(route, "try")));
}

TEST(Links, ChildrenAppearInTheOtherNamespaceAtOnce) {
  in_network_namespace([] {
    auto [node, inside] = two_namespaces();
    make_veth(node.route, "v0", "v1");
    const int parent = index_of(node.route, "v0");
    need_macvlan(node.route, parent);
    NewChild child = macvlan(parent, "rail0");
    child.mtu = 1400;
    child.mac = {2, 0, 0, 0, 0, 9};
    child.group = 42;
    child.netns = inside.netns.get();
    const auto made = create_child(node.route, child);
    ASSERT_TRUE(made) << made.error().message;
    const Link link = link_of(inside.route, "rail0");
    EXPECT_EQ(link.kind, "macvlan");
    EXPECT_EQ(link.mtu, 1400U);
    EXPECT_EQ(link.mac, std::vector<std::uint8_t>(child.mac->begin(), child.mac->end()));
    EXPECT_EQ(link.group, 42U);
    EXPECT_EQ(link.lower_ifindex, parent);
    EXPECT_TRUE(link.lower_is_elsewhere);
    EXPECT_EQ(index_of(node.route, "rail0"), -1);
    const auto again = create_child(node.route, child);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code, EEXIST);
    EXPECT_FALSE(again.error().hint.empty());
  });
}

TEST(Links, AChildMayHaveANameThatTheNodeHasToo) {
  in_network_namespace([] {
    auto [node, inside] = two_namespaces();
    make_veth(node.route, "v0", "rail0");
    const int parent = index_of(node.route, "v0");
    need_macvlan(node.route, parent);
    NewChild child = macvlan(parent, "rail0");
    child.netns = inside.netns.get();
    const auto made = create_child(node.route, child);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(link_of(inside.route, "rail0").kind, "macvlan");
    EXPECT_EQ(link_of(node.route, "rail0").kind, "veth");
    // The way that older kernels need, on any.
    child.name = "rail1";
    ASSERT_TRUE(node.route.change(child_request(child, 0x20000001), "make it"));
    EXPECT_EQ(link_of(inside.route, "rail1").ifindex, 0x20000001);
  });
}

TEST(Links, ChildrenThatCannotBeAreExplained) {
  in_network_namespace([] {
    Netlink route = open_route();
    make_veth(route, "v0", "v1");
    NewChild child = macvlan(index_of(route, "v0"), "rail0");
    child.kind = RailKind::kMove;
    EXPECT_FALSE(create_child(route, child));
    child.kind = RailKind::kMacvlan;
    child.name = "rail%d";
    EXPECT_FALSE(create_child(route, child));
    child.name = "rail0";
    child.kind = RailKind::kIpoib;  // no kernel makes one of a veth
    child.pkey = 0x8001;
    const auto made = create_child(route, child);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().message.rfind("cannot make ipoib `rail0` of `v0`: ", 0), 0U) << made.error().message;
    EXPECT_EQ(index_of(route, "rail0"), -1);
  });
}

TEST(Links, ChildRequestsSayTheKind) {
  NewChild child = macvlan(5, "rail0");
  const auto data_of = [&] {
    const NetlinkMessage message = child_request(child, 0);
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
  const NetlinkMessage message = child_request(child, 0);
  EXPECT_FALSE(attributes_of(message).has(IFLA_NET_NS_FD));
  EXPECT_FALSE(attributes_of(message).has(IFLA_GROUP));
}

// As the kernel reports VFs: two of them, the second with all that a driver can say.
NetlinkMessage link_with_vfs(std::uint16_t type) {
  ifinfomsg header{};
  header.ifi_type = type;
  RequestBuilder link(RTM_NEWLINK, 0, header);
  nlattr* list = link.begin(IFLA_VFINFO_LIST);
  for (const std::uint32_t vf : {0U, 1U}) {
    nlattr* info = link.begin(IFLA_VF_INFO);
    link.put(IFLA_VF_MAC, ifla_vf_mac{vf, {2, 0, 0, 0, 0, static_cast<std::uint8_t>(vf)}});
    link.put(IFLA_VF_VLAN, ifla_vf_vlan{vf, 100 * vf, vf});
    link.put(IFLA_VF_RATE, ifla_vf_rate{vf, 10 * vf, 1000 * vf});
    link.put(IFLA_VF_SPOOFCHK, ifla_vf_spoofchk{vf, vf == 0 ? 0xffffffffU : 1U});
    link.put(IFLA_VF_TRUST, ifla_vf_trust{vf, vf == 0 ? 0xffffffffU : 0U});
    link.put(IFLA_VF_LINK_STATE, ifla_vf_link_state{vf, IFLA_VF_LINK_STATE_ENABLE});
    nlattr* vlans = link.begin(IFLA_VF_VLAN_LIST);
    link.put(IFLA_VF_VLAN_INFO, ifla_vf_vlan_info{vf, 100 * vf, vf, htons(vf == 0 ? 0x8100 : 0x88a8)});
    link.end(vlans);
    if (type == ARPHRD_INFINIBAND) link.put(IFLA_VF_IB_NODE_GUID, ifla_vf_guid{vf, 0x1122334455667788});
    if (type == ARPHRD_INFINIBAND) link.put(IFLA_VF_IB_PORT_GUID, ifla_vf_guid{vf, 0x1122334455667789});
    link.end(info);
  }
  link.end(list);
  return link.take();
}

TEST(Vfs, AreReadAsTheDriverReportsThem) {
  const NetlinkMessage link = link_with_vfs(ARPHRD_ETHER);
  VfAttributes second;
  second.mac = MacAddress{2, 0, 0, 0, 0, 1};
  second.vlan = 100;
  second.qos = 1;
  second.vlan_protocol = 0x88a8;
  second.trust = false;
  second.spoofchk = true;
  second.link_state = IFLA_VF_LINK_STATE_ENABLE;
  second.min_tx_rate = 10;
  second.max_tx_rate = 1000;
  const auto vfs = vf_attributes(nlmsg_hdr(link.get()));
  ASSERT_EQ(vfs.size(), 2U);
  EXPECT_EQ(vfs.at(1), second);
  EXPECT_FALSE(vfs.at(0).trust) << "-1 is not reported";
  EXPECT_FALSE(vfs.at(0).spoofchk);
}

TEST(Vfs, OnlyWhatIsOtherThanBeforeIsSet) {
  const auto vfs = vf_attributes(nlmsg_hdr(link_with_vfs(ARPHRD_ETHER).get()));
  EXPECT_TRUE(changed_vf(vfs.at(1), vfs.at(1)).empty());
  VfAttributes now = vfs.at(1);
  now.vlan = 7;
  now.mac = MacAddress{6};
  VfAttributes changed;
  changed.vlan = 100;
  changed.mac = MacAddress{2, 0, 0, 0, 0, 1};
  EXPECT_EQ(changed_vf(vfs.at(1), now), changed);
  EXPECT_TRUE(changed_vf({}, vfs.at(1)).empty()) << "what was not known is left alone";
}

TEST(Vfs, OfInfiniBandHaveGuids) {
  const NetlinkMessage link = link_with_vfs(ARPHRD_INFINIBAND);
  VfAttributes second;
  second.link_state = IFLA_VF_LINK_STATE_ENABLE;
  second.node_guid = 0x1122334455667788;
  second.port_guid = 0x1122334455667789;
  EXPECT_EQ(vf_attributes(nlmsg_hdr(link.get())).at(1), second);
}

TEST(Vfs, AreChangedByOneMessageForEach) {
  const NetlinkMessage link = link_with_vfs(ARPHRD_ETHER);
  const VfAttributes wanted = vf_attributes(nlmsg_hdr(link.get())).at(1);
  std::string what;
  for (const VfRequest& request : vf_requests(9, 1, wanted)) {
    what += fmt::format("{},", request.what);
    const nlmsghdr* header = nlmsg_hdr(request.message.get());
    EXPECT_EQ(header->nlmsg_type, RTM_SETLINK);
    EXPECT_EQ(to_message(header).header<ifinfomsg>()->ifi_index, 9);
    const Attributes list(attributes_of(request.message).get(IFLA_VFINFO_LIST));
    const Bytes info = list.get(IFLA_VF_INFO);
    ASSERT_GE(info.size(), 8U);
    EXPECT_EQ(info[info[2] == IFLA_VF_VLAN_LIST ? 8 : 4], 1) << "the number of the VF in " << request.what;
  }
  EXPECT_EQ(what, "MAC,VLAN,rate,spoofchk,trust,link state,");
  EXPECT_TRUE(vf_requests(9, 1, {}).empty());
}

TEST(Vfs, OnlyOtherProtocolsNeedTheVlanList) {
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

TEST(Vfs, MissingOnesAreSaid) {
  in_network_namespace([] {
    Netlink route = open_route();
    make_veth(route, "v0", "v1");
    const int v0 = index_of(route, "v0");
    const auto read = read_vf(route, v0, 3);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message, "cannot read VF 3 of `v0`: it has no such VF");
    VfAttributes wanted;
    wanted.trust = true;
    const auto changed = change_vf(route, v0, 3, wanted);
    ASSERT_FALSE(changed);
    EXPECT_EQ(changed.error().code, EOPNOTSUPP);
    EXPECT_EQ(changed.error().message.rfind("cannot set trust of VF 3 of `v0`: ", 0), 0U) << changed.error().message;
    EXPECT_TRUE(change_vf(route, v0, 3, {})) << "nothing is asked";
    wanted = {};
    wanted.min_tx_rate = 5;
    EXPECT_FALSE(change_vf(route, v0, 3, wanted)) << "the other rate cannot be read";
  });
}

}  // namespace
}  // namespace hook
