// Uses the kept inventory only while no event, no lost event and no other device node speaks against it.
#include "fabric/kept_node.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace fabric {
namespace {

using test_support::write_file;
using namespace std::chrono_literals;

// A message of rtnetlink with the fixed header and these attributes.
struct LinkMessage {
  unsigned short type = RTM_NEWLINK;
  int index = 0;
  std::string name = "veth0";
  int master = 0;
  int below = 0;
};

void append(std::string& bytes, const void* from, std::size_t size) {
  bytes.append(static_cast<const char*>(from), size);
  bytes.resize((bytes.size() + 3) / 4 * 4);
}

void append_attribute(std::string& bytes, unsigned short type, const void* from, std::size_t size) {
  const rtattr attribute{static_cast<unsigned short>(RTA_LENGTH(size)), type};
  bytes.append(reinterpret_cast<const char*>(&attribute), sizeof attribute);
  append(bytes, from, size);
}

std::string with_header(unsigned short type, const std::string& payload) {
  const nlmsghdr header{static_cast<std::uint32_t>(NLMSG_LENGTH(payload.size())), type, 0, 0, 0};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes + payload;
}

std::string bytes_of(const LinkMessage& message) {
  std::string payload;
  ifinfomsg link{};
  link.ifi_index = message.index;
  append(payload, &link, sizeof link);
  append_attribute(payload, IFLA_IFNAME, message.name.c_str(), message.name.size() + 1);
  if (message.master != 0) append_attribute(payload, IFLA_MASTER, &message.master, sizeof message.master);
  if (message.below != 0) append_attribute(payload, IFLA_LINK, &message.below, sizeof message.below);
  return with_header(message.type, payload);
}

std::string address_message(unsigned index) {
  ifaddrmsg address{};
  address.ifa_index = index;
  return with_header(RTM_NEWADDR, std::string(reinterpret_cast<const char*>(&address), sizeof address));
}

netlink::Bytes view(const std::string& bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

const NetdevsOfInventory kRail{false, {7}, {"rail0"}};

TEST(NodeEvents, PassesOverOtherNetdevs) {
  const std::tuple<const char*, std::string, bool> rows[] = {
      {"a veth of a pod", bytes_of({.index = 90}), false},
      {"the end of a veth", bytes_of({.type = RTM_DELLINK, .index = 90}), false},
      {"the netdev", bytes_of({.index = 7, .name = "renamed"}), true},
      {"made again under its name", bytes_of({.index = 91, .name = "rail0"}), true},
      {"enslaved to it", bytes_of({.index = 92, .master = 7}), true},
      {"on top of it", bytes_of({.index = 93, .below = 7}), true},
      {"an address of a veth", address_message(90), false},
      {"its address", address_message(7), true},
      {"two messages", bytes_of({.index = 90}) + address_message(7), true},
      {"another type", with_header(NLMSG_OVERRUN, ""), true},
      {"cut", bytes_of({.index = 90}).substr(0, 20), true},
      {"no name", with_header(RTM_NEWLINK, std::string(sizeof(ifinfomsg), '\0')), true},
      {"no header", with_header(RTM_NEWADDR, ""), true}};
  for (const auto& [name, bytes, about] : rows)
    EXPECT_EQ(is_about(view(bytes), kRail), about) << name;
  EXPECT_TRUE(is_about(view(address_message(90)), {.all = true, .indexes = {}, .names = {}}));
}

TEST(NodeEvents, KnowsNetdevsOfInventory) {
  Inventory inventory = test_support::rails(1, 4);
  inventory.hcas[0].ports[0].netdev = "rail0";
  inventory.netdevs = {test_support::netdev("bond0", {})};
  inventory.netdevs[0].ifindex = 9;
  inventory.netdevs[0].master = "vrf0";
  const auto netdevs = netdevs_of(inventory, true);
  EXPECT_FALSE(netdevs.all);
  EXPECT_EQ(netdevs.indexes, std::set<unsigned>{9});
  EXPECT_EQ(netdevs.names, (std::set<std::string, std::less<>>{"bond0", "rail0", "vrf0"}));
  inventory.netdevs[0].ifindex = 0;
  EXPECT_TRUE(netdevs_of(inventory, true).all);
  EXPECT_FALSE(netdevs_of(inventory, false).all);
}

TEST(NodeEvents, SelectsUevents) {
  using namespace std::string_view_literals;
  const std::pair<std::string_view, bool> rows[] = {
      {"add@/devices/pci0000:00/0000:3b:00.0/infiniband/mlx5_0\0ACTION=add\0SUBSYSTEM=infiniband\0"sv, true},
      {"remove@/devices/virtual/infiniband_verbs/uverbs0\0ACTION=remove\0SUBSYSTEM=infiniband_verbs\0"sv, true},
      {"bind@/devices/pci0000:00/0000:3b:00.2\0ACTION=bind\0SUBSYSTEM=pci\0"sv, true},
      {"add@/devices/pci0000:00/0000:3b:00.0/net/rail0\0ACTION=add\0SUBSYSTEM=net\0"sv, true},
      {"add@/devices/virtual/net/veth0\0ACTION=add\0SUBSYSTEM=net\0"sv, false},
      {"move@/devices/virtual/net/bond1\0ACTION=move\0SUBSYSTEM=net\0DEVPATH_OLD=/devices/virtual/net/bond0\0"sv, true},
      {"add@/devices/virtual/misc/rdma_cm\0ACTION=add\0SUBSYSTEM=misc\0"sv, true},
      {"change@/devices/virtual/block/loop0\0ACTION=change\0SUBSYSTEM=block\0"sv, false}};
  for (const auto& [uevent, matters] : rows)
    EXPECT_EQ(is_of_inventory(uevent), matters) << uevent;
}

// Replaces an open descriptor by one on which recv(2) fails, as a socket does that the kernel has closed.
void break_socket(int fd) {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::dup3(null.get(), fd, O_CLOEXEC), fd);
}

TEST(NodeEvents, OpensLostSocketAgain) {
  NodeEvents events;
  if (!events.open()) GTEST_SKIP() << "this kernel or its namespaces report no events";
  const auto before = events.fds().size();
  break_socket(events.fds().front());
  EXPECT_TRUE(events.take(kRail)) << "a lost socket counts as an event";
  EXPECT_EQ(events.fds().size(), before - 1);
  EXPECT_TRUE(events.open());
  EXPECT_EQ(events.fds().size(), before);
}

TEST(NodeEvents, ReportsLostUevents) {
  NodeEvents events;
  if (!events.open()) GTEST_SKIP() << "this kernel or its namespaces report no events";
  break_socket(events.fds().back());
  EXPECT_TRUE(events.take(kRail));
}

struct Pair {
  UniqueFd ours, theirs;
  Pair() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ours = UniqueFd(ends[0]);
    theirs = UniqueFd(ends[1]);
  }
};

