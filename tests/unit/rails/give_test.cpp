// Rails that are given and taken back between two network namespaces of this kernel; the node's netdevs are ends of
// veth pairs. RDMA devices that move: hook_infiniband_test.cpp, and the guests of tests/vm.
#include "hook/rails/give.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/if_link.h>
#include <linux/pkt_sched.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hook/rails/address/pool.hpp"
#include "hook/rails/netlink/links.hpp"
#include "hook/rails/netlink/netdev_settings.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/record/store.hpp"
#include "hook/rails/undo.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "unit/ledger/scene.hpp"
#include "unit/rails/network_scene.hpp"

namespace hook {
namespace {

using fabric::Result;
using fabric::UniqueFd;

class RailsScene {
 public:
  // The process ends up in the node's namespace, which is a new one as the container's is.
  RailsScene() {
    EXPECT_EQ(::unshare(CLONE_NEWNET), 0);
    inside_ = UniqueFd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    inside_route_.emplace(test_support::open_route());
    EXPECT_EQ(::unshare(CLONE_NEWNET), 0);
    route_.emplace(test_support::open_route());
    test_support::make_veth(*route_, "rail0", "peer0");
    test_support::make_veth(*route_, "rail1", "peer1");
    Network network;
    network.name = "lab";
    const auto at = [](const char* text) { return *fabric::parse_address(text); };
    network.ranges = {{std::nullopt, at("10.9.0.0"), 24, at("10.9.0.5"), at("10.9.0.6"), std::nullopt}};
    config_.networks["lab"] = network;
    struct stat status {};
    EXPECT_EQ(::fstat(inside_.get(), &status), 0);
    netns_ = {status.st_dev, status.st_ino, fmt::format("/proc/self/fd/{}", inside_.get())};
    owner_ = netns_owner(netns_);
  }

  Result<RailsReport> give(unsigned rails) {
    Plan plan;
    for (unsigned i = 0; i < rails; ++i)
      plan.netdevs.push_back({fmt::format("rail{}", i), "", Mode::kExclusive, fmt::format("mlx5_{}", i), i, "lab"});
    const auto inventory = test_support::rails(rails);
    const auto ledger = TRY(Ledger::open(path_));
    Timing timing;
    RailsInput input{.plan = plan,
                     .config = config_,
                     .inventory = inventory,
                     .ledger = ledger,
                     .ledger_directory = path_,
                     .sys = "/sys",
                     .owner = owner_,
                     .netns = netns_,
                     .netns_fd = UniqueFd(::fcntl(inside_.get(), F_DUPFD_CLOEXEC, 0)),
                     .hurried = true};
    return give_rails(std::move(input), timing);
  }
  // As a pod's container that has its grant.
  Result<void> book() {
    const auto ledger = TRY(Ledger::open(path_));
    TRY_VOID(test_support::book(ledger, owner_, {test_support::kAlone}, {"c-1", "c-1", test_support::myself()}));
    return ledger.settle(owner_.key);
  }
  Result<void> give_back() {
    const auto ledger = TRY(Ledger::open(path_, std::make_shared<NodeRails>(path_, nullptr)));
    return ledger.give_back(owner_.key);
  }
  bool has_grant() { return Ledger::open(path_)->find(owner_.key)->has_value(); }
  Result<void> take_back(const std::vector<PlannedHca>& held = {}) {
    const NodeRails rails(path_, nullptr);
    auto done = rails.undo_beyond(owner_.key, held, nullptr);
    warnings_ = rails.take_warnings();
    return done;
  }
  void end_container() {
    inside_route_.reset();
    inside_.reset();
  }

