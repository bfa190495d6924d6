// Rails that are added and restored between two network namespaces of this kernel. The node's netdevs are ends of veth
// pairs. infiniband_test.cpp and the guests of tests/vm test RDMA devices that move.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/pkt_sched.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "hook/rails/add.hpp"
#include "hook/rails/address/pool.hpp"
#include "hook/rails/netlink/links.hpp"
#include "hook/rails/netlink/netdev_settings.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/netns_handle.hpp"
#include "hook/rails/node_rails.hpp"
#include "hook/rails/record/store.hpp"
#include "support/inventories.hpp"
#include "unit/hook/ledger/scene.hpp"
#include "unit/hook/rails/network_scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using namespace fabric;
using namespace test_support;
using Strings = std::vector<std::string>;

LinkSettings settings_of(Netlink& route, const char* name) {
  const auto link = find_link(route, name);
  EXPECT_TRUE(link && *link) << name;
  return link && *link ? (*link)->settings : LinkSettings();
}

int ifindex_of(Netlink& route, const char* name) {
  const auto link = find_link(route, name);
  return link && *link ? (*link)->ifindex : 0;
}

constexpr const char* kHome = "node: rail0 rail1; pod: ; no record, 0 addresses";

// The process is in the node's namespace. Both the node's and the pod's are new ones.
class AddRails : public NetnsTest {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    if (!is_allowed_) return;
    ASSERT_TRUE(is_on_node_);
    for (const char* number : {"0", "1"})
      make_veth(node_, (std::string("rail") + number).c_str(), (std::string("peer") + number).c_str());
    Network& network = config_.networks["lab"];
    network.name = "lab";
    network.ranges = {{std::nullopt, address("10.9.0.0"), 24, address("10.9.0.5"), address("10.9.0.6"), std::nullopt}};
    struct stat status {};
    ASSERT_EQ(::fstat(pod_netns_.get(), &status), 0);
    netns_ = {status.st_dev, status.st_ino, fmt::format("/proc/self/fd/{}", pod_netns_.get())};
    owner_ = netns_owner(netns_);
  }

  static std::string device_of(unsigned rail) { return fmt::format("0000.1{}.00.0", rail); }
  static PlannedHca booked(unsigned rail, Mode mode) {
    PlannedHca hca{fmt::format("mlx5_{}", rail), mode, 1, std::nullopt};
    hca.device = device_of(rail);
    return hca;
  }
  Result<RailsReport> add(unsigned rails, Mode mode = Mode::kExclusive) {
    Plan plan;
    for (unsigned i = 0; i < rails; ++i) {
      plan.hcas.push_back(booked(i, mode));
      plan.netdevs.push_back({fmt::format("rail{}", i), "", mode, plan.hcas[i].name, i, "lab"});
    }
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
                     .netns_fd = UniqueFd(::fcntl(pod_netns_.get(), F_DUPFD_CLOEXEC, 0)),
                     .hurried = true};
    return add_rails(std::move(input), timing);
  }
  // Books and settles the grant, as for a container of the pod.
  Result<void> book() {
    const auto ledger = TRY(Ledger::open(path_));
    TRY_VOID(test_support::book(ledger, owner_, {kAlone}, {"c-1", "c-1", myself()}));
    return ledger.settle(owner_.key);
  }
  Result<void> release_grant() {
    return TRY(Ledger::open(path_, std::make_shared<NodeRails>(path_, nullptr))).release_grant(owner_.key);
  }
  Result<void> restore(const std::vector<PlannedHca>& held = {}) {
    const NodeRails rails(path_, nullptr);
    auto done = rails.release_except(owner_.key, held, nullptr);
    warnings_ = rails.take_warnings();
    return done;
  }
  // Expects that everything is restored without a warning.
  void expect_restored() {
    ASSERT_OK(restore());
    EXPECT_EQ(warnings_, Strings());
  }
  // Expects that the first warning of adding these rails begins with this text.
  void expect_warning(unsigned rails, const std::string& text) {
    const auto added = must(add(rails));
    ASSERT_FALSE(added.warnings.empty());
    EXPECT_EQ(added.warnings[0].substr(0, text.size()), text);
  }
  void expect_link_is_detached(std::uint32_t type, bpf_prog_type program_type);
  void end_container() {
    route_ = open_route();
    pod_netns_.reset();
  }
  // Runs the function as a process of the pod.
  void do_inside(const std::function<void()>& what) {
    const UniqueFd home = own_netns();
    ASSERT_EQ(::setns(pod_netns_.get(), CLONE_NEWNET), 0);
    what();
    ASSERT_EQ(::setns(home.get(), CLONE_NEWNET), 0);
  }

  static std::string names(Netlink& route) {
    std::string text;
    for (const Link& link : must(all_links(route)))
      if (link.name != "lo" && !link.name.starts_with("peer")) text += (text.empty() ? "" : " ") + link.name;
    return text;
  }
  bool has_grant() const { return Ledger::open(path_)->find(owner_.key)->has_value(); }
  bool has_record() const { return *NetworkRecordStore::read_presence(path_, owner_.key) == Presence::kPresent; }
  std::size_t addresses() const { return AddressPool::open(path_)->list()->size(); }
  std::string state() {
    return fmt::format("node: {}; pod: {}; {}, {} addresses", names(node_), names(pod_),
                       has_record() ? "record" : "no record", addresses());
  }
  int pod_index() { return ifindex_of(pod_, "net1"); }
  int node_index() { return ifindex_of(node_, "rail0"); }
  std::vector<std::uint32_t> tcx_of_node() { return must(tcx_programs(node_index(), "rail0")); }
  LinkSettings node_settings() { return settings_of(node_, "rail0"); }

  TempDir directory_;
  const std::string path_ = directory_ / "ledger";
  Netlink& pod_ = route_;
  UniqueFd pod_netns_ = own_netns();
  const bool is_on_node_ = ::unshare(CLONE_NEWNET) == 0;
  Netlink node_ = open_route();
  Config config_;
  NetnsIdentity netns_;
  Owner owner_;
  Strings warnings_;
};
class RestoreRails : public AddRails {};