// A netlink socket with messages about a veth, and with lost messages after them.
UniqueFd overrun() {
  constexpr std::uint32_t kGroup = 1;
  const auto open = [](std::uint32_t groups) {
    UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_USERSOCK));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = groups;
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return socket;
  };
  UniqueFd receiver = open(kGroup);
  const UniqueFd sender = open(0);
  sockaddr_nl to{};
  to.nl_family = AF_NETLINK;
  to.nl_groups = kGroup;
  const std::string veth = bytes_of({.index = 90});
  constexpr int kSmallest = 1;  // the kernel rounds up
  EXPECT_EQ(::setsockopt(receiver.get(), SOL_SOCKET, SO_RCVBUF, &kSmallest, sizeof kSmallest), 0);
  for (int i = 0; i < 100; ++i)
    (void)::sendto(sender.get(), veth.data(), veth.size(), MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to),
                   sizeof to);
  return receiver;
}

class KeptNodeTest : public testing::Test {
 protected:
  KeptNodeTest() {
    test_support::lay_out(test_support::rails(2, 4), tree_);
    can_make_nodes_ = make_node(0, 192) && make_node(1, 193);
  }
  void SetUp() override {
    if (!can_make_nodes_) GTEST_SKIP() << "mknod(2) of device nodes is not allowed here";
  }