  static std::string names(Netlink& route) {
    std::string text;
    const auto links = all_links(route);
    EXPECT_TRUE(links);
    for (const Link& link : *links) {
      if (link.name != "lo" && !link.name.starts_with("peer")) text += (text.empty() ? "" : " ") + link.name;
    }
    return text;
  }
  std::string node() { return names(*route_); }
  std::string inside() { return names(*inside_route_); }
  Netlink& route() { return *route_; }
  void join() { ASSERT_EQ(::setns(inside_.get(), CLONE_NEWNET), 0); }
  // As a process of the container.
  void do_inside(const std::function<void()>& what) {
    const UniqueFd home(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    join();
    what();
    ASSERT_EQ(::setns(home.get(), CLONE_NEWNET), 0);
  }
  Netlink& inside_route() { return *inside_route_; }
  bool has_record() const { return *NetworkRecordStore::look_at(path_, owner_.key) == Presence::kPresent; }
  std::size_t addresses() const { return AddressPool::open(path_)->list()->size(); }
  const std::vector<std::string>& warnings() const { return warnings_; }
  Config& config() { return config_; }
  const std::string& path() const { return path_; }

 private:
  test_support::TempDir directory_;
  std::string path_ = directory_ / "ledger";
  UniqueFd inside_;
  std::optional<Netlink> inside_route_;
  std::optional<Netlink> route_;
  Config config_;
  NetnsIdentity netns_;
  Owner owner_;
  std::vector<std::string> warnings_;
};

void with_rails(const std::function<void(RailsScene&)>& body) {
  test_support::in_network_namespace([&] {
    RailsScene scene;
    body(scene);
  });
}

#define ASSERT_DONE(expression)                  \
  do {                                           \
    const auto done_ = (expression);             \
    ASSERT_TRUE(done_) << done_.error().message; \
  } while (false)

TEST(GiveRails, NetdevsMoveInWithAnAddressAndComeBack) {
  with_rails([](RailsScene& scene) {
    ASSERT_DONE(scene.give(2));
    EXPECT_EQ(scene.inside(), "net1 net2");
    EXPECT_EQ(scene.node(), "");
    EXPECT_TRUE(scene.has_record());
    EXPECT_EQ(scene.addresses(), 2U);
    ASSERT_DONE(scene.take_back());
    EXPECT_EQ(scene.inside(), "");
    EXPECT_EQ(scene.node(), "rail0 rail1");
    EXPECT_FALSE(scene.has_record());
    EXPECT_EQ(scene.addresses(), 0U);
    ASSERT_DONE(scene.take_back());  // nothing is there
  });
}

TEST(GiveRails, WhatTheGrantHasIsLeftAsItIs) {
  with_rails([](RailsScene& scene) {
    ASSERT_DONE(scene.give(1));
    ASSERT_DONE(scene.give(1));
    EXPECT_EQ(scene.inside(), "net1");
    ASSERT_DONE(scene.give(2));
    EXPECT_EQ(scene.inside(), "net1 net2");
    EXPECT_EQ(scene.addresses(), 2U);
  });
}

TEST(GiveRails, ARailWithoutAddressIsWarnedOf) {
  with_rails([](RailsScene& scene) {
    scene.config().networks["lab"].ranges.clear();
    const auto rail = find_link(scene.route(), "rail1");
    ASSERT_TRUE(rail && *rail);
    ASSERT_DONE(add_records(scene.route(), {address_record((*rail)->ifindex, test_support::address("10.9.0.1"), 24)}));
    const auto given = scene.give(2);
    ASSERT_TRUE(given) << given.error().message;
    ASSERT_FALSE(given->warnings.empty());
    EXPECT_TRUE(given->warnings[0].starts_with("no address for net1 (mlx5_0): ")) << given->warnings[0];
  });
}

TEST(GiveRails, AFailureHalfWayIsUndoneFromItsRecord) {
  with_rails([](RailsScene& scene) {
    scene.config().networks["lab"].ranges[0].to = scene.config().networks["lab"].ranges[0].from;
    const auto given = scene.give(2);
    ASSERT_FALSE(given) << "one address for two rails";
    EXPECT_TRUE(scene.has_record()) << "written before anything was taken";
    ASSERT_DONE(scene.take_back());
    EXPECT_EQ(scene.node(), "rail0 rail1");
    EXPECT_EQ(scene.addresses(), 0U);
    EXPECT_FALSE(scene.has_record());
  });
}

TEST(ReturnRails, WhatIsHeldStays) {
  with_rails([](RailsScene& scene) {
    ASSERT_DONE(scene.give(2));
    ASSERT_DONE(scene.take_back({{"mlx5_1", Mode::kExclusive, 1, std::nullopt}}));
    EXPECT_EQ(scene.node(), "rail0");
    EXPECT_EQ(scene.inside(), "net2");
    EXPECT_TRUE(scene.has_record());
    EXPECT_EQ(scene.addresses(), 1U);
  });
}

TEST(ReturnRails, ASoftwareNetdevDiesWithItsNamespaceAndThatIsSaid) {
  with_rails([](RailsScene& scene) {
    ASSERT_DONE(scene.give(1));
    scene.end_container();
    ASSERT_DONE(scene.take_back());
    EXPECT_EQ(scene.warnings().size(), 1U);
    EXPECT_FALSE(scene.has_record());
    EXPECT_EQ(scene.addresses(), 0U);
  });
}

// What a tenant can do with `ip`: each is a request of its own.
void set_alias(Netlink& route, int ifindex, std::string_view alias) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  request.put(IFLA_IFALIAS, alias);
  ASSERT_DONE(route.change(request.take(), "set alias"));
}

void change_name(Netlink& route, int type, int ifindex, std::string_view name) {
  RequestBuilder request(type, type == RTM_NEWLINKPROP ? NLM_F_CREATE | NLM_F_EXCL : 0, link_header(ifindex));
  nlattr* list = request.begin(IFLA_PROP_LIST | NLA_F_NESTED);
  request.put(IFLA_ALT_IFNAME, name);
  request.end(list);
  ASSERT_DONE(route.change(request.take(), "change alternative name"));
}

void set_flags(Netlink& route, int ifindex, unsigned flags) {
  ifinfomsg header = link_header(ifindex);
  header.ifi_change = header.ifi_flags = flags;
  ASSERT_DONE(route.change(RequestBuilder(RTM_SETLINK, 0, header).take(), "set flags"));
}

void set_number(Netlink& route, int ifindex, int attribute, std::uint32_t value) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  request.put(attribute, value);
  ASSERT_DONE(route.change(request.take(), "set number"));
}

// A program that passes everything. -1: none can be loaded here.
int load_program(bpf_prog_type type) {
  constexpr std::uint8_t kMove = BPF_ALU64 | BPF_MOV | BPF_K;
  constexpr std::uint8_t kExit = BPF_JMP | BPF_EXIT;
  const bpf_insn program[] = {{kMove, 0, 0, 0, XDP_PASS}, {kExit, 0, 0, 0, 0}};
  bpf_attr attr{};
  attr.prog_type = type;
  attr.insns = reinterpret_cast<std::uint64_t>(program);
  attr.insn_cnt = std::size(program);
  attr.license = reinterpret_cast<std::uint64_t>("GPL");
  return static_cast<int>(::syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof attr));
}