TEST_F(AddRails, MovesNetdevsWithAddressAndRestoresThem) {
  for (const unsigned rails : {1U, 1U, 2U}) {
    ASSERT_OK(add(rails)) << "existing rails are not changed";
    EXPECT_EQ(names(pod_), rails == 1 ? "net1" : "net1 net2");
  }
  EXPECT_EQ(state(), "node: ; pod: net1 net2; record, 2 addresses");
  for (int time = 0; time < 2; ++time) {  // the second call finds nothing to restore
    ASSERT_OK(restore());
    EXPECT_EQ(state(), kHome);
  }
}

TEST_F(AddRails, WarnsOfRailWithoutAddress) {
  config_.networks["lab"].ranges.clear();
  ASSERT_OK(add_records(node_, {address_record(ifindex_of(node_, "rail1"), address("10.9.0.1"), 24)}));
  expect_warning(2, "no address for net1 (mlx5_0): ");
}

TEST_F(AddRails, WritesRecordBeforeTheFirstAllocation) {
  config_.networks["lab"].ranges[0].to = config_.networks["lab"].ranges[0].from;
  ASSERT_FALSE(add(2)) << "one address for two rails";
  EXPECT_TRUE(has_record()) << "written before the first allocation";
  ASSERT_OK(restore());
  EXPECT_EQ(state(), kHome);
}

TEST_F(RestoreRails, KeepsRailOfHeldHca) {
  ASSERT_OK(add(2));
  ASSERT_OK(restore({booked(1, Mode::kExclusive)}));
  EXPECT_EQ(state(), "node: rail0; pod: net2; record, 1 addresses");
}

// A later container of the pod was granted the HCA under another name, and another HCA has its name by now.
TEST_F(RestoreRails, KeepsRailOfHeldHcaThatWasRenamed) {
  ASSERT_OK(add(2));
  PlannedHca renamed{"v9", Mode::kExclusive, 1, std::nullopt};
  renamed.device = device_of(1);
  PlannedHca other{"mlx5_0", Mode::kExclusive, 1, std::nullopt};
  other.device = "0000.99.00.0";
  ASSERT_OK(restore({renamed, other}));
  EXPECT_EQ(state(), "node: rail0; pod: net2; record, 1 addresses");
}

TEST_F(RestoreRails, KeepsMacvlanChildOfHeldHca) {
  ASSERT_OK(add(2, Mode::kShared));
  ASSERT_EQ(names(pod_), "net1 net2");
  ASSERT_OK(restore({booked(1, Mode::kShared)}));
  EXPECT_EQ(state(), "node: rail0 rail1; pod: net2; record, 1 addresses");
  ASSERT_OK(restore());
  EXPECT_EQ(state(), kHome);
}

TEST_F(RestoreRails, WarnsOfSoftwareNetdevThatEndedWithItsNamespace) {
  ASSERT_OK(add(1));
  end_container();
  ASSERT_OK(restore());
  EXPECT_EQ(warnings_.size(), 1U);
  EXPECT_FALSE(has_record());
  EXPECT_EQ(addresses(), 0U);
}

// Changes that a container can make with `ip`, each by its own request.
void set_alias(Netlink& route, int ifindex, std::string_view alias) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  request.put(IFLA_IFALIAS, alias);
  ASSERT_OK(route.change(request, "set alias"));
}

void change_name(Netlink& route, unsigned type, int ifindex, std::string_view name) {
  RequestBuilder request(type, type == RTM_NEWLINKPROP ? NLM_F_CREATE | NLM_F_EXCL : 0, link_header(ifindex));
  const auto list = request.begin(IFLA_PROP_LIST | NLA_F_NESTED);
  request.put(IFLA_ALT_IFNAME, name);
  request.end(list);
  ASSERT_OK(route.change(request, "change alternative name"));
}

void set_flags(Netlink& route, int ifindex, unsigned flags) {
  ifinfomsg header = link_header(ifindex);
  header.ifi_change = header.ifi_flags = flags;
  ASSERT_OK(route.change(RequestBuilder(RTM_SETLINK, 0, header), "set flags"));
}

void set_number(Netlink& route, int ifindex, unsigned attribute, std::uint32_t value) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  request.put(attribute, value);
  ASSERT_OK(route.change(request, "set number"));
}

// Loads a program that passes all packets. -1: the kernel does not permit it.
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

void attach_xdp(Netlink& route, int ifindex, std::uint32_t flags) {
  const UniqueFd program(load_program(BPF_PROG_TYPE_XDP));
  if (!program.ok()) return;
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  const auto xdp = request.begin(IFLA_XDP | NLA_F_NESTED);
  request.put(IFLA_XDP_FD, program.get());
  request.put(IFLA_XDP_FLAGS, flags);
  request.end(xdp);
  ASSERT_OK(route.change(request, "attach XDP program"));
}

// With another broadcast address no host receives ARP requests.
void set_broadcast(Netlink& route, int ifindex) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  request.put(IFLA_BROADCAST, MacAddress{0xff, 0xff, 0xff, 0xff, 0xff, 0xfe});
  ASSERT_OK(route.change(request, "set broadcast address"));
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