  bool make_node(unsigned number, unsigned minor) const {
    const std::string path = tree_ + "/dev/infiniband/uverbs" + std::to_string(number);
    ::unlink(path.c_str());
    return ::mknod(path.c_str(), S_IFCHR | 0666, ::makedev(231, minor)) == 0;
  }
  std::string port(unsigned hca) const {
    return tree_ + "/sys/class/infiniband/mlx5_" + std::to_string(hca) + "/ports/1";
  }
  NodeReadOptions options() const {
    NodeReadOptions read;
    read.root = tree_;
    read.facts = kUsualFacts;
    read.facts.use = true;
    read.facts.own_gids = true;
    read.facts.rate = false;
    return read;
  }
  // Returns true if the answer is of the kept inventory: only then the new vendor is missing.
  bool is_kept(KeptNode& node) {
    vendor_ += 1;
    const std::string vendor = "0x" + std::to_string(vendor_);
    write_file(tree_ + "/sys/class/infiniband/mlx5_0/device/vendor", vendor + "\n");
    const Inventory inventory = node.read(options());
    EXPECT_FALSE(inventory.hcas.empty());
    return inventory.hcas.empty() || inventory.hcas.front().vendor != vendor;
  }
  NodeEvents events() { return {std::move(links_.ours), std::move(rdma_.ours), std::move(uevents_.ours)}; }
  KeptNode node() {
    return KeptNode(events(), [this] { return now_; });
  }
  static void send(const UniqueFd& socket, std::string_view bytes) {
    ASSERT_EQ(::send(socket.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }

  test_support::TempDir directory_;
  std::string tree_ = directory_ / "node";
  bool can_make_nodes_ = false;
  int vendor_ = 1000;
  KeptNode::Clock::time_point now_{};
  Pair links_, rdma_, uevents_;
};

TEST_F(KeptNodeTest, ReadsPortsAndGidsEachTime) {
  KeptNode kept = node();
  EXPECT_FALSE(is_kept(kept));
  EXPECT_EQ(kept.read(options()), read_node(options()));
  EXPECT_TRUE(is_kept(kept));
  const Inventory inventory = read_node(options());
  ASSERT_FALSE(inventory.hcas.at(1).ports.at(0).gids.empty());
  const std::string slot = port(1) + "/gids/" + std::to_string(inventory.hcas[1].ports[0].gids.back().index);
  const std::string gid = test_support::read_file(slot);
  write_file(slot, "0000:0000:0000:0000:0000:ffff:0a09:0909\n");
  EXPECT_FALSE(is_kept(kept)) << "the GID by which the port was usable";
  EXPECT_EQ(kept.read(options()), read_node(options()));
  write_file(slot, gid);
  (void)is_kept(kept);
  EXPECT_TRUE(is_kept(kept));
  write_file(port(1) + "/state", "1: DOWN\n");
  EXPECT_FALSE(is_kept(kept)) << "other facts depend on the state";
  EXPECT_FALSE(kept.read(options()).hcas.at(1).ports.at(0).is_active());
  NodeReadOptions named = options();
  named.hcas = {"mlx5_1"};
  EXPECT_EQ(kept.read(named).hcas.size(), 1U) << "an inventory for other options is another one";
}

TEST_F(KeptNodeTest, ReadsAgainAfterEvents) {
  KeptNode kept = node();
  EXPECT_FALSE(is_kept(kept));
  const auto expect_change = [&](const char* what) {
    EXPECT_FALSE(is_kept(kept)) << what;
    EXPECT_FALSE(is_kept(kept)) << what << ": the kernel may not have finished the change";
    now_ += 1s;
    EXPECT_FALSE(is_kept(kept)) << what;
    EXPECT_TRUE(is_kept(kept)) << what;
  };
  send(links_.theirs, bytes_of({.index = 4711}));
  EXPECT_TRUE(is_kept(kept)) << "a veth of a pod";
  send(links_.theirs, bytes_of({.index = 4711, .name = "rail1"}));
  expect_change("the netdev of a port");
  send(rdma_.theirs, "anything");
  expect_change("RDMA netlink");
  send(uevents_.theirs, "remove@/devices/virtual/infiniband/rxe0 SUBSYSTEM=infiniband");
  expect_change("a uevent");
  uevents_.theirs.reset();
  EXPECT_FALSE(is_kept(kept)) << "no socket, no events";
  EXPECT_FALSE(is_kept(kept));
}

TEST_F(KeptNodeTest, ReadsAgainAfterTenMinutes) {
  KeptNode kept = node();
  EXPECT_FALSE(is_kept(kept));
  now_ += 10min - 1s;
  EXPECT_TRUE(is_kept(kept));
  now_ += 1s;
  EXPECT_FALSE(is_kept(kept));
  EXPECT_TRUE(is_kept(kept));
}

TEST_F(KeptNodeTest, DetectsEventsThatMatter) {
  KeptNode kept = node();
  send(links_.theirs, bytes_of({.index = 4711}));
  EXPECT_TRUE(kept.take_events()) << "no netdevs are known";
  (void)is_kept(kept);
  EXPECT_FALSE(kept.is_quiet()) << "the kernel may not have finished the change";
  now_ += 1s;
  (void)is_kept(kept);
  EXPECT_TRUE(kept.is_quiet());
  send(links_.theirs, bytes_of({.index = 4711}));
  EXPECT_FALSE(kept.take_events()) << "a veth of a pod";
  EXPECT_TRUE(is_kept(kept));
  send(links_.theirs, bytes_of({.index = 4711, .name = "rail1"}));
  EXPECT_TRUE(kept.take_events()) << "the netdev of a port";
  EXPECT_FALSE(is_kept(kept));
  EXPECT_FALSE(kept.is_quiet());
  now_ += 1s;
  send(links_.theirs, bytes_of({.index = 4711, .name = "rail1"}));
  (void)is_kept(kept);
  EXPECT_FALSE(kept.is_quiet()) << "read() took the event while nothing was kept";
  now_ += 1s;
  send(links_.theirs, bytes_of({.index = 4711}));
  (void)is_kept(kept);
  EXPECT_TRUE(kept.is_quiet()) << "a veth of a pod";
}

TEST_F(KeptNodeTest, ReadsAgainAfterLostEvents) {
  links_.ours = overrun();
  KeptNode kept = node();
  EXPECT_FALSE(is_kept(kept));
  EXPECT_FALSE(is_kept(kept)) << "events were lost before the first read";
  now_ += 1s;
  EXPECT_FALSE(is_kept(kept));
  EXPECT_TRUE(is_kept(kept));
}

TEST_F(KeptNodeTest, ChecksNamesDevicesAndNodes) {
  KeptNode kept = node();
  EXPECT_FALSE(is_kept(kept));
  ASSERT_TRUE(make_node(1, 200));
  EXPECT_FALSE(is_kept(kept)) << "another number";
  EXPECT_FALSE(is_kept(kept)) << "it is not the number in sysfs";
  ASSERT_TRUE(make_node(1, 193));
  EXPECT_TRUE(is_kept(kept));
  const std::string classes = tree_ + "/sys/class/infiniband/";
  const auto link = std::filesystem::read_symlink(classes + "mlx5_1");
  std::filesystem::remove(classes + "mlx5_1");
  EXPECT_EQ(kept.read(options()).hcas.size(), 1U) << "an HCA is gone";
  std::filesystem::create_symlink(link, classes + "mlx5_1");
  EXPECT_EQ(kept.read(options()).hcas.size(), 2U) << "an HCA appeared";
  std::filesystem::rename(classes + "mlx5_1", classes + "mlx5_2");
  EXPECT_EQ(kept.read(options()).hcas.at(1).name, "mlx5_2") << "an HCA was renamed";
  std::filesystem::rename(classes + "mlx5_2", classes + "mlx5_1");
  EXPECT_FALSE(is_kept(kept));
  EXPECT_TRUE(is_kept(kept));
  std::filesystem::rename(classes + "mlx5_0", classes + "x");
  std::filesystem::rename(classes + "mlx5_1", classes + "mlx5_0");
  std::filesystem::rename(classes + "x", classes + "mlx5_1");
  EXPECT_TRUE(kept.read(options()).hcas.empty()) << "two HCAs swapped their names, and their nodes not yet";
}

// Facts of a survey that a pool with netdevs and vendors needs.
constexpr HcaFacts kSurveyFacts = [] {
  HcaFacts facts;
  facts.node = false;
  facts.vendor = true;
  facts.netdevs = true;
  facts.identity = true;
  return facts;
}();

TEST_F(KeptNodeTest, SurveysAgainAfterEventsAndChangedNames) {
  KeptNode kept = node();
  const auto survey = [&] { return kept.survey(tree_, kSurveyFacts, false); };
  // Returns true if the answer is of the kept survey: only then the new vendor is missing.
  const auto is_kept_survey = [&] {
    const std::string vendor = "0x" + std::to_string(++vendor_);
    write_file(tree_ + "/sys/class/infiniband/mlx5_0/device/vendor", vendor + "\n");
    const Inventory inventory = survey();
    EXPECT_FALSE(inventory.hcas.empty());
    return inventory.hcas.empty() || inventory.hcas.front().vendor != vendor;
  };
  EXPECT_FALSE(is_kept_survey());
  EXPECT_TRUE(is_kept_survey());
  const auto expect_change = [&](const char* what) {
    EXPECT_FALSE(is_kept_survey()) << what;
    EXPECT_FALSE(is_kept_survey()) << what << ": the kernel may not have finished the change";
    now_ += 1s;
    EXPECT_FALSE(is_kept_survey()) << what;
    EXPECT_TRUE(is_kept_survey()) << what;
    EXPECT_EQ(survey().hcas.size(), 2U);
  };
  send(links_.theirs, bytes_of({.index = 4711}));
  EXPECT_TRUE(is_kept_survey()) << "a veth of a pod";
  send(links_.theirs, bytes_of({.type = RTM_DELLINK, .index = 4711, .name = "rail1"}));
  expect_change("the netdev of a port moved to another network namespace");
  send(uevents_.theirs, "move@/devices/pci0000:00/0000:10:00.0/net/other SUBSYSTEM=net");
  expect_change("a netdev of hardware was renamed");
  send(uevents_.theirs, "add@/devices/pci0000:00/0000:10:00.0/infiniband/mlx5_0 SUBSYSTEM=infiniband");
  expect_change("hot-plug");

  const std::string classes = tree_ + "/sys/class/infiniband/";
  std::filesystem::rename(classes + "mlx5_1", classes + "mlx5_2");
  EXPECT_EQ(survey().hcas.at(1).name, "mlx5_2") << "renamed, before its event";
  std::filesystem::remove(classes + "mlx5_2");
  EXPECT_EQ(survey().hcas.size(), 1U) << "removed, before its event";
  EXPECT_TRUE(is_kept_survey());
  HcaFacts other = kSurveyFacts;
  other.driver = true;
  EXPECT_EQ(kept.survey(tree_, other, false), survey_node(tree_, other, false)) << "a survey with other facts";
  EXPECT_FALSE(is_kept_survey());
  now_ += 10min;
  EXPECT_FALSE(is_kept_survey());
  uevents_.theirs.reset();
  EXPECT_FALSE(is_kept_survey()) << "no socket, no events";
  EXPECT_FALSE(is_kept_survey());
}

TEST_F(KeptNodeTest, KeepsNoSurveyWithGpus) {
  KeptNode kept = node();
  EXPECT_EQ(kept.survey(tree_, kSurveyFacts, true), survey_node(tree_, kSurveyFacts, true));
  test_support::write_file(tree_ + "/sys/class/infiniband/mlx5_0/device/vendor", "0x1234\n");
  EXPECT_EQ(kept.survey(tree_, kSurveyFacts, true).hcas.at(0).vendor, "0x1234") << "no event reports GPUs";
}

TEST_F(KeptNodeTest, ReadsWholeNodeWithoutEvents) {
  KeptNode kept{NodeEvents()};
  EXPECT_FALSE(is_kept(kept));
  EXPECT_FALSE(is_kept(kept));
}

}  // namespace
}  // namespace fabric
