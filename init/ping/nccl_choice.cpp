#include "init/ping/nccl_choice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/text.hpp"
#include "init/kept.hpp"

namespace init::ping {
namespace {

using fabric::GidEntry;
using fabric::Hca;
using fabric::Inventory;
using fabric::Port;

// The choice of one port: the rail, or the reason why NCCL does not use the port.
struct Chooser {
  const Inventory& inventory;
  const Settings& settings;
  const nccl::Version& version;

  std::string value_of(std::string_view name) const {
    const Setting* setting = find_setting(settings, name);
    return setting ? setting->value : "";
  }
  long number_of(std::string_view name, long fallback) const { return nccl::parse_param(value_of(name), fallback); }

  // Returns why NCCL opens no HCA at all, empty if it does.
  std::string disabled() const {
    if (number_of("NCCL_IB_DISABLE", 0) != 0) return "NCCL_IB_DISABLE is set";
    std::string net = value_of("NCCL_NET");
    std::ranges::transform(net, net.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return net == "socket" ? "NCCL_NET is Socket" : "";
  }

  std::string unused_because(const Hca& hca, const Port& port) const {
    if (!hca.is_accessible()) return "its device node cannot be opened";
    if (!port.is_active()) return "the port is not active";
    if (!port.is_infiniband() && !port.is_ethernet()) return "its link layer is neither InfiniBand nor Ethernet";
    const std::string list = value_of("NCCL_IB_HCA");
    if (!nccl::parse_hca_list(list, version).matches(hca.name, port.number))
      return fmt::format("NCCL_IB_HCA is {}", printable(list, kLongestValue));
    return disabled();
  }

  // Returns the index on InfiniBand: the FLID's if the port has one, otherwise 0.
  unsigned infiniband_index(const Port& port) const {
    if (version < nccl::kIgnoresIndexOnInfiniband)
      return static_cast<unsigned>(std::max(0, nccl::parse_index(value_of("NCCL_IB_GID_INDEX"))));
    const auto index = static_cast<unsigned>(number_of("NCCL_IB_ROUTABLE_FLID_GID_INDEX", 1));
    const auto found = std::ranges::find(port.gids, index, &GidEntry::index);
    const bool has_flid = found != port.gids.end() && (found->gid.bytes[4] != 0 || found->gid.bytes[5] != 0);
    return has_flid ? index : 0;
  }

  nccl::GidChoice roce_index(const Port& port) const {
    const int index = nccl::parse_index(value_of("NCCL_IB_GID_INDEX"));
    if (index >= 0) return {static_cast<unsigned>(index), false};
    if (version < nccl::kChoosesGid) return {0U, false};
    nccl::GidRules rules = nccl::parse_gid_rules(value_of("NCCL_IB_ADDR_FAMILY"), value_of("NCCL_IB_ADDR_RANGE"),
                                                 value_of("NCCL_IB_ROCE_VERSION_NUM"));
    rules.version = version;
    return nccl::choose_gid(port, rules);
  }

  std::string netdev_of(const fabric::Address& gid) const {
    for (const fabric::Netdev& netdev : inventory.netdevs) {
      const bool has =
          std::ranges::find(netdev.addresses, gid, &fabric::InterfaceAddress::address) != netdev.addresses.end();
      if (has && netdev.is_here()) return netdev.name;
    }
    return "";
  }

  void set_gid(const Port& port, Rail& rail) const {
    const nccl::GidChoice choice = rail.infiniband ? nccl::GidChoice{infiniband_index(port), false} : roce_index(port);
    if (!choice.index) {
      rail.problem = {Layer::kGid, "NCCL cannot read the types of its GID table, so its connections fail"};
      return;
    }
    rail.gid_index = *choice.index;
    const auto found = std::ranges::find(port.gids, rail.gid_index, &GidEntry::index);
    if (found == port.gids.end() || found->gid.is_zero()) {
      rail.problem = {Layer::kGid, fmt::format("its GID table has no GID at index {}", rail.gid_index)};
      return;
    }
    rail.gid = found->gid;
    rail.netdev = netdev_of(found->gid);
  }

  // Returns what may be wrong with the GID. Such a doubt alone is no problem: RoCE v1 works within one network, and a
  // container without a netdev of the HCA uses addresses of the node.
  std::string doubt_about(const Port& port, const Rail& rail) const {
    if (rail.infiniband || rail.problem.failed()) return "";
    const auto found = std::ranges::find(port.gids, rail.gid_index, &GidEntry::index);
    if (found->is_v1()) return fmt::format("the GID at index {} has type RoCE v1", rail.gid_index);
    if (!rail.netdev.empty() || inventory.net_error) return "";
    return fmt::format("the GID at index {}, {}, is no address of this network namespace", rail.gid_index,
                       to_string(rail.gid));
  }

  Rail rail_of(const Hca& hca, const Port& port) const {
    const auto rate = static_cast<unsigned>(std::lround(port.rate_gbps() * 1000));
    Rail rail{hca.name, port.number, port.is_infiniband(), rate, {}, 0, {}};
    set_gid(port, rail);
    constexpr const char* kPairs = "NCCL_IB_QPS_PER_CONNECTION";
    const Setting* pairs = find_setting(settings, kPairs);
    const auto why = pairs ? check_number(*find_number(kPairs), pairs->value, version) : std::nullopt;
    if (why && why->effect == init::Verdict::kBad)
      rail.problem = {Layer::kVerbs, fmt::format("{}: {}", kPairs, why->text)};
    return rail;
  }

  static constexpr std::size_t kLongestValue = 100;
};

long default_timeout(const nccl::Version& version) {
  return version >= nccl::kTimeout20 ? 20 : version >= nccl::kTimeout18 ? 18 : 14;
}

// NCCL gives these numbers to ibv_modify_qp() as bytes, without a check: the driver refuses a number out of range.
std::uint8_t byte_of(long value) {
  return static_cast<std::uint8_t>(value);
}

}  // namespace

NcclChoice nccl_choice(const Inventory& inventory, const Settings& settings, const nccl::Version& version) {
  const Chooser chooser{inventory, settings, version};
  NcclChoice choice;
  for (const Hca& hca : inventory.hcas) {
    for (const Port& port : hca.ports) {
      std::string reason = chooser.unused_because(hca, port);
      if (reason.empty() && choice.rails.size() == nccl::max_ports(version)) reason = "NCCL uses no more ports";
      if (reason.empty()) {
        choice.rails.push_back(chooser.rail_of(hca, port));
        choice.doubts.push_back(chooser.doubt_about(port, choice.rails.back()));
      } else {
        choice.unused.push_back(fmt::format("{}:{}: {}", printable(hca.name), port.number, reason));
      }
    }
  }
  const fabric::NcclMarks marks = fabric::nccl_marks(chooser.value_of("NCCL_IB_TC"), chooser.value_of("NCCL_IB_SL"),
                                                     version >= nccl::kMinusOneIsDefault);
  choice.connecting.traffic_class = marks.traffic_class;
  choice.connecting.service_level = marks.service_level;
  choice.connecting.pkey_index = static_cast<std::uint16_t>(chooser.number_of("NCCL_IB_PKEY", 0));
  choice.connecting.timeout = byte_of(chooser.number_of("NCCL_IB_TIMEOUT", default_timeout(version)));
  choice.connecting.retries = byte_of(chooser.number_of("NCCL_IB_RETRY_CNT", 7));
  return choice;
}

}  // namespace init::ping