TEST_F(RestoreRails, RestoresSettingsThatTheContainerChanged) {
  const int rail = node_index();
  set_alias(node_, rail, "rack 7");
  change_name(node_, RTM_NEWLINKPROP, rail, "enp1");
  const LinkSettings before = node_settings();
  ASSERT_OK(add(1));
  mistreat(pod_, pod_index());
  EXPECT_NE(settings_of(pod_, "net1"), before);
  expect_restored();
  EXPECT_EQ(node_settings(), before);
}

// Opens the directory of a netdev in the network namespace of the process.
base::Directory netdev_directory(Netlink& route, const char* name) {
  const auto link = find_link(route, name);
  const auto sysfs = open_sysfs(SysfsAccess::kWrite);
  EXPECT_TRUE(link && *link && sysfs && sysfs->ok()) << name;
  auto directory = open_netdev(sysfs->get(), **link);
  EXPECT_TRUE(directory && *directory) << name;
  return std::move(**directory);
}

SysfsSettings sysfs_of(Netlink& route, const char* name) {
  Strings warnings;
  const SysfsSettings settings = read_sysfs_settings(netdev_directory(route, name), name, warnings);
  EXPECT_TRUE(warnings.empty()) << warnings.front();
  return settings;
}

void bring_up(Netlink& route, const char* name) {
  ASSERT_OK(change_link(route, ifindex_of(route, name), {.up = true}));
}

// Switches on GRO: veth has NAPI instances while it is on and both ends are up, and `threaded` needs them.
void turn_gro_on(const char* name) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ethtool_value on{ETHTOOL_SGRO, 1};
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&on);
  ASSERT_EQ(::ioctl(socket.get(), SIOCETHTOOL, &request), 0);
}

// Returns the values; a setting that this kernel does not have stays empty.
SysfsSettings all_set_to(const SysfsSettings& values, const SysfsSettings& there) {
  SysfsSettings set = values;
  for (std::size_t i = 0; i < set.size(); ++i)
    if (there[i].empty()) set[i].clear();
  return set;
}

TEST_F(RestoreRails, RestoresSysfsSettingsThatTheContainerChanged) {
  turn_gro_on("rail0");
  bring_up(node_, "peer0");
  for (const bool is_up : {false, true}) {
    if (is_up) bring_up(node_, "rail0");
    const SysfsSettings there = sysfs_of(node_, "rail0");
    const SysfsSettings nodes = all_set_to({{{}, {"5000"}, {"1"}, {"1"}, {"32"}, {}}}, there);
    EXPECT_EQ(restore_sysfs_settings(netdev_directory(node_, "rail0"), "rail0", nodes), Strings());
    const SysfsSettings before = sysfs_of(node_, "rail0");
    EXPECT_EQ(before[3], Strings{"1"});
    ASSERT_OK(add(1));
    const SysfsSettings tenants = all_set_to({{{"1"}, {"20000"}, {"3"}, {"0"}, {"64"}, {"1"}}}, there);
    do_inside([&] {
      EXPECT_EQ(restore_sysfs_settings(netdev_directory(pod_, "net1"), "net1", tenants), Strings());
      EXPECT_EQ(sysfs_of(pod_, "net1"), tenants);
    });
    expect_restored();
    EXPECT_EQ(sysfs_of(node_, "rail0"), before);
    EXPECT_EQ(must(must(find_link(node_, "rail0"))).up, is_up);
  }
}

NetdevFeatures features_of(Ethtool& ethtool, int ifindex) {
  const auto features = ethtool.features(ifindex, "rail");
  EXPECT_OK(features);
  return features && *features ? **features : NetdevFeatures();
}

// Inverts all features that can be changed. The kernel does not switch on a feature that depends on another one.
void turn_features(int ifindex) {
  Ethtool ethtool;
  NetdevFeatures other = features_of(ethtool, ifindex);
  for (std::uint32_t& word : other.wanted)
    word = ~word;
  static_cast<void>(ethtool.restore(ifindex, "net1", other));
}

TEST_F(RestoreRails, RestoresFeaturesThatTheContainerChanged) {
  Ethtool ethtool;
  const int rail = node_index();
  NetdevFeatures before = features_of(ethtool, rail);
  if (before.changeable.empty()) GTEST_SKIP() << "this kernel does not report the features of a netdev";
  before.wanted[0] &= ~(before.changeable[0] & 1U);  // scatter-gather off, against the driver's default
  ASSERT_OK(ethtool.restore(rail, "rail0", before));
  before = features_of(ethtool, rail);
  ASSERT_OK(add(1));
  const int inside = pod_index();
  do_inside([&] {
    turn_features(inside);
    Ethtool theirs;
    EXPECT_NE(features_of(theirs, inside), before);
  });
  expect_restored();
  EXPECT_EQ(features_of(ethtool, node_index()), before);
}