int load_xdp() {
  return load_program(BPF_PROG_TYPE_XDP);
}

void attach_xdp(Netlink& route, int ifindex, std::uint32_t flags) {
  const UniqueFd program(load_xdp());
  if (!program.ok()) return;
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  nlattr* xdp = request.begin(IFLA_XDP | NLA_F_NESTED);
  request.put(IFLA_XDP_FD, program.get());
  request.put(IFLA_XDP_FLAGS, flags);
  request.end(xdp);
  ASSERT_DONE(route.change(request.take(), "attach XDP program"));
}

LinkSettings settings_of(Netlink& route, const char* name) {
  const auto link = find_link(route, name);
  EXPECT_TRUE(link && *link) << name;
  return link && *link ? (*link)->settings : LinkSettings();
}

int index_of(Netlink& route, const char* name) {
  const auto link = find_link(route, name);
  return link && *link ? (*link)->ifindex : 0;
}

// With another one ARP is heard by nobody.
void set_broadcast(Netlink& route, int ifindex) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  request.put(IFLA_BROADCAST, MacAddress{0xff, 0xff, 0xff, 0xff, 0xff, 0xfe});
  ASSERT_DONE(route.change(request.take(), "set broadcast address"));
}

void mistreat(Netlink& route, int ifindex) {
  set_broadcast(route, ifindex);
  set_alias(route, ifindex, "\x1b[2J owned");
  set_flags(route, ifindex, IFF_PROMISC | IFF_ALLMULTI | IFF_NOARP);
  set_number(route, ifindex, IFLA_GSO_MAX_SIZE, 4000);
  set_number(route, ifindex, IFLA_GSO_MAX_SEGS, 2);
  set_number(route, ifindex, IFLA_GROUP, 77);
  change_name(route, RTM_DELLINKPROP, ifindex, "enp1");
  change_name(route, RTM_NEWLINKPROP, ifindex, "mine");
  attach_xdp(route, ifindex, XDP_FLAGS_SKB_MODE);
}

TEST(ReturnRails, WhatTheTenantSetIsUndone) {
  with_rails([](RailsScene& scene) {
    const int rail = index_of(scene.route(), "rail0");
    set_alias(scene.route(), rail, "rack 7");
    change_name(scene.route(), RTM_NEWLINKPROP, rail, "enp1");
    const LinkSettings before = settings_of(scene.route(), "rail0");
    ASSERT_DONE(scene.give(1));
    mistreat(scene.inside_route(), index_of(scene.inside_route(), "net1"));
    EXPECT_NE(settings_of(scene.inside_route(), "net1"), before);
    ASSERT_DONE(scene.take_back());
    EXPECT_EQ(settings_of(scene.route(), "rail0"), before);
    EXPECT_TRUE(scene.warnings().empty()) << scene.warnings().front();
  });
}

