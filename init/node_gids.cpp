#include "init/node_gids.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "fabric/text.hpp"

namespace init {
namespace {

using fabric::GidEntry;
using fabric::Port;
using fabric::printable;

std::optional<std::string> known_text(const std::optional<fabric::Attr<std::string>>& attr) {
  const auto* text = attr ? std::get_if<std::string>(&*attr) : nullptr;
  return text && !text->empty() ? std::optional(*text) : std::nullopt;
}

std::optional<std::string> netdev_on_node(const fabric::Hca& hca, const Port& port) {
  if (hca.parent) return hca.parent;
  if (port.gids.empty() || port.gids.front().index != 0 || !port.gids.front().gid.is_link_local()) return std::nullopt;
  return known_text(port.gids.front().ndev);
}

std::string show(const GidEntry& entry) {
  return fmt::format("{} (index {})", to_string(entry.gid), entry.index);
}

NodeGids told_gids(const Port& port, const std::vector<fabric::Address>& addresses) {
  NodeGids node;
  for (const GidEntry& entry : port.gids) {
    const bool is_told = std::find(addresses.begin(), addresses.end(), entry.gid) != addresses.end();
    if (is_told && entry.is_v2()) node.gids.push_back(&entry);
  }
  node.needs_table = node.gids.empty() && !port.gids_complete;
  if (node.gids.empty() && !addresses.empty()) {
    node.reason = fmt::format("its table has no RoCE v2 GID of the node's {}", to_string(addresses.front()));
  }
  return node;
}

NodeGids gids_of_netdev(const Port& port, const std::string& netdev) {
  std::vector<const GidEntry*> ipv4;
  std::vector<const GidEntry*> ipv6;
  std::set<fabric::Address> link_local;
  for (const GidEntry& entry : port.gids) {
    if (entry.gid.is_zero() || known_text(entry.ndev) != netdev) continue;
    if (entry.gid.is_link_local()) link_local.insert(entry.gid);
    if (entry.gid.is_link_local() || !entry.is_v2()) continue;
    (entry.gid.is_ipv4() ? ipv4 : ipv6).push_back(&entry);
  }
  if (link_local.size() > 1) {
    return {{}, fmt::format("netdevs of two network namespaces are called {}, as the node's is", printable(netdev))};
  }
  if (ipv4.size() > 1 && ipv6.empty()) {
    return {{},
            fmt::format("{} and {} are of a netdev {}, and one may be another container's", show(*ipv4[0]),
                        show(*ipv4[1]), printable(netdev))};
  }
  NodeGids node{std::move(ipv6), {}};
  if (ipv4.size() == 1) node.gids.push_back(ipv4.front());
  std::sort(node.gids.begin(), node.gids.end(),
            [](const auto* left, const auto* right) { return left->index < right->index; });
  return node;
}

}  // namespace

fabric::Result<NodeAddresses> parse_node_addresses(std::string_view text) {
  NodeAddresses addresses;
  for (const std::string_view part : fabric::split(text, ',')) {
    const std::string_view entry = fabric::trim(part);
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::size_t colon = std::min(entry.rfind(':', equals), equals);
    const auto number = fabric::parse_number<unsigned>(entry.substr(std::min(colon + 1, equals), equals - colon - 1));
    const auto address = fabric::parse_address(entry.substr(std::min(equals + 1, entry.size())));
    if (!number || !address || colon == 0) {
      return fabric::make_error("expected HCA:PORT=ADDRESS, got `{}`", printable(entry));
    }
    addresses[{std::string(entry.substr(0, colon)), *number}].push_back(*address);
  }
  return addresses;
}

NodeGids find_node_gids(const fabric::Hca& hca, const Port& port, const std::optional<NodeAddresses>& addresses) {
  if (addresses) {
    const auto own = addresses->find({hca.name, port.number});
    return own == addresses->end() ? NodeGids() : told_gids(port, own->second);
  }
  const bool is_read =
      std::all_of(port.gids.begin(), port.gids.end(), [](const GidEntry& entry) { return entry.ndev; });
  if (!port.gids_complete || !is_read) return {{}, {}, !port.gids_error};
  const auto netdev = netdev_on_node(hca, port);
  return netdev ? gids_of_netdev(port, *netdev) : NodeGids();
}

}  // namespace init