// Only a refusal is a warning; a kernel without ethtool netlink is none. Runs in a child, because a denied system call
// stays denied.
TEST_F(AddRails, WarnsOfFeaturesAndProgramsThatCannotBeRead) {
  const struct {
    int call;
    int code;
    unsigned argument;
    std::uint32_t value;
    const char* warning;  // nullptr: none of these
  } cases[] = {
      {SYS_socket, EPROTONOSUPPORT, 2, NETLINK_GENERIC, nullptr},
      {SYS_socket, EACCES, 2, NETLINK_GENERIC,
       "cannot open a netlink socket (protocol 16): Permission denied: features of `rail0` will not be restored"},
      {SYS_bpf, EPERM, 0, BPF_PROG_QUERY,
       "cannot read the tcx programs of `rail0`: Operation not permitted: tcx programs of containers will not be "
       "detached"}};
  for (const auto& row : cases) {
    SCOPED_TRACE(testing::Message() << row.call << " " << row.code);
    const auto add_and_undo = [&] {
      deny(row.call, row.code, row.argument, row.value);
      if (row.warning) {
        expect_warning(1, row.warning);
      } else {
        EXPECT_FALSE(has_text(must(add(1)).warnings[0], "netlink socket"));
      }
      expect_restored();
      return HasFailure() ? 1 : 0;
    };
    EXPECT_EQ(in_child(add_and_undo), 0) << "see above";
  }
}

TEST_F(RestoreRails, DetachesXdpProgramOfTheDriversMode) {
  ASSERT_OK(add(1));
  attach_xdp(pod_, pod_index(), XDP_FLAGS_DRV_MODE);
  ASSERT_OK(restore());
  EXPECT_EQ(node_settings().xdp, LinkSettings().xdp);
}

TEST_F(RestoreRails, KeepsNodesXdpProgramAndWarnsOfItsLoss) {
  if (!UniqueFd(load_program(BPF_PROG_TYPE_XDP)).ok()) GTEST_SKIP() << "no XDP program can be loaded here";
  attach_xdp(node_, node_index(), XDP_FLAGS_SKB_MODE);
  const auto before = node_settings().xdp;
  ASSERT_OK(add(1));
  expect_restored();
  EXPECT_EQ(node_settings().xdp, before);

  ASSERT_OK(add(1));
  attach_xdp(pod_, pod_index(), XDP_FLAGS_SKB_MODE);
  ASSERT_OK(restore());
  EXPECT_EQ(node_settings().xdp, LinkSettings().xdp);
  EXPECT_EQ(warnings_, Strings{"`rail0` has lost its xdpgeneric program; remedy: attach it again"});
}

// Attaches a program by a BPF link, which outlives its process while it is open or pinned. Empty: not possible.
UniqueFd link_program(const UniqueFd& program, int ifindex, std::uint32_t type) {
  std::array<std::uint64_t, 32> attr{};
  const std::uint32_t create[] = {static_cast<std::uint32_t>(program.get()), static_cast<std::uint32_t>(ifindex), type};
  std::memcpy(attr.data(), create, sizeof create);
  return UniqueFd(static_cast<int>(::syscall(SYS_bpf, BPF_LINK_CREATE, attr.data(), sizeof attr)));
}

// Attaches the link in the pod's namespace, which has the netdev.
void AddRails::expect_link_is_detached(std::uint32_t type, bpf_prog_type program_type) {
  ASSERT_OK(add(1));
  const int ifindex = pod_index();
  UniqueFd link;
  do_inside([&] {
    link = link_program(UniqueFd(load_program(program_type)), ifindex, type);
    ASSERT_TRUE(link.ok()) << std::strerror(errno);
  });
  expect_restored();
  EXPECT_EQ(node_settings().xdp, LinkSettings().xdp);
  EXPECT_EQ(tcx_of_node(), std::vector<std::uint32_t>());
}

constexpr std::uint32_t kTcxIngress = 46;  // Linux 6.6

TEST_F(RestoreRails, DetachesXdpProgramThatALinkHolds) {
  expect_link_is_detached(BPF_XDP, BPF_PROG_TYPE_XDP);
}

TEST_F(RestoreRails, DetachesTcxProgram) {
  expect_link_is_detached(kTcxIngress, BPF_PROG_TYPE_SCHED_CLS);
}

// The same program on a netdev of the same index in a namespace that stays.
TEST_F(RestoreRails, DetachesXdpProgramIfAnotherNamespaceHasTheSame) {
  ASSERT_OK(add(1));
  const int ifindex = pod_index();
  UniqueFd elsewhere;
  std::vector<UniqueFd> links;
  do_inside([&] {
    const UniqueFd program(load_program(BPF_PROG_TYPE_XDP));
    const UniqueFd inside = own_netns();
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    elsewhere = own_netns();
    ASSERT_EQ(std::system(fmt::format("ip link add name a index {} type veth peer name b", ifindex).c_str()), 0);
    links.push_back(link_program(program, ifindex, BPF_XDP));
    ASSERT_EQ(::setns(inside.get(), CLONE_NEWNET), 0);
    links.push_back(link_program(program, ifindex, BPF_XDP));
    ASSERT_TRUE(links[0].ok() && links[1].ok()) << std::strerror(errno);
  });
  expect_restored();
  EXPECT_EQ(node_settings().xdp, LinkSettings().xdp);
}

// A driver-mode program on the peer of a veth limits the MTU, as drivers do.
TEST_F(RestoreRails, RestoresOtherSettingsIfTheMtuIsRefused) {
  const int peer = ifindex_of(node_, "peer0");
  ASSERT_OK(change_link(node_, node_index(), {.mtu = 9000}));
  const LinkSettings before = node_settings();
  ASSERT_OK(add(1));
  const int ifindex = pod_index();
  ASSERT_OK(change_link(pod_, ifindex, {.mtu = 1500}));
  set_flags(pod_, ifindex, IFF_PROMISC);
  set_alias(pod_, ifindex, "owned");
  attach_xdp(node_, peer, XDP_FLAGS_DRV_MODE);
  EXPECT_FALSE(restore()) << "the MTU cannot be restored";
  EXPECT_TRUE(has_record());
  EXPECT_EQ(node_settings(), before);
  ASSERT_OK(delete_link(node_, peer));
}