// Of a netdev of the process's network namespace.
fabric::sysfs::Directory netdev_directory(Netlink& route, const char* name) {
  const auto link = find_link(route, name);
  const auto sysfs = open_sysfs(SysfsAccess::kWrite);
  EXPECT_TRUE(link && *link && sysfs && sysfs->ok()) << name;
  auto directory = open_netdev(sysfs->get(), **link);
  EXPECT_TRUE(directory && *directory) << name;
  return std::move(**directory);
}

SysfsSettings sysfs_of(Netlink& route, const char* name) {
  std::vector<std::string> warnings;
  const SysfsSettings settings = read_sysfs_settings(netdev_directory(route, name), name, warnings);
  EXPECT_TRUE(warnings.empty()) << warnings.front();
  return settings;
}

void bring_up(Netlink& route, const char* name) {
  LinkChange change;
  change.up = true;
  ASSERT_DONE(change_link(route, index_of(route, name), change));
}

// veth has NAPI instances while this is on and both ends are up; `threaded` wants them.
void turn_gro_on(const char* name) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ethtool_value on{ETHTOOL_SGRO, 1};
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&on);
  ASSERT_EQ(::ioctl(socket.get(), SIOCETHTOOL, &request), 0);
}

// A setting that this kernel lacks stays empty.
SysfsSettings all_set_to(const SysfsSettings& values, const SysfsSettings& there) {
  SysfsSettings set = values;
  for (std::size_t i = 0; i < set.size(); ++i)
    if (there[i].empty()) set[i].clear();
  return set;
}

TEST(ReturnRails, SysfsSettingsOfTheTenantAreRestored) {
  for (const bool is_up : {true, false}) {
    with_rails([is_up](RailsScene& scene) {
      turn_gro_on("rail0");
      bring_up(scene.route(), "peer0");
      if (is_up) bring_up(scene.route(), "rail0");
      const SysfsSettings there = sysfs_of(scene.route(), "rail0");
      const SysfsSettings nodes = all_set_to({{{}, {"5000"}, {"1"}, {"1"}, {"32"}, {}}}, there);
      EXPECT_EQ(restore_sysfs_settings(netdev_directory(scene.route(), "rail0"), "rail0", nodes),
                std::vector<std::string>());
      const SysfsSettings before = sysfs_of(scene.route(), "rail0");
      EXPECT_EQ(before[3], std::vector<std::string>{"1"});
      ASSERT_DONE(scene.give(1));
      const SysfsSettings tenants = all_set_to({{{"1"}, {"20000"}, {"3"}, {"0"}, {"64"}, {"1"}}}, there);
      scene.do_inside([&] {
        EXPECT_EQ(restore_sysfs_settings(netdev_directory(scene.inside_route(), "net1"), "net1", tenants),
                  std::vector<std::string>());
        EXPECT_EQ(sysfs_of(scene.inside_route(), "net1"), tenants);
      });
      ASSERT_DONE(scene.take_back());
      EXPECT_EQ(sysfs_of(scene.route(), "rail0"), before);
      EXPECT_TRUE(scene.warnings().empty()) << scene.warnings().front();
      const auto rail = find_link(scene.route(), "rail0");
      EXPECT_EQ((*rail)->up, is_up);
    });
  }
}

NetdevFeatures features_of(Ethtool& ethtool, int ifindex) {
  const auto features = ethtool.features(ifindex, "rail");
  EXPECT_TRUE(features) << features.error().message;
  return features && *features ? **features : NetdevFeatures();
}

// Everything that can be turned on and off; what depends on another is not turned on.
void turn_features(int ifindex) {
  Ethtool ethtool;
  NetdevFeatures other = features_of(ethtool, ifindex);
  for (std::uint32_t& word : other.wanted)
    word = ~word;
  static_cast<void>(ethtool.put_back(ifindex, "net1", other));
}

