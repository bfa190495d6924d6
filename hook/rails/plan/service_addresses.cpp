// Who reaches the node by which address, of /proc/net/tcp and tcp6 (Linux 6.12
// Documentation/networking/proc_net_tcp.rst, net/ipv4/tcp_ipv4.c, get_tcp4_sock).
#include <algorithm>
#include <array>
#include <cstring>

#include "fabric/text.hpp"
#include "hook/rails/plan/plan_rails.hpp"

namespace hook {
namespace {

constexpr std::uint16_t kSshPort = 22;
constexpr std::uint16_t kKubeletPort = 10250;
constexpr std::uint16_t kApiServerPort = 6443;
constexpr std::uint8_t kEstablished = 1;
constexpr std::uint8_t kListen = 10;

struct Endpoint {
  fabric::Address address;
  std::uint16_t port = 0;
};

// "0100007F:0016": each 32-bit word of the address as a number of the host's byte order, the port as a number.
std::optional<Endpoint> parse_endpoint(std::string_view text) {
  constexpr std::size_t kWordDigits = 8;
  constexpr std::size_t kIpv4Begin = 12;
  Endpoint endpoint;
  const std::size_t colon = text.find(':');
  if (colon != kWordDigits && colon != 4 * kWordDigits) return std::nullopt;
  const bool ipv4 = colon == kWordDigits;
  if (ipv4) endpoint.address.bytes[10] = endpoint.address.bytes[11] = 0xff;
  std::size_t at = ipv4 ? kIpv4Begin : 0;
  for (std::size_t digit = 0; digit < colon; digit += kWordDigits) {
    const auto word = fabric::parse_number<std::uint32_t>(text.substr(digit, kWordDigits), 16);
    if (!word) return std::nullopt;
    std::memcpy(&endpoint.address.bytes[at], &*word, sizeof *word);
    at += sizeof *word;
  }
  const auto port = fabric::parse_number<std::uint16_t>(text.substr(colon + 1), 16);
  if (!port) return std::nullopt;
  endpoint.port = *port;
  return endpoint;
}

bool is_wildcard(const fabric::Address& address) {
  constexpr fabric::Address kIpv4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0}};
  return address.is_zero() || address == kIpv4;
}

// Whose socket it is; empty: nobody's who matters.
std::string_view service_of(const Endpoint& local, const Endpoint& remote, std::uint8_t state) {
  if (local.port == kSshPort) return "sshd";
  if (local.port == kKubeletPort) return "kubelet";
  return state == kEstablished && remote.port == kApiServerPort ? "kubelet" : "";
}

// The first words of a line: "0:", local, remote, state. False for the heading and what is cut off.
bool read_line(std::string_view line, Endpoint& local, Endpoint& remote, std::uint8_t& state) {
  constexpr std::size_t kWords = 4;
  std::array<std::string_view, kWords> words;
  for (std::string_view& word : words) {
    line = fabric::trim(line);
    const std::size_t end = line.find(' ');
    if (end == std::string_view::npos) return false;
    word = line.substr(0, end);
    line.remove_prefix(end);
  }
  const auto here = parse_endpoint(words[1]);
  const auto there = parse_endpoint(words[2]);
  const auto number = fabric::parse_number<std::uint8_t>(words[3], 16);
  if (!here || !there || !number) return false;
  local = *here;
  remote = *there;
  state = *number;
  return true;
}

void add_services(std::string_view text, std::map<fabric::Address, std::string>& services) {
  Endpoint local;
  Endpoint remote;
  std::uint8_t state = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const bool complete = read_line(text.substr(0, end), local, remote, state);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!complete || (state != kEstablished && state != kListen)) continue;
    if (is_wildcard(local.address) || local.address.is_loopback()) continue;
    const std::string_view service = service_of(local, remote, state);
    if (service.empty()) continue;
    std::string& known = services[local.address];
    // sshd's word is kept: whoever reads the message may be sitting behind it.
    if (known.empty() || service == "sshd") known = service;
  }
}

}  // namespace

std::map<fabric::Address, std::string> service_addresses(std::string_view tcp, std::string_view tcp6) {
  std::map<fabric::Address, std::string> services;
  add_services(tcp, services);
  add_services(tcp6, services);
  return services;
}

}  // namespace hook