TEST_F(RestoreRails, KeepsNodesTcxProgramAndWarnsOfIt) {
  UniqueFd link = link_program(UniqueFd(load_program(BPF_PROG_TYPE_SCHED_CLS)), node_index(), kTcxIngress);
  ASSERT_TRUE(link.ok()) << std::strerror(errno);
  const auto before = tcx_of_node();
  ASSERT_EQ(before.size(), 1U);
  expect_warning(1,
                 "`rail0` moves with 1 of the node's tcx programs, which its container can detach; remedy: list them "
                 "with `bpftool net show dev rail0`");
  expect_restored();
  EXPECT_EQ(tcx_of_node(), before);
  ASSERT_OK(add(1));
  link.reset();
  ASSERT_OK(restore());
  EXPECT_EQ(warnings_, Strings{"`rail0` has lost its tcx programs; remedy: attach them again"});
}

TEST_F(AddRails, WarnsOfLostQdisc) {
  tcmsg header{};
  header.tcm_ifindex = node_index();
  header.tcm_parent = TC_H_ROOT;
  header.tcm_handle = 0x10000;
  RequestBuilder request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, header);
  request.put(TCA_KIND, std::string_view("htb"));
  const auto options = request.begin(TCA_OPTIONS);
  tc_htb_glob htb{};
  htb.version = 3;
  htb.rate2quantum = 10;
  request.put(TCA_HTB_INIT, htb);
  request.end(options);
  ASSERT_OK(node_.change(request, "make qdisc"));
  expect_warning(1, "`rail0` loses its qdisc `htb`");
  ASSERT_OK(restore());
  EXPECT_NE((*find_link(node_, "rail0"))->qdisc, "htb") << "the kernel kept it, so that the warning is wrong";
}

// The kernel refuses to move a netdev while one of its names is taken in the target namespace.
TEST_F(RestoreRails, RemovesTenantsNameThatANetdevOfTheNodeHas) {
  for (const char* name : {"rail1", "rail0"}) {
    ASSERT_OK(add(1));
    change_name(pod_, RTM_NEWLINKPROP, pod_index(), name);
    ASSERT_OK(restore());
    EXPECT_EQ(state(), kHome) << name;
    EXPECT_EQ(node_settings().other_names, Strings()) << name;
  }
}

TEST_F(RestoreRails, ReturnsNetdevIfItsNameIsTakenOnTheNode) {
  ASSERT_OK(add(1));
  change_name(node_, RTM_NEWLINKPROP, ifindex_of(node_, "rail1"), "rail0");
  ASSERT_OK(change_link(pod_, pod_index(), {.name = "rail1"}));
  EXPECT_FALSE(restore()) << "another netdev has its name";
  EXPECT_EQ(names(pod_), "");
  EXPECT_TRUE(has_record());
  change_name(node_, RTM_DELLINKPROP, ifindex_of(node_, "rail1"), "rail0");
  ASSERT_OK(restore());
  EXPECT_EQ(names(node_), "rail0 rail1");
}

// Makes a netdev with the same kind, MAC address, index and name as `of`.
void make_decoy(Netlink& route, const Link& of, const char* name) {
  RequestBuilder request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, link_header(of.ifindex));
  request.put(IFLA_IFNAME, std::string_view(name));
  request.put(IFLA_ADDRESS, base::netlink::Bytes(of.mac));
  const auto info = request.begin(IFLA_LINKINFO);
  request.put(IFLA_INFO_KIND, std::string_view("veth"));
  request.end(info);
  ASSERT_OK(route.change(request, "make veth"));
}

TEST_F(RestoreRails, ReturnsRecordedNetdevAndKeepsItsImitation) {
  const int peer = ifindex_of(node_, "peer0");
  ASSERT_OK(add(1));
  const Link added = **find_link(pod_, "net1");
  ASSERT_OK(change_link(pod_, added.ifindex, {.name = "hidden", .mac = {{2, 0, 0, 0, 0, 9}}, .up = false}));
  Link decoy = added;
  decoy.ifindex = 0;
  make_decoy(pod_, decoy, "net1");
  ASSERT_OK(restore());
  EXPECT_EQ(names(node_), "rail0 rail1");
  EXPECT_NE(ifindex_of(pod_, "net1"), 0);
  EXPECT_EQ(ifindex_of(pod_, "hidden"), 0);
  const auto home = find_link(node_, "rail0");
  EXPECT_EQ((*home)->lower_ifindex, peer);
  EXPECT_EQ((*home)->mac, added.mac);
}

TEST_F(RestoreRails, KeepsImitationOfADeletedNetdev) {
  ASSERT_OK(add(1));
  const Link added = **find_link(pod_, "net1");
  ASSERT_OK(delete_link(pod_, added.ifindex));
  make_decoy(pod_, added, "net1");
  ASSERT_OK(restore());
  EXPECT_EQ(names(node_), "rail1");
  EXPECT_NE(ifindex_of(pod_, "net1"), 0);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_TRUE(warnings_[0].starts_with("netdev `rail0` is gone: ")) << warnings_[0];
  EXPECT_FALSE(has_record());
}