TEST(ReturnRails, FeaturesThatTheTenantTurnedAreTurnedBack) {
  with_rails([](RailsScene& scene) {
    Ethtool ethtool;
    const int rail = index_of(scene.route(), "rail0");
    NetdevFeatures before = features_of(ethtool, rail);
    if (before.changeable.empty()) _exit(test_support::kNoFeatures);
    before.wanted[0] &= ~(before.changeable[0] & 1U);  // scatter-gather: another than the driver's choice
    ASSERT_DONE(ethtool.put_back(rail, "rail0", before));
    before = features_of(ethtool, rail);
    ASSERT_DONE(scene.give(1));
    const int inside = index_of(scene.inside_route(), "net1");
    scene.do_inside([&] {
      turn_features(inside);
      Ethtool theirs;
      EXPECT_NE(features_of(theirs, inside), before);
    });
    ASSERT_DONE(scene.take_back());
    EXPECT_EQ(features_of(ethtool, index_of(scene.route(), "rail0")), before);
    EXPECT_TRUE(scene.warnings().empty()) << scene.warnings().front();
  });
}

// A kernel without ethtool netlink is no error, and nothing is known then; another refusal is said.
TEST(GiveRails, FeaturesThatCannotBeAskedFor) {
  for (const int code : {EPROTONOSUPPORT, EACCES}) {
    with_rails([code](RailsScene& scene) {
      test_support::deny(SYS_socket, code, 2, NETLINK_GENERIC);
      const auto given = scene.give(1);
      ASSERT_DONE(given);
      const bool is_said = given->warnings[0] ==
                           "cannot open a netlink socket (protocol 16): Permission denied: what a container changes of "
                           "the features of `rail0` stays";
      EXPECT_EQ(is_said, code == EACCES) << given->warnings[0];
      ASSERT_DONE(scene.take_back());
      EXPECT_TRUE(scene.warnings().empty());
    });
  }
}

TEST(ReturnRails, AnXdpProgramOfTheDriversModeIsDetached) {
  with_rails([](RailsScene& scene) {
    ASSERT_DONE(scene.give(1));
    attach_xdp(scene.inside_route(), index_of(scene.inside_route(), "net1"), XDP_FLAGS_DRV_MODE);
    ASSERT_DONE(scene.take_back());
    EXPECT_EQ(settings_of(scene.route(), "rail0").xdp, LinkSettings().xdp);
  });
}

TEST(ReturnRails, TheNodesOwnXdpProgramStaysAndItsLossIsSaid) {
  if (!UniqueFd(load_xdp()).ok()) GTEST_SKIP() << "no XDP program can be loaded here";
  with_rails([](RailsScene& scene) {
    attach_xdp(scene.route(), index_of(scene.route(), "rail0"), XDP_FLAGS_SKB_MODE);
    const auto before = settings_of(scene.route(), "rail0").xdp;
    ASSERT_DONE(scene.give(1));
    ASSERT_DONE(scene.take_back());
    EXPECT_EQ(settings_of(scene.route(), "rail0").xdp, before);
    EXPECT_TRUE(scene.warnings().empty());
    ASSERT_DONE(scene.give(1));
    attach_xdp(scene.inside_route(), index_of(scene.inside_route(), "net1"), XDP_FLAGS_SKB_MODE);
    ASSERT_DONE(scene.take_back());
    EXPECT_EQ(settings_of(scene.route(), "rail0").xdp, LinkSettings().xdp);
    ASSERT_EQ(scene.warnings().size(), 1U);
    EXPECT_EQ(scene.warnings()[0], "`rail0` has come back without the xdpgeneric program that it had: attach it again");
  });
}

// A link of bpf(2), which outlives who made it as long as somebody has it open or it is pinned. Empty: not here.
UniqueFd link_program(const UniqueFd& program, int ifindex, std::uint32_t type) {
  std::array<std::uint64_t, 32> attr{};
  const std::uint32_t create[] = {static_cast<std::uint32_t>(program.get()), static_cast<std::uint32_t>(ifindex), type};
  std::memcpy(attr.data(), create, sizeof create);
  return UniqueFd(static_cast<int>(::syscall(SYS_bpf, BPF_LINK_CREATE, attr.data(), sizeof attr)));
}

