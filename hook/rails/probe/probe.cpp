#include "hook/rails/probe/probe.hpp"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/text.hpp"
#include "hook/rails/netlink/links.hpp"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23  // in Linux 4.20
#endif

namespace hook {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLargestPacket = 2048;
// Limit on frames that are read after the deadline. If this process did not run for a while, frames that arrived in
// time are still in the socket. The limit is needed because frames can arrive without end.
constexpr unsigned kMostLateFrames = 1024;

constexpr std::uint32_t ancillary(int what) {
  return static_cast<std::uint32_t>(SKF_AD_OFF + what);
}

constexpr std::uint8_t kDrop = 19;  // index of the instruction that drops a frame

constexpr sock_filter load(std::uint16_t size, std::uint32_t from) {
  return BPF_STMT(static_cast<std::uint16_t>(BPF_LD | size | BPF_ABS), from);
}

// Continues with the next instruction if the loaded value is `value`; otherwise drops the frame.
// index: the index of this instruction.
constexpr sock_filter drop_unless(std::uint8_t index, std::uint32_t value) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, static_cast<std::uint8_t>(kDrop - index - 1));
}

// A BPF filter that passes only frames that parse_arp() and parse_neighbour() can accept, so that other frames neither
// wake the process nor fill the socket. VLAN tags are read as ancillary data, because the kernel removes them before a
// packet socket gets the frame (skb_vlan_untag() in __netif_receive_skb_core(), Linux 6.12). A frame with VLAN 0
// passes: its tag only has a priority, and the frame is from this network.
constexpr sock_filter kFilter[] = {
    /* 0 */ load(BPF_W, ancillary(SKF_AD_VLAN_TAG_PRESENT)),
    /* 1 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, 0),
    /* 2 */ load(BPF_W, ancillary(SKF_AD_VLAN_TAG)),
    /* 3 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xfff),
    /* 4 */ drop_unless(4, 0),
    // The next two instructions drop outgoing frames, and frames to other hosts, which arrive in promiscuous mode or
    // from a VLAN that has no netdev.
    /* 5 */ load(BPF_W, ancillary(SKF_AD_PKTTYPE)),
    /* 6 */ BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, PACKET_MULTICAST, kDrop - 7, 0),
    /* 7 */ load(BPF_H, 12),
    /* 8 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETHERTYPE_ARP, 0, 3),
    /* 9 */ load(BPF_H, 20),
    /* 10 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARPOP_REQUEST, 7, 0),
    /* 11 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARPOP_REPLY, 6, kDrop - 12),
    /* 12 */ drop_unless(12, ETHERTYPE_IPV6),
    /* 13 */ load(BPF_B, 20),
    /* 14 */ drop_unless(14, IPPROTO_ICMPV6),
    /* 15 */ load(BPF_B, 54),
    /* 16 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ND_NEIGHBOR_SOLICIT, 1, 0),
    /* 17 */ drop_unless(17, ND_NEIGHBOR_ADVERT),
    /* 18 */ BPF_STMT(BPF_RET | BPF_K, kLargestPacket),
    /* 19 */ BPF_STMT(BPF_RET | BPF_K, 0),
};
static_assert(std::size(kFilter) == kDrop + 1);

Error probe_error(int code, const char* what, const Probe& probe) {
  return sys_error(code, "cannot {} `{}`", what, base::printable(probe.netdev));
}

bool set_option(int packet, int level, int name, const auto& value) {
  return ::setsockopt(packet, level, name, &value, sizeof value) == 0;
}