// A failed lookup proves nothing: the rails can still be in the namespace.
TEST_F(RestoreRails, KeepsGrantIfALookupFails) {
  const struct {
    const char* name;
    int call;
    int code;
    unsigned argument;
    std::uint32_t value;
  } cases[] = {{"a namespace that cannot be entered", SYS_setns, ENOMEM, 1, CLONE_NEWNET},
               {"a netdev that cannot be identified", SYS_fsopen, EPERM, 1, FSOPEN_CLOEXEC},
               {"RDMA devices that cannot be read", SYS_socket, ENOMEM, 2, NETLINK_RDMA}};
  for (const auto& row : cases) {
    SCOPED_TRACE(row.name);
    ASSERT_OK(book());
    ASSERT_OK(add(1));
    const auto try_it = [&] {
      deny(row.call, row.code, row.argument, row.value);
      return error_code(release_grant()) == row.code ? 0 : 1;
    };
    EXPECT_EQ(in_child(try_it), 0);
    EXPECT_TRUE(has_grant());
    EXPECT_EQ(state(), "node: rail1; pod: net1; record, 1 addresses");
    ASSERT_OK(release_grant());
    EXPECT_FALSE(has_grant());
    EXPECT_EQ(state(), kHome);
  }
}

TEST_F(RestoreRails, KeepsGrantIfTheRecordCannotBeRead) {
  ASSERT_OK(book());
  ASSERT_OK(add(1));
  const std::string records = path_ + "/network";
  fs::rename(records, records + ".away");
  ASSERT_EQ(::symlink("network", records.c_str()), 0);  // ELOOP
  EXPECT_FALSE(release_grant());
  EXPECT_TRUE(has_grant());
  EXPECT_EQ(names(pod_), "net1");
  fs::remove(records);
  fs::rename(records + ".away", records);
  ASSERT_OK(release_grant());
  EXPECT_EQ(names(node_), "rail0 rail1");
}

// Only a socket keeps the pod's namespace, and no path leads to it.
class KeptNamespace : public AddRails {
 protected:
  void SetUp() override {
    AddRails::SetUp();
    if (is_allowed_) do_inside([&] { socket_.reset(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)); });
  }
  // Returns the names of the netdevs in the namespace that the socket keeps.
  std::string left() const {
    auto inside = open_network_namespace(UniqueFd(::ioctl(socket_.get(), SIOCGSKNS)), {});
    EXPECT_OK(inside);
    return inside ? names(inside->route) : "";
  }
  // Runs restore() in a child that may not use TUN netdevs. Returns the code of the error; 0: none.
  int restore_without_tun(const std::string& text = {}) {
    return in_child([&] {
      deny(SYS_ioctl, EPERM, 1, TUNSETIFF);
      const auto done = restore();
      EXPECT_TRUE(done || has_text(done.error().message, text)) << error_message(done);
      return testing::Test::HasFailure() ? 255 : error_code(done);
    });
  }
  // Sends the socket to a socket of this process and closes it, so that it is in no table of descriptors.
  void put_in_transit() {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    from_.reset(pair[0]);
    to_.reset(pair[1]);
    char byte = 0;
    iovec text{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = socket_.release();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    ASSERT_EQ(::sendmsg(from_.get(), &message, 0), 1);
    ::close(fd);
  }
  void change_record(const std::function<void(NetworkRecord&)>& change) {
    const auto store = must(NetworkRecordStore::open(path_));
    auto record = must(store.read(owner_.key));
    change(*record);
    ASSERT_OK(store.write(*record));
  }
  bool has_tun() const { return ::access("/dev/net/tun", R_OK | W_OK) == 0; }
  std::string node_state() {
    return fmt::format("node: {}; {}, {} addresses", names(node_), has_record() ? "record" : "no record", addresses());
  }

  UniqueFd socket_, from_, to_;
};
constexpr const char* kAllFree = "node: rail0 rail1; no record, 0 addresses";

TEST_F(KeptNamespace, LosesItsRails) {
  for (const bool tun : {true, false}) {
    for (const Mode mode : {Mode::kShared, Mode::kExclusive}) {
      SCOPED_TRACE(fmt::format("{}, {}", to_string(mode), tun ? "with TUN" : "without"));
      ASSERT_OK(add(2, mode));
      netns_.path = "/proc/self/fd/-";
      change_record([&](NetworkRecord& record) { record.netns.path = netns_.path; });
      if (tun) expect_restored();
      if (!tun) {
        EXPECT_EQ(restore_without_tun(), 0);
      }
      EXPECT_EQ(left(), "");
      EXPECT_EQ(node_state(), kAllFree);
      netns_.path = fmt::format("/proc/self/fd/{}", pod_netns_.get());
    }
  }
}

TEST_F(KeptNamespace, LosesItsRailsWhileItsOnlySocketIsInTransit) {
  if (!has_tun()) GTEST_SKIP() << "no /dev/net/tun here";
  for (const Mode mode : {Mode::kShared, Mode::kExclusive}) {
    ASSERT_OK(add(2, mode)) << to_string(mode);
    if (mode == Mode::kShared) {
      change_record([](NetworkRecord& record) { record.netns.path = "/proc/self/fd/-"; });
    } else {
      put_in_transit();
      end_container();
    }
    expect_restored();
    EXPECT_EQ(node_state(), kAllFree);
  }
}

TEST_F(KeptNamespace, KeepsGrantIfNothingLeadsToIt) {
  ASSERT_OK(add(1, Mode::kShared));
  put_in_transit();
  end_container();
  EXPECT_EQ(restore_without_tun("outlives the container"), EBUSY);
  EXPECT_EQ(node_state(), "node: rail0 rail1; record, 1 addresses");
  to_.reset();
  from_.reset();
  EXPECT_EQ(restore_without_tun(), 0);
  EXPECT_EQ(node_state(), kAllFree);
}