// In the pod, where the netdev is: by a child that joins it.
void expect_link_is_detached(std::uint32_t type, bpf_prog_type program_type) {
  with_rails([=](RailsScene& scene) {
    ASSERT_DONE(scene.give(1));
    const int ifindex = index_of(scene.inside_route(), "net1");
    UniqueFd link;
    scene.do_inside([&] {
      link = link_program(UniqueFd(load_program(program_type)), ifindex, type);
      ASSERT_TRUE(link.ok()) << std::strerror(errno);
    });
    ASSERT_DONE(scene.take_back());
    EXPECT_TRUE(scene.warnings().empty()) << scene.warnings().front();
    EXPECT_EQ(settings_of(scene.route(), "rail0").xdp, LinkSettings().xdp);
    EXPECT_EQ(*tcx_programs(index_of(scene.route(), "rail0"), "rail0"), std::vector<std::uint32_t>());
  });
}

constexpr std::uint32_t kTcxIngress = 46;  // Linux 6.6

TEST(ReturnRails, AnXdpProgramThatALinkHoldsIsDetached) {
  expect_link_is_detached(BPF_XDP, BPF_PROG_TYPE_XDP);
}

// The same program on a netdev of the same index in a namespace that stays.
TEST(ReturnRails, AnXdpProgramWithADecoyIsDetached) {
  with_rails([](RailsScene& scene) {
    ASSERT_DONE(scene.give(1));
    const int ifindex = index_of(scene.inside_route(), "net1");
    UniqueFd elsewhere;
    std::vector<UniqueFd> links;
    scene.do_inside([&] {
      const UniqueFd program(load_xdp());
      const UniqueFd inside(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
      ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
      elsewhere = UniqueFd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
      ASSERT_EQ(std::system(fmt::format("ip link add name a index {} type veth peer name b", ifindex).c_str()), 0);
      links.push_back(link_program(program, ifindex, BPF_XDP));
      ASSERT_EQ(::setns(inside.get(), CLONE_NEWNET), 0);
      links.push_back(link_program(program, ifindex, BPF_XDP));
      ASSERT_TRUE(links[0].ok() && links[1].ok()) << std::strerror(errno);
    });
    ASSERT_DONE(scene.take_back());
    EXPECT_TRUE(scene.warnings().empty()) << scene.warnings().front();
    EXPECT_EQ(settings_of(scene.route(), "rail0").xdp, LinkSettings().xdp);
  });
}

// A program of the driver's mode at a veth's peer bounds the MTU, as drivers do.
TEST(ReturnRails, AnMtuThatIsRefusedKeepsNothingElse) {
  with_rails([](RailsScene& scene) {
    const int peer = index_of(scene.route(), "peer0");
    LinkChange size;
    size.mtu = 9000;
    ASSERT_DONE(change_link(scene.route(), index_of(scene.route(), "rail0"), size));
    const LinkSettings before = settings_of(scene.route(), "rail0");
    ASSERT_DONE(scene.give(1));
    const int ifindex = index_of(scene.inside_route(), "net1");
    size.mtu = 1500;
    ASSERT_DONE(change_link(scene.inside_route(), ifindex, size));
    set_flags(scene.inside_route(), ifindex, IFF_PROMISC);
    set_alias(scene.inside_route(), ifindex, "owned");
    attach_xdp(scene.route(), peer, XDP_FLAGS_DRV_MODE);
    EXPECT_FALSE(scene.take_back()) << "the MTU is not what it was";
    EXPECT_TRUE(scene.has_record());
    EXPECT_EQ(settings_of(scene.route(), "rail0"), before);
    ASSERT_DONE(delete_link(scene.route(), peer));
  });
}

TEST(ReturnRails, ATcxProgramIsDetached) {
  expect_link_is_detached(kTcxIngress, BPF_PROG_TYPE_SCHED_CLS);
}

std::vector<std::uint32_t> tcx_of(RailsScene& scene) {
  return *tcx_programs(index_of(scene.route(), "rail0"), "rail0");
}

TEST(ReturnRails, ATcxProgramOfTheNodesOwnStaysAndIsSaid) {
  with_rails([](RailsScene& scene) {
    const int rail = index_of(scene.route(), "rail0");
    UniqueFd link = link_program(UniqueFd(load_program(BPF_PROG_TYPE_SCHED_CLS)), rail, kTcxIngress);
    ASSERT_TRUE(link.ok()) << std::strerror(errno);
    const auto before = tcx_of(scene);
    ASSERT_EQ(before.size(), 1U);
    const auto given = scene.give(1);
    ASSERT_DONE(given);
    EXPECT_EQ(given->warnings[0],
              "`rail0` takes 1 of the node's tcx programs along, and whoever gets it can detach them; `bpftool net "
              "show dev rail0`");
    ASSERT_DONE(scene.take_back());
    EXPECT_TRUE(scene.warnings().empty()) << scene.warnings().front();
    EXPECT_EQ(tcx_of(scene), before);
    ASSERT_DONE(scene.give(1));
    link.reset();
    ASSERT_DONE(scene.take_back());
    ASSERT_EQ(scene.warnings().size(), 1U);
    EXPECT_EQ(scene.warnings()[0], "`rail0` has come back without tcx programs that it had: attach them again");
  });
}

TEST(GiveRails, TcxProgramsThatCannotBeAskedForAreLeftAndThatIsSaid) {
  with_rails([](RailsScene& scene) {
    test_support::deny(SYS_bpf, EPERM, 0, BPF_PROG_QUERY);
    const auto given = scene.give(1);
    ASSERT_DONE(given);
    EXPECT_EQ(given->warnings[0],
              "cannot ask for the tcx programs of `rail0`: Operation not permitted: those that a container attaches "
              "stay");
    ASSERT_DONE(scene.take_back());
    EXPECT_TRUE(scene.warnings().empty());
  });
}

TEST(GiveRails, ANetdevWithAQdiscOfItsOwnIsWarnedOf) {
  with_rails([](RailsScene& scene) {
    tcmsg header{};
    header.tcm_ifindex = index_of(scene.route(), "rail0");
    header.tcm_parent = TC_H_ROOT;
    header.tcm_handle = 0x10000;
    RequestBuilder request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, header);
    request.put(TCA_KIND, std::string_view("htb"));
    nlattr* options = request.begin(TCA_OPTIONS);
    tc_htb_glob htb{};
    htb.version = 3;
    htb.rate2quantum = 10;
    request.put(TCA_HTB_INIT, htb);
    request.end(options);
    const auto made = scene.route().change(request.take(), "make qdisc");
    ASSERT_TRUE(made) << made.error().message;
    const auto given = scene.give(1);
    ASSERT_TRUE(given) << given.error().message;
    ASSERT_FALSE(given->warnings.empty());
    EXPECT_TRUE(given->warnings[0].starts_with("`rail0` loses its qdisc `htb`")) << given->warnings[0];
    ASSERT_DONE(scene.take_back());
    EXPECT_NE((*find_link(scene.route(), "rail0"))->qdisc, "htb") << "the kernel kept it: there is nothing to warn of";
  });
}