bool bind_to(int packet, int ifindex, std::uint16_t protocol) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(protocol);
  address.sll_ifindex = ifindex;
  return ::bind(packet, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Checks the type of the netdev. The socket is bound with protocol 0, with which it receives nothing (packet_do_bind(),
// Linux 6.12), and getsockname(2) returns the type. SIOCGIFHWADDR is not used, because the seccomp filter refuses
// ioctl(2).
Result<void> check_netdev(int packet, const Probe& probe) {
  sockaddr_ll address{};
  socklen_t size = sizeof address;
  if (!bind_to(packet, probe.ifindex, 0) || ::getsockname(packet, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return probe_error(errno, "send probes for duplicate addresses by", probe);
  if (address.sll_hatype == ARPHRD_ETHER) return {};
  return Error{fmt::format("cannot send probes for duplicate addresses by `{}`: it is no Ethernet netdev",
                           base::printable(probe.netdev)),
               0, "set \"gateway_test\" and \"duplicate_test\" of its network to \"off\""};
}

// Returns true if the request has no source address. Hosts then answer to the multicast group of all nodes.
bool is_anonymous(const Probe& probe) {
  return probe.kind == Probe::Kind::kDuplicate || probe.source.is_zero() ||
         probe.source.family() != probe.target.family();
}

Result<void> join_group(int packet, const Probe& probe, const fabric::Address& group) {
  const MacAddress mac = multicast_mac(group);
  packet_mreq request{};
  request.mr_ifindex = probe.ifindex;
  request.mr_type = PACKET_MR_MULTICAST;
  request.mr_alen = static_cast<unsigned short>(mac.size());
  std::ranges::copy(mac, request.mr_address);
  if (set_option(packet, SOL_PACKET, PACKET_ADD_MEMBERSHIP, request)) return {};
  return probe_error(errno, "receive multicast frames of", probe);
}

// Joins the multicast groups to which hosts send their answer to an IPv6 probe without source address. The kernel joins
// the all-nodes group only if the netdev has IPv6, and the solicited-node group only when the address is added.
Result<void> join_neighbour_groups(int packet, const Probe& probe) {
  if (probe.target.is_ipv4() || !is_anonymous(probe)) return {};
  constexpr fabric::Address kAllNodes{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01}};
  TRY_VOID(join_group(packet, probe, kAllNodes));
  return join_group(packet, probe, solicited_node(probe.target));
}

// Prepares the socket. The filter is attached first, so that the socket does not fill with other frames. The socket is
// bound to one protocol if possible: with ETH_P_ALL the kernel runs the filter for every frame of every netdev.
Result<void> prepare(int packet, const std::vector<Probe>& probes) {
  sock_fprog program{};
  program.len = std::size(kFilter);
  program.filter = const_cast<sock_filter*>(kFilter);  // the kernel only copies it
  if (!set_option(packet, SOL_SOCKET, SO_ATTACH_FILTER, program))
    return sys_error(errno, "cannot filter answers to the probe for duplicate addresses");
  (void)set_option(packet, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);  // costs less than the filter
  bool arp = false;
  bool ndp = false;
  for (const Probe& probe : probes) {
    TRY_VOID(check_netdev(packet, probe));
    TRY_VOID(join_neighbour_groups(packet, probe));
    (probe.target.is_ipv4() ? arp : ndp) = true;
  }
  const std::uint16_t protocol = arp && ndp ? ETH_P_ALL : arp ? ETH_P_ARP : ETH_P_IPV6;
  if (!bind_to(packet, 0, protocol))
    return sys_error(errno, "cannot receive answers to the probe for duplicate addresses");
  return {};
}

std::vector<std::uint8_t> make_frame(const Probe& probe) {
  const auto source = is_anonymous(probe) ? std::nullopt : std::optional(probe.source);
  return probe.target.is_ipv4() ? arp_request(probe.mac, source, probe.target)
                                : neighbour_solicitation(probe.mac, source, probe.target);
}

Result<void> send_frame(int packet, const Probe& probe, std::span<const std::uint8_t> frame) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(probe.target.is_ipv4() ? ETH_P_ARP : ETH_P_IPV6);
  address.sll_ifindex = probe.ifindex;
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  if (::sendto(packet, frame.data(), frame.size(), MSG_DONTWAIT, to, sizeof address) >= 0) return {};
  // If the netdev is down or its queue is full, the frame counts as sent without an answer, because the next try may
  // succeed.
  const bool silent = errno == ENETDOWN || errno == ENOBUFS || errno == EAGAIN || errno == EINTR;
  return silent ? Result<void>() : probe_error(errno, "send a probe for duplicate addresses by", probe);
}

bool is_over(const std::vector<ProbeAnswer>& answers) {
  return std::ranges::all_of(answers, [](const ProbeAnswer& answer) { return answer.answered; });
}

void take_frame(std::span<const std::uint8_t> frame, int ifindex, const std::vector<Probe>& probes,
                std::vector<ProbeAnswer>& answers) {
  auto claim = parse_arp(frame);
  if (!claim) claim = parse_neighbour(frame);
  if (!claim) return;
  // Frames of the probed rails are ignored: rails of one container on one subnet receive each other's probes.
  const auto is_own = [&](const Probe& probe) { return probe.mac == claim->mac; };
  if (std::ranges::any_of(probes, is_own)) return;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const Probe& probe = probes[i];
    if (answers[i].answered || probe.ifindex != ifindex || probe.target != claim->address) continue;
    // A host that only tests the address is no gateway. For a duplicate test such a host counts, because two hosts that
    // test an address at once must not both get the address.
    if (claim->tentative && probe.kind != Probe::Kind::kDuplicate) continue;
    answers[i].answered = true;
    answers[i].mac = claim->mac;
  }
}

Result<void> read_frame(int packet, const std::vector<Probe>& probes, std::vector<ProbeAnswer>& answers) {
  std::uint8_t buffer[kLargestPacket];
  sockaddr_ll from{};
  socklen_t size = sizeof from;
  const ssize_t count =
      ::recvfrom(packet, buffer, sizeof buffer, MSG_DONTWAIT | MSG_TRUNC, reinterpret_cast<sockaddr*>(&from), &size);
  if (count < 0) {
    const bool harmless = errno == EAGAIN || errno == EINTR || errno == ENETDOWN;
    return harmless ? Result<void>() : sys_error(errno, "cannot receive answers to the probe for duplicate addresses");
  }
  const auto length = static_cast<std::size_t>(count);
  if (length <= sizeof buffer) take_frame({buffer, length}, from.sll_ifindex, probes, answers);
  return {};
}

// Receives answers until the deadline, or until every probe has its answer.
Result<void> listen(int packet, const std::vector<Probe>& probes, Clock::time_point deadline,
                    std::vector<ProbeAnswer>& answers) {
  for (unsigned late = 0; late < kMostLateFrames && !is_over(answers);) {
    const auto left = std::max(deadline - Clock::now(), Clock::duration::zero());
    if (left == Clock::duration::zero()) ++late;
    const auto whole = std::chrono::floor<std::chrono::seconds>(left);
    const timespec timeout{.tv_sec = whole.count(), .tv_nsec = std::chrono::nanoseconds(left - whole).count()};
    pollfd wait{.fd = packet, .events = POLLIN, .revents = 0};
    const int ready = ::ppoll(&wait, 1, &timeout, nullptr);
    if (ready == 0) break;
    if (ready < 0 && errno != EINTR)
      return sys_error(errno, "cannot wait for answers to the probe for duplicate addresses");
    if (ready > 0) TRY_VOID(read_frame(packet, probes, answers));
  }
  return {};
}

constexpr int kCarrierMs = 5000;  // link training of a port takes some whole

struct Question {
  Probe probe;
  const PlacedRail* rail = nullptr;
};

Result<MacAddress> mac_of(NetworkNamespace& inside, int ifindex) {
  const auto link = TRY(find_link(inside.route, ifindex));
  MacAddress mac{};
  if (link && link->mac.size() == mac.size()) std::ranges::copy(link->mac, mac.begin());
  return mac;
}

RailTest test_of(const PlacedRail& rail, Probe::Kind kind) {
  if (!rail.network || rail.record->rail.kind == RailKind::kIpoib) return RailTest::kOff;
  return kind == Probe::Kind::kGateway ? rail.network->gateway_test : rail.network->duplicate_test;
}

Result<std::vector<Question>> questions(NetworkNamespace& inside, const std::vector<PlacedRail>& rails,
                                        Probe::Kind kind) {
  std::vector<Question> asked;
  for (const PlacedRail& rail : rails) {
    if (test_of(rail, kind) == RailTest::kOff) continue;
    const MacAddress mac = TRY(mac_of(inside, rail.ifindex));
    for (const RailAddress& address : rail.record->rail.addresses) {
      if (kind == Probe::Kind::kGateway && !address.gateway) continue;
      const fabric::Address target = kind == Probe::Kind::kGateway ? *address.gateway : address.address;
      asked.push_back({{kind, rail.record->rail.name, rail.ifindex, mac, address.address, target}, &rail});
    }
  }
  return asked;
}

std::string finding(const Question& asked, const ProbeAnswer& answer) {
  const Rail& rail = asked.rail->record->rail;
  if (asked.probe.kind == Probe::Kind::kDuplicate)
    return fmt::format("address {} of rail {} (`{}`) is in use by the host with MAC address {}",
                       to_string(asked.probe.target), rail.rail, rail.host, to_string(answer.mac));
  return fmt::format("gateway {} of rail {} (`{}` on `{}`) does not answer in {} tries", to_string(asked.probe.target),
                     rail.rail, rail.name, rail.host, answer.tries);
}

const char* remedy(Probe::Kind kind) {
  return kind == Probe::Kind::kGateway
             ? "check cable, VLAN and the gateway's address, or set \"gateway_test\": \"warn\" in the network"
             : "change \"addresses\" of the network, or remove the address from the other host";
}

// Waits for the carrier of all netdevs, at most kCarrierMs together. A netdev that has just moved has no carrier at
// first, and frames that are sent without a carrier are lost.
Result<void> await_carrier(NetworkNamespace& inside, const std::vector<Question>& asked) {
  constexpr int kPauseMs = 5;
  int waited = 0;
  for (const Question& one : asked) {
    while (waited < kCarrierMs) {
      const auto link = TRY(find_link(inside.route, one.probe.ifindex));
      if (!link || link->running) break;
      ::usleep(kPauseMs * 1000);
      waited += kPauseMs;
    }
  }
  return {};
}

// Returns the options for all rails together: the largest values of their networks, because one socket tests all rails
// at once.
ProbeOptions options_of(const std::vector<Question>& asked) {
  ProbeOptions options{1, std::chrono::milliseconds(1)};
  for (const Question& one : asked) {
    options.retries = std::max(options.retries, one.rail->network->test_retries);
    options.interval = std::max(options.interval, std::chrono::milliseconds(one.rail->network->test_interval_ms));
  }
  return options;
}

}  // namespace