TEST_F(KeptNamespace, NamesAProcessThatKeepsIt) {
  ASSERT_OK(add(1));
  end_container();
  EXPECT_EQ(in_child([&] {
              deny(SYS_fsopen, EPERM, 1, FSOPEN_CLOEXEC);  // the netdev cannot be identified
              const auto done = restore();
              EXPECT_TRUE(has_text(error_message(done), fmt::format("process {} (`", ::getppid())))
                  << error_message(done);
              EXPECT_TRUE(has_text(error_message(done), "keeps the container's network namespace"));
              return testing::Test::HasFailure() ? 255 : 0;
            }),
            0);
  EXPECT_EQ(left(), "net1");
  expect_restored();
}

TEST_F(KeptNamespace, IsOpenedByAMountThatTheEngineStillHas) {
  ASSERT_OK(add(1));
  const std::string mount = directory_ / "with space";
  std::ofstream(mount).close();
  EXPECT_EQ(in_child([&] {
              const std::string source = fmt::format("/proc/self/fd/{}", pod_netns_.get());
              if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_PRIVATE | MS_REC, nullptr) != 0 ||
                  ::mount(source.c_str(), mount.c_str(), nullptr, MS_BIND, nullptr) != 0)
                return 255;
              end_container();
              deny(SYS_pidfd_open, EPERM, 1, 0);  // the descriptors of processes are not found
              return restore_without_tun();
            }),
            0);
  EXPECT_EQ(left(), "");
  EXPECT_EQ(node_state(), kAllFree);
}

TEST_F(KeptNamespace, IsAbsentIfAnotherOneHasItsNumber) {
  ASSERT_OK(add(1, Mode::kShared));
  UniqueFd other;
  {
    const UniqueFd node = own_netns();
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    other = own_netns();
    ASSERT_EQ(::setns(node.get(), CLONE_NEWNET), 0);
    const auto handle = must(make_netns_handle(node_, node.get(), other.get()));
    change_record([&](NetworkRecord& record) { record.handle->number = handle.number; });
  }
  socket_.reset();
  end_container();
  EXPECT_EQ(restore_without_tun(), 0);
  EXPECT_EQ(node_state(), kAllFree);
}

// The kernel can use the inode number again, and a small number that an engine gave to the namespace.
TEST_F(KeptNamespace, IsAbsentIfAnotherOneHasNumberAndInodeNumber) {
  ASSERT_OK(add(1, Mode::kShared));
  if (netns_cookie(socket_.get()) == 0) GTEST_SKIP() << "the kernel has no SO_NETNS_COOKIE (Linux 5.14)";
  change_record([&](NetworkRecord& record) {
    EXPECT_EQ(record.handle->cookie, netns_cookie(socket_.get()));
    ++record.handle->cookie;
  });
  end_container();
  expect_restored();
  EXPECT_EQ(node_state(), kAllFree);
  EXPECT_EQ(left(), "net1") << "the other namespace keeps its netdevs";
}

TEST_F(KeptNamespace, IsNotJudgedFromAnotherNamespaceThanTheNodes) {
  ASSERT_OK(add(1, Mode::kShared));
  end_container();
  const auto in_another = [&] { return ::unshare(CLONE_NEWNET) == 0 ? error_code(restore()) : 255; };
  EXPECT_EQ(in_child(in_another), EXDEV);
  EXPECT_EQ(node_state(), "node: rail0 rail1; record, 1 addresses");
  expect_restored();
  EXPECT_EQ(left(), "");
}

// A record of an older version has no handle, and the namespace then counts as gone with its path.
TEST_F(KeptNamespace, IsAbsentWithoutAHandle) {
  ASSERT_OK(add(1, Mode::kShared));
  change_record([](NetworkRecord& record) { record.handle.reset(); });
  end_container();
  expect_restored();
  EXPECT_EQ(node_state(), kAllFree);
  EXPECT_EQ(left(), "net1");
}

TEST_F(KeptNamespace, GetsAHandleWithTheNextRailOfItsPod) {
  ASSERT_OK(add(1, Mode::kShared));
  change_record([](NetworkRecord& record) { record.handle.reset(); });
  ASSERT_OK(add(2, Mode::kShared));
  end_container();
  expect_restored();
  EXPECT_EQ(left(), "");
}

void make_macvlan(Netlink& route, const char* name, int parent) {
  ASSERT_OK(create_child(route, {.name = name, .parent = parent}));
}

TEST_F(RestoreRails, DeletesNetdevsThatTheContainerMadeOnItsNetdev) {
  ASSERT_OK(add(1));
  make_macvlan(pod_, "mine", pod_index());
  make_macvlan(pod_, "other", pod_index());
  expect_restored();
  EXPECT_EQ(state(), kHome);
}

// A path leads to the namespace, so its other netdevs can be the engine's.
TEST_F(RestoreRails, DeletesChildThatTheContainerChanged) {
  ASSERT_OK(add(1, Mode::kShared));
  const int child = pod_index();
  ASSERT_OK(change_link(pod_, child, {.name = "hidden", .group = 0}));
  make_macvlan(pod_, "net1", child);  // the kernel makes it a child of the node's netdev
  expect_restored();
  EXPECT_EQ(state(), "node: rail0 rail1; pod: net1; no record, 0 addresses");
}

TEST_F(RestoreRails, DeletesChildrenIfTheirGroupCannotBeDeleted) {
  ASSERT_OK(add(2, Mode::kShared));
  constexpr int kLoopback = 1;
  ASSERT_OK(change_link(pod_, kLoopback, {.group = must(must(find_link(pod_, "net1"))).group}));
  expect_restored();
  EXPECT_EQ(state(), kHome);
}