// The kernel refuses to move a netdev while one of its names is taken where it goes.
TEST(ReturnRails, ATenantsNameForANetdevOfTheNodeKeepsNothingInThePod) {
  for (const char* name : {"rail1", "rail0"}) {
    with_rails([name](RailsScene& scene) {
      ASSERT_DONE(scene.give(1));
      change_name(scene.inside_route(), RTM_NEWLINKPROP, index_of(scene.inside_route(), "net1"), name);
      ASSERT_DONE(scene.take_back());
      EXPECT_EQ(scene.node(), "rail0 rail1");
      EXPECT_EQ(settings_of(scene.route(), "rail0").other_names, std::vector<std::string>());
    });
  }
}

TEST(ReturnRails, ANetdevWhoseNameIsTakenOnTheNodeComesHomeAllTheSame) {
  with_rails([](RailsScene& scene) {
    ASSERT_DONE(scene.give(1));
    change_name(scene.route(), RTM_NEWLINKPROP, index_of(scene.route(), "rail1"), "rail0");
    LinkChange rename;
    rename.name = "rail1";
    ASSERT_DONE(change_link(scene.inside_route(), index_of(scene.inside_route(), "net1"), rename));
    EXPECT_FALSE(scene.take_back()) << "its name is another netdev's";
    EXPECT_EQ(scene.inside(), "");
    EXPECT_TRUE(scene.has_record());
    change_name(scene.route(), RTM_DELLINKPROP, index_of(scene.route(), "rail1"), "rail0");
    ASSERT_DONE(scene.take_back());
    EXPECT_EQ(scene.node(), "rail0 rail1");
  });
}

// An equal of this netdev in all that can be chosen: kind, MAC, index and name.
void make_decoy(Netlink& route, const Link& of, const char* name) {
  RequestBuilder request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, link_header(of.ifindex));
  request.put(IFLA_IFNAME, std::string_view(name));
  request.put(IFLA_ADDRESS, fabric::netlink::Bytes(of.mac));
  nlattr* info = request.begin(IFLA_LINKINFO);
  request.put(IFLA_INFO_KIND, std::string_view("veth"));
  request.end(info);
  ASSERT_DONE(route.change(request.take(), "make veth"));
}

