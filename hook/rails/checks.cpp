#include "hook/rails/checks.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "hook/rails/netlink/links.hpp"
#include "hook/rails/probe/probe.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;

constexpr int kCarrierMs = 5000;  // a port that trains its link anew takes some seconds

struct Asked {
  Probe probe;
  const PlacedRail* rail = nullptr;
};

Result<MacAddress> mac_of(NetworkNamespace& inside, int ifindex) {
  const auto link = TRY(find_link(inside.route, ifindex));
  MacAddress mac{};
  if (link && link->mac.size() == mac.size()) std::copy(link->mac.begin(), link->mac.end(), mac.begin());
  return mac;
}

RailTest test_of(const PlacedRail& rail, Probe::Kind kind) {
  if (!rail.network || rail.record->rail.kind == RailKind::kIpoib) return RailTest::kOff;
  return kind == Probe::Kind::kGateway ? rail.network->gateway_test : rail.network->duplicate_test;
}

Result<std::vector<Asked>> questions(NetworkNamespace& inside, const std::vector<PlacedRail>& rails, Probe::Kind kind) {
  std::vector<Asked> asked;
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

std::string finding(const Asked& asked, const ProbeAnswer& answer) {
  const Rail& rail = asked.rail->record->rail;
  if (asked.probe.kind == Probe::Kind::kDuplicate) {
    return fmt::format("address {} of rail {} (`{}`) is in use: {} answers for it", to_string(asked.probe.target),
                       rail.rail, rail.host, to_string(answer.mac));
  }
  return fmt::format("gateway {} of rail {} (`{}` on `{}`) does not answer, {} tries", to_string(asked.probe.target),
                     rail.rail, rail.name, rail.host, answer.tries);
}

const char* remedy(Probe::Kind kind) {
  return kind == Probe::Kind::kGateway
             ? "check cable, VLAN and the gateway's address; or \"gateway_test\": \"warn\" in the network"
             : "change \"addresses\" of the network, or end the other holder";
}

// A netdev that has just moved gets its carrier later, and what is sent before is lost.
Result<void> await_carrier(NetworkNamespace& inside, const std::vector<Asked>& asked) {
  constexpr int kPauseMs = 5;
  int waited = 0;
  for (const Asked& one : asked) {
    while (waited < kCarrierMs) {
      const auto link = TRY(find_link(inside.route, one.probe.ifindex));
      if (!link || link->running) break;
      ::usleep(kPauseMs * 1000);
      waited += kPauseMs;
    }
  }
  return {};
}

ProbeOptions options_of(const std::vector<Asked>& asked) {
  ProbeOptions options{1, std::chrono::milliseconds(1)};
  for (const Asked& one : asked) {
    options.retries = std::max(options.retries, one.rail->network->test_retries);
    options.interval = std::max(options.interval, std::chrono::milliseconds(one.rail->network->test_interval_ms));
  }
  return options;
}

Result<void> test(NetworkNamespace& inside, const std::vector<PlacedRail>& rails, Probe::Kind kind,
                  std::vector<std::string>& warnings) {
  const auto asked = TRY(questions(inside, rails, kind));
  if (asked.empty()) return {};
  if (!inside.packet.ok()) {
    warnings.emplace_back("cannot test the rails: the kernel refused a packet socket");
    return {};
  }
  TRY_VOID(await_carrier(inside, asked));
  std::vector<Probe> probes;
  probes.reserve(asked.size());
  for (const Asked& one : asked)
    probes.push_back(one.probe);
  const auto answers = TRY(run_probes(inside.packet.get(), probes, options_of(asked)));
  const bool wanted = kind == Probe::Kind::kGateway;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].answered == wanted) continue;
    const std::string text = finding(asked[i], answers[i]);
    if (test_of(*asked[i].rail, kind) == RailTest::kFail) return Error{text, EHOSTUNREACH, remedy(kind)};
    warnings.push_back(text);
  }
  return {};
}

}  // namespace

Result<void> test_duplicates(NetworkNamespace& inside, const std::vector<PlacedRail>& rails,
                             std::vector<std::string>& warnings) {
  return test(inside, rails, Probe::Kind::kDuplicate, warnings);
}

Result<void> test_gateways(NetworkNamespace& inside, const std::vector<PlacedRail>& rails,
                           std::vector<std::string>& warnings) {
  return test(inside, rails, Probe::Kind::kGateway, warnings);
}

}  // namespace hook