TEST_F(RestoreRails, KeepsChildOfANetdevThatHasTheIndexOfTheParent) {
  ASSERT_OK(add(1, Mode::kShared));
  const Link imitation = **find_link(node_, "rail0");
  UniqueFd elsewhere;
  do_inside([&] {
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    elsewhere = own_netns();
    Netlink route = open_route();
    make_decoy(route, imitation, "rail0");
    ASSERT_OK(create_child(route, {.name = "other", .parent = imitation.ifindex, .netns = pod_netns_.get()}));
  });
  ASSERT_OK(delete_link(pod_, pod_index()));
  expect_restored();
  EXPECT_EQ(state(), "node: rail0 rail1; pod: other; no record, 0 addresses");
}

// The container deleted its child, and the child of another container that shares its namespace got the name.
TEST_F(RestoreRails, KeepsChildOfAnotherGrantThatHasTheName) {
  ASSERT_OK(add(1, Mode::kShared));
  ASSERT_OK(delete_link(pod_, pod_index()));
  ASSERT_OK(create_child(node_, {.name = "net1", .parent = node_index(), .group = 77, .netns = pod_netns_.get()}));
  RailRecord theirs;
  theirs.rail.name = "net1";
  theirs.host.ifindex = node_index();
  theirs.child = pod_index();
  ASSERT_OK(must(NetworkRecordStore::open(path_)).write({"other", netns_, 77, {theirs}}));
  expect_restored();
  EXPECT_EQ(state(), "node: rail0 rail1; pod: net1; no record, 0 addresses");
}

TEST_F(RestoreRails, KeepsChildWithTheNameIfARecordOfAnotherGrantCannotBeRead) {
  ASSERT_OK(add(1, Mode::kShared));
  ASSERT_OK(delete_link(pod_, pod_index()));
  ASSERT_OK(create_child(node_, {.name = "net1", .parent = node_index(), .group = 77, .netns = pod_netns_.get()}));
  const std::string other = path_ + "/network/other.json";
  write_file(other, "{");
  EXPECT_FALSE(restore());
  EXPECT_EQ(state(), "node: rail0 rail1; pod: net1; record, 1 addresses");
  fs::remove(other);
  expect_restored();
  EXPECT_EQ(state(), kHome);
}

// Two containers that share a namespace start at once and choose the same name. The start that fails has no index.
TEST_F(RestoreRails, KeepsChildThatTookTheNameBeforeAFailedStart) {
  ASSERT_OK(add(1, Mode::kShared));
  const auto store = must(NetworkRecordStore::open(path_));
  NetworkRecord failed = *must(store.read(owner_.key));
  NetworkRecord theirs = failed;
  theirs.key = "other";
  failed.group = 77;
  failed.rails[0].child = 0;
  ASSERT_OK(store.write(failed));
  for (const int child : {0, theirs.rails[0].child}) {  // before and after the other start ends
    theirs.rails[0].child = child;
    ASSERT_OK(store.write(theirs));
    ASSERT_OK(store.write(failed));
    ASSERT_OK(restore());
    EXPECT_EQ(names(pod_), "net1");
  }
}

TEST_F(KeptNamespace, LosesChildrenThatTheContainerMadeOrChanged) {
  ASSERT_OK(add(1, Mode::kShared));
  make_macvlan(pod_, "mine", pod_index());
  ASSERT_OK(change_link(pod_, pod_index(), {.name = "hidden", .group = 0}));
  // Another grant has a rail in the same namespace.
  const auto handle = must(make_netns_handle(node_, own_netns().get(), pod_netns_.get()));
  ASSERT_OK(create_child(node_, {.name = "theirs", .parent = node_index(), .group = 77, .netns = pod_netns_.get()}));
  RailRecord theirs;
  theirs.rail.name = "theirs";
  theirs.host.ifindex = node_index();
  theirs.child = ifindex_of(pod_, "theirs");
  ASSERT_OK(must(NetworkRecordStore::open(path_)).write({"other", netns_, 77, {theirs}, handle}));
  ASSERT_OK(change_link(pod_, ifindex_of(pod_, "mine"), {.group = 77}));
  end_container();
  expect_restored();
  EXPECT_EQ(left(), "theirs");
}

// The container moves its child away and back, while another netdev has the child's index.
TEST_F(KeptNamespace, KeepsGrantWhileItMayHaveTheChildUnderAnotherIndex) {
  ASSERT_OK(add(1, Mode::kShared));
  const Link added = **find_link(pod_, "net1");
  do_inside([&] {
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    const UniqueFd elsewhere = own_netns();
    Netlink route = open_route();
    ASSERT_OK(change_link(pod_, added.ifindex, {.name = "hidden", .netns = elsewhere.get()}));
    make_decoy(pod_, added, "net1");
    ASSERT_OK(change_link(route, added.ifindex, {.group = 0}));
    ASSERT_OK(change_link(route, added.ifindex, {.netns = pod_netns_.get()}));
  });
  ASSERT_NE(ifindex_of(pod_, "hidden"), added.ifindex);
  EXPECT_EQ(in_child([&] {
              const auto done = restore();
              for (const std::string& text :
                   {std::string("child `net1` of `rail0`, but `hidden`"), fmt::format("process {} (`", ::getppid())})
                EXPECT_TRUE(has_text(error_message(done), text)) << error_message(done);
              return testing::Test::HasFailure() ? 255 : error_code(done);
            }),
            EBUSY);
  EXPECT_EQ(node_state(), "node: rail0 rail1; record, 1 addresses");
  end_container();
  expect_restored();
  EXPECT_EQ(node_state(), kAllFree);
  EXPECT_FALSE(has_text(left(), "hidden")) << left();
}

}  // namespace
}  // namespace hook
