// Frames as bytes, then probes between two network namespaces that a child of the test makes.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "base/unique_fd.hpp"
#include "hook/rails/probe/probe.hpp"
#include "support/inventories.hpp"

namespace hook {
namespace {

using namespace fabric;
using namespace test_support;
using Clock = std::chrono::steady_clock;
using FrameBytes = std::vector<std::uint8_t>;
using FrameChange = std::function<void(FrameBytes&)>;

constexpr MacAddress kOurs{0x02, 0, 0, 0, 0, 0x01};
constexpr MacAddress kTheirs{0x02, 0, 0, 0, 0, 0x42};

// A reply of kTheirs to kOurs: 10.0.0.1 is at kTheirs.
FrameBytes arp_reply() {
  return {0x02, 0, 0,    0, 0, 0x01,                     // to
          0x02, 0, 0,    0, 0, 0x42, 0x08, 0x06,         // from, ARP
          0,    1, 0x08, 0, 6, 4,    0,    2,            // Ethernet, IPv4, reply
          0x02, 0, 0,    0, 0, 0x42, 10,   0,    0, 1,   // sender
          0x02, 0, 0,    0, 0, 0x01, 10,   0,    0, 2};  // target
}

// The ICMPv6 message of an NDP frame begins here, its checksum and the hop limit of the packet are there.
constexpr std::size_t kMessage = 54;
constexpr std::size_t kChecksum = 56;
constexpr std::size_t kHopLimit = 21;

void seal(FrameBytes& frame) {
  frame[18] = static_cast<std::uint8_t>((frame.size() - kMessage) >> 8);
  frame[19] = static_cast<std::uint8_t>(frame.size() - kMessage);
  frame[kChecksum] = frame[kChecksum + 1] = 0;
  Address source;
  Address destination;
  std::copy_n(frame.begin() + 22, 16, source.bytes.begin());
  std::copy_n(frame.begin() + 38, 16, destination.bytes.begin());
  const std::uint16_t sum = icmpv6_checksum(source, destination, std::span(frame).subspan(kMessage));
  frame[kChecksum] = static_cast<std::uint8_t>(sum >> 8);
  frame[kChecksum + 1] = static_cast<std::uint8_t>(sum);
}

// An advertisement from kTheirs: fd00::1 is at 02:00:00:00:00:03, as its option says.
FrameBytes advertisement(const Address& target = address("fd00::1"), const Address& to = address("fd00::2"),
                         std::uint8_t flags = 0x60) {
  FrameBytes frame = neighbour_solicitation(kTheirs, address("fd00::1"), target);
  std::copy(kOurs.begin(), kOurs.end(), frame.begin());
  std::copy(to.bytes.begin(), to.bytes.end(), frame.begin() + 38);
  frame[kMessage] = 136;
  frame[kMessage + 4] = flags;
  frame[kMessage + 24] = 2;  // target link-layer address
  frame[kMessage + 31] = 0x03;
  seal(frame);
  return frame;
}

TEST(ArpFrame, MakesRequestOfRfc826AndProbeWithoutSender) {
  const FrameBytes expected{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x06,  //
                            0,    1,    0x08, 0,    6,    4,    0,    1,                             //
                            0x02, 0,    0,    0,    0,    0x01, 10,   0, 0, 2,                       //
                            0,    0,    0,    0,    0,    0,    10,   0, 0, 1};
  EXPECT_EQ(arp_request(kOurs, address("10.0.0.2"), address("10.0.0.1")), expected);
  FrameBytes probe = arp_request(kOurs, address("10.0.0.2"), address("10.0.0.1"));
  std::fill_n(probe.begin() + 28, 4, std::uint8_t{0});
  EXPECT_EQ(arp_request(kOurs, std::nullopt, address("10.0.0.1")), probe);
  EXPECT_EQ(arp_request(kOurs, address("fd00::1"), address("10.0.0.1")), probe);
}

// Applies a change and sets the matching length and checksum.
FrameChange sealed(const FrameChange& change) {
  return [change](FrameBytes& frame) {
    change(frame);
    seal(frame);
  };
}

FrameChange inserted(std::size_t at, FrameBytes bytes) {
  return [at, bytes](FrameBytes& frame) {
    frame.insert(frame.begin() + static_cast<std::ptrdiff_t>(at), bytes.begin(), bytes.end());
  };
}

using FrameRow = std::tuple<const char*, FrameChange, std::optional<AddressClaim>>;

TEST(ArpFrame, ParsesValidFramesOnly) {
  const AddressClaim has{address("10.0.0.1"), kTheirs, false};
  const FrameRow rows[] = {
      {"reply", [](FrameBytes&) {}, has},
      {"padded to the shortest frame", [](FrameBytes& f) { f.resize(60, 0xaa); }, has},
      {"request of the same sender", [](FrameBytes& f) { f[21] = 1; }, has},
      {"IEEE 802 hardware", [](FrameBytes& f) { f[15] = 6; }, has},
      {"probe by another host",
       [](FrameBytes& f) {
         f[21] = 1;
         std::fill_n(f.begin() + 28, 4, std::uint8_t{0});
       },
       AddressClaim{address("10.0.0.2"), kTheirs, true}},
      {"reply without a sender address", [](FrameBytes& f) { std::fill_n(f.begin() + 28, 4, std::uint8_t{0}); },
       std::nullopt},
      {"one byte short", [](FrameBytes& f) { f.pop_back(); }, std::nullopt},
      {"header only", [](FrameBytes& f) { f.resize(14); }, std::nullopt},
      {"empty", [](FrameBytes& f) { f.clear(); }, std::nullopt},
      {"another protocol", [](FrameBytes& f) { f[13] = 0; }, std::nullopt},
      {"hardware of InfiniBand", [](FrameBytes& f) { f[15] = 32; }, std::nullopt},
      {"no IPv4", [](FrameBytes& f) { f[17] = 1; }, std::nullopt},
      {"hardware addresses of 20 bytes", [](FrameBytes& f) { f[18] = 20; }, std::nullopt},
      {"protocol addresses of 16 bytes", [](FrameBytes& f) { f[19] = 16; }, std::nullopt},
      {"reverse request", [](FrameBytes& f) { f[21] = 3; }, std::nullopt},
      {"no hardware address", [](FrameBytes& f) { std::fill_n(f.begin() + 22, 6, std::uint8_t{0}); }, std::nullopt},
      {"tagged", inserted(12, {0x81, 0, 0, 5}), std::nullopt}};
  for (const auto& [name, change, expected] : rows) {
    FrameBytes frame = arp_reply();
    change(frame);
    frame.shrink_to_fit();
    EXPECT_EQ(parse_arp(frame), expected) << name;
    EXPECT_EQ(parse_neighbour(frame), std::nullopt) << name;
  }
}

TEST(NeighbourFrame, ComputesGroupAndChecksum) {
  EXPECT_EQ(to_string(solicited_node(address("fd00::aa:1234:5678"))), "ff02::1:ff34:5678");
  EXPECT_EQ(multicast_mac(address("ff02::1:ff34:5678")), (MacAddress{0x33, 0x33, 0xff, 0x34, 0x56, 0x78}));
  const FrameBytes odd{0x80, 0x00, 0x00, 0x00, 0x01};
  // By hand: 0xfe80 + 1 + 0xfe80 + 2 + 5 + 58 + 0x8000 + 0x0100 is 0x27e42, carried round 0x7e44, inverted.
  EXPECT_EQ(icmpv6_checksum(address("fe80::1"), address("fe80::2"), odd), 0x81bb);
}

TEST(NeighbourFrame, MakesSolicitationOfRfc4861AndProbeWithoutSender) {
  const FrameBytes frame = neighbour_solicitation(kOurs, address("fd00::2"), address("fd00::1"));
  FrameBytes expected{0x33, 0x33, 0xff, 0, 0, 0x01, 0x02, 0,   0, 0, 0, 0x01, 0x86, 0xdd,        //
                      0x60, 0,    0,    0, 0, 32,   58,   255,                                   //
                      0xfd, 0,    0,    0, 0, 0,    0,    0,   0, 0, 0, 0,    0,    0,    0, 2,  //
                      0xff, 0x02, 0,    0, 0, 0,    0,    0,   0, 0, 0, 1,    0xff, 0,    0, 1,  //
                      135,  0,    0,    0, 0, 0,    0,    0,                                     //
                      0xfd, 0,    0,    0, 0, 0,    0,    0,   0, 0, 0, 0,    0,    0,    0, 1,  //
                      1,    1,    0x02, 0, 0, 0,    0,    0x01};
  expected[kChecksum] = frame.at(kChecksum);
  expected[kChecksum + 1] = frame.at(kChecksum + 1);
  EXPECT_EQ(frame, expected);
  EXPECT_EQ(icmpv6_checksum(address("fd00::2"), address("ff02::1:ff00:1"), std::span(frame).subspan(kMessage)), 0);
  const FrameBytes probe = neighbour_solicitation(kOurs, std::nullopt, address("fd00::1"));
  EXPECT_EQ(probe.size(), kMessage + 24);
  EXPECT_TRUE(std::all_of(probe.begin() + 22, probe.begin() + 38, [](std::uint8_t b) { return b == 0; }));
  EXPECT_EQ(neighbour_solicitation(kOurs, address("10.0.0.1"), address("fd00::1")), probe);
  EXPECT_EQ(parse_neighbour(probe), (AddressClaim{address("fd00::1"), kOurs, true}));
}

TEST(NeighbourFrame, ParsesValidFramesOnly) {
  const MacAddress third{0x02, 0, 0, 0, 0, 0x03};
  const AddressClaim has{address("fd00::1"), third, false};
  const FrameRow rows[] = {
      {"advertisement", [](FrameBytes&) {}, has},
      {"padded", [](FrameBytes& f) { f.resize(f.size() + 10, 0xaa); }, has},
      {"without an option", sealed([](FrameBytes& f) { f.resize(kMessage + 24); }),
       AddressClaim{address("fd00::1"), kTheirs, false}},
      {"another option in front", sealed(inserted(kMessage + 24, {14, 1, 1, 2, 3, 4, 5, 6})), has},
      {"to all nodes, not solicited",
       [](FrameBytes& f) { f = advertisement(address("fd00::1"), address("ff02::1"), 0x20); }, has},
      {"to all nodes, solicited", [](FrameBytes& f) { f = advertisement(address("fd00::1"), address("ff02::1")); },
       std::nullopt},
      {"solicitation with a sender", [](FrameBytes& f) { f = neighbour_solicitation(kTheirs, address("fd00::1"), {}); },
       AddressClaim{address("fd00::1"), kTheirs, false}},
      {"duplicate detection to another group", sealed([](FrameBytes& f) {
         f = neighbour_solicitation(kTheirs, std::nullopt, address("fd00::1"));
         f[53] = 2;
       }),
       std::nullopt},
      {"duplicate detection with an option", sealed([](FrameBytes& f) {
         f = neighbour_solicitation(kTheirs, std::nullopt, address("fd00::1"));
         f.insert(f.end(), {1, 1, 2, 0, 0, 0, 0, 3});
       }),
       std::nullopt},
      {"forwarded", [](FrameBytes& f) { f[kHopLimit] = 254; }, std::nullopt},
      {"wrong checksum", [](FrameBytes& f) { f[kChecksum] ^= 1; }, std::nullopt},
      {"one byte short", [](FrameBytes& f) { f.pop_back(); }, std::nullopt},
      {"no message", [](FrameBytes& f) { f.resize(kMessage); }, std::nullopt},
      {"empty", [](FrameBytes& f) { f.clear(); }, std::nullopt},
      {"a length beyond the frame", [](FrameBytes& f) { f[18] = 1; }, std::nullopt},
      {"a message without a target", sealed([](FrameBytes& f) { f.resize(kMessage + 23); }), std::nullopt},
      {"an option of no length", sealed([](FrameBytes& f) { f[kMessage + 25] = 0; }), std::nullopt},
      {"an option beyond the end", sealed([](FrameBytes& f) { f[kMessage + 25] = 2; }), std::nullopt},
      {"a cut option", sealed([](FrameBytes& f) { f.resize(f.size() + 4); }), std::nullopt},
      {"a code", sealed([](FrameBytes& f) { f[kMessage + 1] = 1; }), std::nullopt},
      {"an echo", sealed([](FrameBytes& f) { f[kMessage] = 128; }), std::nullopt},
      {"a multicast target", [](FrameBytes& f) { f = advertisement(address("ff02::1")); }, std::nullopt},
      {"no target", [](FrameBytes& f) { f = advertisement({}); }, std::nullopt},
      {"an IPv4 target", [](FrameBytes& f) { f = advertisement(address("10.0.0.1")); }, std::nullopt},
      {"IPv4", [](FrameBytes& f) { f[14] = 0x45; }, std::nullopt},
      {"another header in front", [](FrameBytes& f) { f[20] = 0; }, std::nullopt},
      {"tagged", inserted(12, {0x81, 0, 0, 5}), std::nullopt}};
  for (const auto& [name, change, expected] : rows) {
    FrameBytes frame = advertisement();
    change(frame);
    frame.shrink_to_fit();
    EXPECT_EQ(parse_neighbour(frame), expected) << name;
    EXPECT_EQ(parse_arp(frame), std::nullopt) << name;
  }
}

// Two namespaces and veths between them, rN here and pN at the peer. This process is in the peer's.
class ProbeScene {
 public:
  // Returns false if the machine does not permit it.
  bool make(unsigned rails) {
    if (unshare(CLONE_NEWNET) != 0) return false;
    here_ = UniqueFd(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    packet_ = UniqueFd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    for (unsigned i = 0; i < rails; ++i) {
      if (!run("link add r" + std::to_string(i) + " address " + to_text(mac(i)) + " type veth peer name p" +
               std::to_string(i))) {
        return false;
      }
    }
    if (unshare(CLONE_NEWNET) != 0) return false;
    const UniqueFd peer(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    const std::string peer_path = fmt::format("/proc/{}/fd/{}", getpid(), peer.get());
    for (unsigned i = 0; i < rails; ++i) {
      EXPECT_TRUE(run_here(fmt::format("link set p{} netns {}", i, peer_path)));
      EXPECT_TRUE(run_here(fmt::format("link set r{} up", i)) && run(fmt::format("link set p{} up", i)));
      ifindices_.push_back(index_here(fmt::format("r{}", i)));
    }
    return packet_.ok();
  }

  // An address of the peer. The kernel takes an IPv6 one later, and answers no question about it before.
  static bool add_address(const std::string& address, unsigned rail) {
    const bool is_ipv6 = address.find(':') != std::string::npos;
    if (!run(fmt::format("addr add {} dev p{}{}", address, rail, is_ipv6 ? " nodad" : ""))) return false;
    while (run(fmt::format("-6 addr show dev p{} to {} tentative | grep -q .", rail, address)))
      usleep(1000);
    return true;
  }

  // `ip` at the peer, or on our side.
  static bool run(const std::string& command) { return std::system(("ip " + command).c_str()) == 0; }
  bool run_here(const std::string& command) const {
    return in_our_namespace([&] { return run(command); });
  }

  static MacAddress mac(unsigned rail) { return {0x02, 0, 0, 0, 0, static_cast<std::uint8_t>(rail + 1)}; }
  int packet() const { return packet_.get(); }
  int ifindex(unsigned rail) const { return ifindices_.at(rail); }

  Probe probe(Probe::Kind kind, unsigned rail, std::string_view source, std::string_view target) const {
    return {kind, "r" + std::to_string(rail), ifindex(rail), mac(rail), address(source), address(target)};
  }
  int index_here(const std::string& name) const {
    int index = 0;
    in_our_namespace([&] { return (index = static_cast<int>(if_nametoindex(name.c_str()))) != 0; });
    return index;
  }

 private:
  bool in_our_namespace(const std::function<bool()>& function) const {
    const UniqueFd back(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    if (setns(here_.get(), CLONE_NEWNET) != 0) return false;
    const bool done = function();
    return setns(back.get(), CLONE_NEWNET) == 0 && done;
  }
  static std::string to_text(const MacAddress& mac) {
    return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
  }

  UniqueFd here_;
  UniqueFd packet_;
  std::vector<int> ifindices_;
};

// This process is at the peer, and in its first namespace again afterwards.
class RunProbes : public testing::Test {
 protected:
  explicit RunProbes(unsigned rails = 2) : rails_(rails) {}
  void SetUp() override {
    if (geteuid() != 0 || std::system("ip -V >/dev/null 2>&1") != 0) GTEST_SKIP() << "needs root and iproute2";
    if (!scene_.make(rails_)) GTEST_SKIP() << "no network namespaces or no veth here";
  }
  ~RunProbes() override { static_cast<void>(setns(home_.get(), CLONE_NEWNET)); }

  const unsigned rails_;
  const UniqueFd home_{open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)};
  ProbeScene scene_;
};
class RunEightProbes : public RunProbes {
 protected:
  RunEightProbes() : RunProbes(8) {}
};

// Sends a frame by a netdev of the peer every 5 ms during its life.
class Sender {
 public:
  Sender(const char* netdev, const FrameBytes& frame) : pid_(fork()) {
    if (pid_ != 0) return;
    const UniqueFd packet(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_ifindex = static_cast<int>(if_nametoindex(netdev));
    for (;;) {
      (void)!sendto(packet.get(), frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
      usleep(5000);
    }
  }
  ~Sender() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

 private:
  pid_t pid_;
};

constexpr ProbeOptions kQuick{.retries = 3, .interval = std::chrono::milliseconds(40)};
// Long enough for a busy machine; a host answers within microseconds.
constexpr ProbeOptions kPatient{.retries = 2, .interval = std::chrono::milliseconds(2000)};
// A probe that waits for the whole interval after the answer never ends.
constexpr ProbeOptions kEndless{.retries = 2, .interval = std::chrono::hours(1)};

struct Outcome {
  std::vector<ProbeAnswer> answers;
  std::chrono::milliseconds took{0};
};

Outcome run(const ProbeScene& scene, const std::vector<Probe>& probes, const ProbeOptions& options) {
  const auto begin = Clock::now();
  auto answers = run_probes(scene.packet(), probes, options);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  EXPECT_TRUE(answers.has_value()) << answers.error().message;
  if (!answers) return {std::vector<ProbeAnswer>(probes.size()), took};
  EXPECT_EQ(answers->size(), probes.size());
  return {std::move(*answers), took};
}

constexpr auto kGateway = Probe::Kind::kGateway;
constexpr auto kDuplicate = Probe::Kind::kDuplicate;

TEST_F(RunProbes, EndsWhenTheGatewayAnswers) {
  ASSERT_TRUE(scene_.run("link set p0 address 02:00:00:00:01:00"));
  ASSERT_TRUE(scene_.add_address("10.0.0.1/24", 0) && scene_.add_address("fd00::1/64", 0));
  for (const auto& [source, target] : {std::pair("10.0.0.2", "10.0.0.1"), std::pair("fd00::2", "fd00::1")}) {
    const Probe probe = scene_.probe(kGateway, 0, source, target);
    // A busy kernel can ignore the first solicitation of a new IPv6 address, which kEndless would not repeat.
    ASSERT_TRUE(run(scene_, {probe}, kPatient).answers[0].answered) << target;
    const auto got = run(scene_, {probe}, kEndless);
    EXPECT_TRUE(got.answers[0].answered) << target;
    EXPECT_EQ(got.answers[0].mac, (MacAddress{0x02, 0, 0, 0, 0x01, 0})) << target;
    EXPECT_EQ(got.answers[0].tries, 1U) << target;
  }
}

TEST_F(RunProbes, GatewayAnswersProbeWithoutAddress) {
  ASSERT_TRUE(scene_.add_address("10.0.0.1/24", 0) && scene_.add_address("fd00::1/64", 0));
  const auto got =
      run(scene_, {scene_.probe(kGateway, 0, "::", "10.0.0.1"), scene_.probe(kGateway, 0, "::", "fd00::1")}, kPatient);
  EXPECT_TRUE(got.answers[0].answered && got.answers[1].answered);
}

TEST_F(RunProbes, UsesAllTriesIfTheGatewayIsSilent) {
  for (const auto& [source, target] : {std::pair("10.0.0.2", "10.0.0.1"), std::pair("fd00::2", "fd00::1")}) {
    const auto got = run(scene_, {scene_.probe(kGateway, 0, source, target)}, kQuick);
    EXPECT_FALSE(got.answers[0].answered) << target;
    EXPECT_EQ(got.answers[0].tries, 3U) << target;
    EXPECT_GE(got.took, kQuick.interval * 3) << target;
  }
}

TEST_F(RunProbes, DetectsDuplicateAddress) {
  ASSERT_TRUE(scene_.run("link set p0 address 02:00:00:00:01:00"));
  ASSERT_TRUE(scene_.add_address("10.0.0.2/24", 0) && scene_.add_address("fd00::2/64", 0));
  for (const char* target : {"10.0.0.2", "fd00::2"}) {
    const auto got = run(scene_, {scene_.probe(kDuplicate, 0, "::", target)}, kPatient);
    EXPECT_TRUE(got.answers[0].answered) << target;
    EXPECT_EQ(got.answers[0].mac, (MacAddress{0x02, 0, 0, 0, 0x01, 0})) << target;
  }
}

TEST_F(RunProbes, DetectsNoDuplicateIfTheAddressIsFree) {
  ASSERT_TRUE(scene_.add_address("10.0.0.3/24", 0) && scene_.add_address("fd00::3/64", 0));
  // An address of the probing netdev itself is no duplicate.
  ASSERT_TRUE(scene_.run_here("addr add 10.0.0.2/24 dev r0") && scene_.run_here("addr add fd00::2/64 dev r0 nodad"));
  const auto got = run(
      scene_, {scene_.probe(kDuplicate, 0, "::", "10.0.0.2"), scene_.probe(kDuplicate, 0, "::", "fd00::2")}, kQuick);
  for (const ProbeAnswer& answer : got.answers) {
    EXPECT_FALSE(answer.answered);
    EXPECT_EQ(answer.tries, 3U);
  }
  EXPECT_GE(got.took, kQuick.interval * 3);
}

TEST_F(RunProbes, DetectsHostThatTestsTheSameAddress) {
  for (const auto& [target, frame] :
       {std::pair("10.0.0.2", arp_request(kTheirs, std::nullopt, address("10.0.0.2"))),
        std::pair("fd00::2", neighbour_solicitation(kTheirs, std::nullopt, address("fd00::2")))}) {
    const Sender sender("p0", frame);
    const auto got = run(scene_, {scene_.probe(kDuplicate, 0, "::", target)}, kPatient);
    EXPECT_TRUE(got.answers[0].answered) << target;
    EXPECT_EQ(got.answers[0].mac, kTheirs) << target;
    // The same frame is no answer of a gateway.
    EXPECT_FALSE(run(scene_, {scene_.probe(kGateway, 0, "::", target)}, kQuick).answers[0].answered) << target;
  }
}

TEST_F(RunProbes, IgnoresFramesThatAreNoAnswer) {
  FrameBytes tagged = arp_reply();
  tagged.insert(tagged.begin() + 12, {0x81, 0, 0, 5});
  FrameBytes to_another = arp_reply();
  to_another[5] = 0x77;
  FrameBytes own = arp_reply();
  own[27] = 0x02;  // rail 1's
  FrameBytes other_address = arp_reply();
  other_address[31] = 9;
  FrameBytes cut = arp_reply();
  cut.resize(30);
  for (const FrameBytes& frame : {tagged, to_another, own, other_address, cut}) {
    const Sender sender("p0", frame);
    const std::vector<Probe> probes{scene_.probe(kGateway, 0, "10.0.0.2", "10.0.0.1"),
                                    scene_.probe(kGateway, 1, "fd00::2", "fd00::1")};
    const auto got = run(scene_, probes, {.retries = 2, .interval = std::chrono::milliseconds(30)});
    EXPECT_FALSE(got.answers[0].answered) << ::testing::PrintToString(frame);
  }
}

TEST_F(RunProbes, AcceptsPriorityTag) {
  FrameBytes frame = arp_reply();
  frame.insert(frame.begin() + 12, {0x81, 0, 0x60, 0});
  const Sender sender("p0", frame);
  // With both families the socket receives frames before the kernel removes such a tag.
  const std::vector<Probe> probes{scene_.probe(kGateway, 0, "10.0.0.2", "10.0.0.1"),
                                  scene_.probe(kGateway, 0, "fd00::2", "fd00::1")};
  const auto got = run(scene_, probes, {.retries = 3, .interval = std::chrono::milliseconds(200)});
  EXPECT_TRUE(got.answers[0].answered);
  EXPECT_FALSE(got.answers[1].answered);
}

TEST_F(RunProbes, IgnoresAnswerOnAnotherRail) {
  const Sender sender("p1", [] {
    FrameBytes frame = arp_reply();
    frame[5] = 0x02;
    frame[27] = 0x77;
    return frame;
  }());
  EXPECT_FALSE(run(scene_, {scene_.probe(kGateway, 0, "10.0.0.2", "10.0.0.1")}, kQuick).answers[0].answered);
  EXPECT_TRUE(run(scene_, {scene_.probe(kGateway, 1, "10.0.0.2", "10.0.0.1")}, kPatient).answers[0].answered);
}

TEST_F(RunEightProbes, WaitsForAllAnswersTogether) {
  std::vector<Probe> probes;
  for (unsigned i = 0; i < 8; ++i) {
    const std::string net = i % 2 == 0 ? "10.0." + std::to_string(i) + "." : "fd00:" + std::to_string(i) + "::";
    // The last gateway of each family stays silent.
    if (i < 6) {
      ASSERT_TRUE(scene_.add_address(net + (i % 2 == 0 ? "1/24" : "1/64"), i));
    }
    probes.push_back(scene_.probe(kGateway, i, net + "2", net + "1"));
    probes.push_back(scene_.probe(kDuplicate, i, "::", net + "2"));
  }
  const ProbeOptions options{.retries = 3, .interval = std::chrono::milliseconds(150)};
  const UniqueFd listening(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ARP)));
  const auto got = run(scene_, probes, options);
  for (unsigned i = 0; i < 8; ++i) {
    EXPECT_EQ(got.answers[std::size_t{2} * i].answered, i < 6) << i;
    EXPECT_EQ(got.answers[std::size_t{2} * i].tries, i < 6 ? 1U : 3U) << i;
    EXPECT_FALSE(got.answers[std::size_t{2} * i + 1].answered) << i;
    EXPECT_EQ(got.answers[std::size_t{2} * i + 1].tries, 3U) << i;
  }
  EXPECT_GE(got.took, options.interval * 3);
  std::set<std::string> first;  // addresses that an ARP probe tests
  FrameBytes frame(2048);
  while (first.size() < 4) {
    const ssize_t length = recv(listening.get(), frame.data(), frame.size(), 0);
    ASSERT_GT(length, 0) << "fewer than four probes";
    const auto claim = parse_arp(std::span(frame).first(static_cast<std::size_t>(length)));
    if (!claim || !claim->tentative) continue;
    EXPECT_TRUE(first.insert(to_string(claim->address)).second) << "a second try before all first tries";
  }
}

TEST_F(RunProbes, CountsNetdevThatIsDownAsSilent) {
  ASSERT_TRUE(scene_.add_address("10.0.0.1/24", 1) && scene_.run_here("link set r0 down"));
  const auto got = run(
      scene_, {scene_.probe(kGateway, 0, "10.0.0.2", "10.0.0.1"), scene_.probe(kGateway, 1, "10.0.0.2", "10.0.0.1")},
      kQuick);
  EXPECT_FALSE(got.answers[0].answered);
  EXPECT_TRUE(got.answers[1].answered);
}

TEST_F(RunProbes, NamesNetdevThatCannotProbe) {
  Probe probe = scene_.probe(kGateway, 0, "10.0.0.2", "10.0.0.1");
  probe.ifindex = 4711;
  auto got = run_probes(scene_.packet(), {probe}, kQuick);
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().message, "cannot send probes for duplicate addresses by `r0`: No such device");
  probe.netdev = "lo";
  probe.ifindex = scene_.index_here("lo");
  got = run_probes(scene_.packet(), {probe}, kQuick);
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().message, "cannot send probes for duplicate addresses by `lo`: it is no Ethernet netdev");
  EXPECT_FALSE(got.error().hint.empty());
}

TEST_F(RunProbes, ReturnsAtOnceWithoutProbesOrTries) {
  const auto none = run_probes(-1, {}, {});
  ASSERT_TRUE(none.has_value());
  EXPECT_TRUE(none->empty());
  const auto untried = run_probes(-1, std::vector<Probe>(2), {.retries = 0});
  ASSERT_TRUE(untried.has_value());
  EXPECT_EQ(untried->size(), 2U);
  EXPECT_FALSE(untried->at(0).answered);
}

}  // namespace
}  // namespace hook