Result<std::vector<ProbeAnswer>> run_probes(int packet, const std::vector<Probe>& probes, const ProbeOptions& options) {
  std::vector<ProbeAnswer> answers(probes.size());
  if (probes.empty() || options.retries == 0) return answers;
  TRY_VOID(prepare(packet, probes));
  std::vector<std::vector<std::uint8_t>> frames;
  frames.reserve(probes.size());
  for (const Probe& probe : probes)
    frames.push_back(make_frame(probe));
  for (unsigned attempt = 0; attempt < options.retries && !is_over(answers); ++attempt) {
    for (std::size_t i = 0; i < probes.size(); ++i) {
      if (answers[i].answered) continue;
      TRY_VOID(send_frame(packet, probes[i], frames[i]));
      ++answers[i].tries;
    }
    // The interval begins after the last frame was sent. If this process did not run for a while before, hosts still
    // have the whole interval to answer.
    TRY_VOID(listen(packet, probes, Clock::now() + options.interval, answers));
  }
  return answers;
}

Result<std::vector<std::string>> test_rails(Probe::Kind kind, NetworkNamespace& inside,
                                            const std::vector<PlacedRail>& rails) {
  std::vector<std::string> warnings;
  const auto asked = TRY(questions(inside, rails, kind));
  if (asked.empty()) return warnings;
  if (!inside.packet.ok()) {
    warnings.emplace_back("cannot test gateways and addresses of the rails: the kernel refused a packet socket");
    return warnings;
  }
  TRY_VOID(await_carrier(inside, asked));
  std::vector<Probe> probes;
  probes.reserve(asked.size());
  for (const Question& one : asked)
    probes.push_back(one.probe);
  const auto answers = TRY(run_probes(inside.packet.get(), probes, options_of(asked)));
  const bool wanted = kind == Probe::Kind::kGateway;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].answered == wanted) continue;
    const std::string text = finding(asked[i], answers[i]);
    if (test_of(*asked[i].rail, kind) == RailTest::kFail) return Error{text, EHOSTUNREACH, remedy(kind)};
    warnings.push_back(text);
  }
  return warnings;
}

}  // namespace hook