TEST(ReturnRails, ADecoyStaysAndTheNetdevThatWasGivenComesHome) {
  with_rails([](RailsScene& scene) {
    const int peer = index_of(scene.route(), "peer0");
    ASSERT_DONE(scene.give(1));
    Netlink& pod = scene.inside_route();
    const Link given = **find_link(pod, "net1");
    LinkChange hidden;
    hidden.name = "hidden";
    hidden.mac = std::vector<std::uint8_t>{2, 0, 0, 0, 0, 9};
    hidden.up = false;
    ASSERT_DONE(change_link(pod, given.ifindex, hidden));
    Link decoy = given;
    decoy.ifindex = 0;
    make_decoy(pod, decoy, "net1");
    ASSERT_DONE(scene.take_back());
    EXPECT_EQ(scene.node(), "rail0 rail1");
    EXPECT_NE(index_of(pod, "net1"), 0);
    EXPECT_EQ(index_of(pod, "hidden"), 0);
    const auto home = find_link(scene.route(), "rail0");
    EXPECT_EQ((*home)->lower_ifindex, peer);
    EXPECT_EQ((*home)->mac, given.mac);
  });
}

TEST(ReturnRails, ADecoyOfANetdevThatWasDeletedStays) {
  with_rails([](RailsScene& scene) {
    ASSERT_DONE(scene.give(1));
    Netlink& pod = scene.inside_route();
    const Link given = **find_link(pod, "net1");
    ASSERT_DONE(delete_link(pod, given.ifindex));
    make_decoy(pod, given, "net1");
    ASSERT_DONE(scene.take_back());
    EXPECT_EQ(scene.node(), "rail1");
    EXPECT_NE(index_of(pod, "net1"), 0);
    ASSERT_EQ(scene.warnings().size(), 1U);
    EXPECT_TRUE(scene.warnings()[0].starts_with("netdev `rail0` is gone: ")) << scene.warnings()[0];
    EXPECT_FALSE(scene.has_record());
  });
}

// A look that fails proves nothing: the rails may still be in there.
void expect_held_without(int call, int code, unsigned argument, std::uint32_t value) {
  with_rails([&](RailsScene& scene) {
    ASSERT_DONE(scene.book());
    ASSERT_DONE(scene.give(1));
    const auto try_it = [&] {
      test_support::deny(call, code, argument, value);
      const auto done = scene.give_back();
      return done ? 1 : done.error().code == code ? 0 : 2;
    };
    EXPECT_EQ(test_support::in_child(try_it), 0);
    EXPECT_TRUE(scene.has_grant());
    EXPECT_TRUE(scene.has_record());
    EXPECT_EQ(scene.addresses(), 1U);
    EXPECT_EQ(scene.inside(), "net1");
    ASSERT_DONE(scene.give_back());
    EXPECT_FALSE(scene.has_grant());
    EXPECT_FALSE(scene.has_record());
    EXPECT_EQ(scene.addresses(), 0U);
    EXPECT_EQ(scene.node(), "rail0 rail1");
  });
}

TEST(ReturnRails, ANamespaceThatCannotBeEnteredIsHeld) {
  expect_held_without(SYS_setns, ENOMEM, 1, CLONE_NEWNET);
}

TEST(ReturnRails, ANetdevThatCannotBeToldFromADecoyIsHeld) {
  expect_held_without(SYS_fsopen, EPERM, 1, FSOPEN_CLOEXEC);
}

TEST(ReturnRails, RdmaDevicesThatCannotBeAskedAboutAreHeld) {
  expect_held_without(SYS_socket, ENOMEM, 2, NETLINK_RDMA);
}

TEST(ReturnRails, ARecordThatCannotBeSeenIsHeld) {
  with_rails([](RailsScene& scene) {
    ASSERT_DONE(scene.book());
    ASSERT_DONE(scene.give(1));
    const std::string records = scene.path() + "/network";
    std::filesystem::rename(records, records + ".away");
    ASSERT_EQ(::symlink("network", records.c_str()), 0);  // ELOOP
    EXPECT_FALSE(scene.give_back());
    EXPECT_TRUE(scene.has_grant());
    EXPECT_EQ(scene.inside(), "net1");
    std::filesystem::remove(records);
    std::filesystem::rename(records + ".away", records);
    ASSERT_DONE(scene.give_back());
    EXPECT_EQ(scene.node(), "rail0 rail1");
  });
}

}  // namespace
}  // namespace hook
