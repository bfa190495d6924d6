#include "hook/program/devices.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/columns.hpp"
#include "base/json/json.hpp"
#include "base/text.hpp"
#include "base/utc_time.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/plan/pools.hpp"

namespace hook {
namespace {

using GrantOwner = DeviceOwners::GrantOwner;
using Hold = DeviceOwners::Hold;
using OfHca = DeviceOwners::OfHca;

// The text lists at most this number of owners per HCA, because a person reads no more.
constexpr std::size_t kShownOwners = 8;

constexpr const char* kReturns = "`rdma-hook recover` releases";

// Returns the text, or "?" if the attribute could not be read.
std::string attribute(const base::Attr<std::string>& attr) {
  return base::value_or(attr, std::string("?"));
}

// Returns "ACTIVE" for "4: ACTIVE".
std::string state_word(const fabric::Port& port) {
  const std::string state = attribute(port.state);
  const std::size_t space = state.find(' ');
  return space == std::string::npos ? state : state.substr(space + 1);
}

// Returns the owner's rails on one HCA: the record of an owner has the rails of all its HCAs.
std::vector<const RailRecord*> rails_of(const GrantOwner& owner, const std::string& hca) {
  std::vector<const RailRecord*> rails;
  if (!owner.network) return rails;
  for (const RailRecord& rail : owner.network->rails)
    if (rail.rail.hca == hca) rails.push_back(&rail);
  return rails;
}

std::vector<std::string> addresses_of(const RailRecord& rail) {
  std::vector<std::string> texts;
  for (const RailAddress& address : rail.rail.addresses)
    texts.push_back(fmt::format("{}/{}", to_string(address.address), address.prefix));
  return texts;
}

Json rail_json(const RailRecord& rail) {
  return {{"name", rail.rail.name}, {"rail", rail.rail.rail},          {"kind", to_string(rail.rail.kind)},
          {"host", rail.rail.host}, {"addresses", addresses_of(rail)}, {"gid_index", or_null(rail.gid_index)}};
}

Json owner_json(const GrantOwner& owner, const Hold& hold, const std::string& hca) {
  Json rails = Json::array();
  for (const RailRecord* rail : rails_of(owner, hca))
    rails.push_back(rail_json(*rail));
  Json json{{"grant", shown_key(owner.key)},
            {"holder", owner.label},
            {"mode", to_string(hold.mode)},
            {"units", hold.units},
            {"containers", owner.containers},
            {"since", time_text(owner.since)},
            {"netns", owner.network ? Json(owner.network->netns.path) : Json()},
            {"rails", std::move(rails)},
            {"gone", owner.stale}};
  if (!hold.claim.empty()) json["claim"] = hold.claim;
  return json;
}

Json ports_json(const fabric::Hca& hca) {
  Json ports = Json::array();
  for (const fabric::Port& port : hca.ports) {
    ports.push_back({{"port", port.number},
                     {"state", state_word(port)},
                     {"link_layer", attribute(port.link_layer)},
                     {"rate", attribute(port.rate)}});
  }
  return ports;
}

// Returns the name of the uverbs device node, or a note that it is missing: such an HCA cannot be opened.
std::string device_node(const fabric::Hca& hca) {
  return hca.uverbs ? fmt::format("/dev/infiniband/uverbs{}", *hca.uverbs) : "no uverbs node";
}

Json hca_json(const NodeHca& node) {
  const fabric::Hca& hca = *node.hca;
  return {{"name", hca.name},
          {"pool", node.pool ? Json(node.pool->name) : Json()},
          {"rail", node.rail},
          {"pci", or_null(hca.pci)},
          {"numa_node", or_null(hca.numa_node)},
          {"driver", or_null(hca.driver)},
          {"physfn", or_null(hca.physfn)},
          {"netdev", or_null(node.netdev)},
          {"node", hca.uverbs ? Json(device_node(hca)) : Json()},
          {"device", or_null(hca.uverbs_dev)},
          {"ports", ports_json(hca)}};
}

// Returns a row of the table. A cell that does not fit into its column moves the next cell to the right, or to a
// further line. The cells after the last column stand below each other.
std::string row_of(const std::vector<std::string>& cells) {
  constexpr std::size_t kStarts[] = {0, 12, 25, 34, 50};  // first columns of HCA, PCI, pool, netdev and ports
  constexpr std::size_t kLast = std::size(kStarts) - 1;
  constexpr std::size_t kIndent = 4;
  std::string row;
  std::size_t column = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string cell = shortened(base::one_line(cells[i]), kColumns - kIndent);
    const std::size_t width = columns_of(cell);
    std::size_t start = std::max(kStarts[std::min(i, kLast)], column == 0 ? 0 : column + 1);
    if (i > kLast || start + width > kColumns) {
      start = i >= kLast && kStarts[kLast] + width <= kColumns ? kStarts[kLast] : kIndent;
      row += '\n';
      column = 0;
    }
    row += std::string(start - column, ' ') + cell;
    column = start + width;
  }
  return row + "\n";
}

std::string row_of(const NodeHca& node) {
  const fabric::Hca& hca = *node.hca;
  std::vector<std::string> cells = {hca.name, hca.pci.value_or("-"),
                                    node.pool          ? node.pool->name
                                    : node.pool_unread ? "unknown"
                                                       : "no pool",
                                    node.netdev.value_or("-")};
  for (const fabric::Port& port : hca.ports) {
    // The kernel appends lanes and generation to the rate, "400 Gb/sec (4X NDR)". A row has no room for them.
    const std::string rate = attribute(port.rate);
    cells.push_back(fmt::format("{}:{} {} {}", port.number, state_word(port), attribute(port.link_layer),
                                rate.substr(0, rate.find(" ("))));
  }
  return row_of(cells);
}

// Returns a text below an HCA, wrapped.
std::string below(std::size_t indent, std::string_view line) {
  std::string text(indent, ' ');
  add_wrapped(base::one_line(line), indent, indent + 4, text);
  return text;
}

std::string line_of(const RailRecord& rail) {
  std::string line = fmt::format("{} ({} of {})", base::printable(rail.rail.name), to_string(rail.rail.kind),
                                 base::printable(rail.rail.host));
  for (const std::string& address : addresses_of(rail))
    line += " " + address;
  if (rail.gid_index) line += fmt::format(" at GID index {}", *rail.gid_index);
  return below(4, line);
}

std::string times(std::uint64_t units) {
  return units > 1 ? fmt::format(" x{}", units) : "";
}

std::string line_of(const GrantOwner& owner, const Hold& hold) {
  const std::string stale = owner.stale ? fmt::format("; it has ended: {} it", kReturns) : "";
  const std::string claim = hold.claim.empty() ? "" : fmt::format(", by the claim with the UID {}", hold.claim);
  return below(2, fmt::format("{} by {} since {}, {}{}{}{}", claim.empty() ? "held" : "used", owner.label,
                              time_text(owner.since), to_string(hold.mode), times(hold.units), claim, stale));
}

std::string line_of_more(const OfHca& hca) {
  std::vector<std::string> modes;
  for (const auto& [mode, units] : hca.more_units)
    modes.push_back(std::string(to_string(mode)) + times(units));
  const std::string stale = hca.more_stale > 0 ? fmt::format("; {} have ended: {} them", hca.more_stale, kReturns) : "";
  return below(2, fmt::format("held by {} more, {}{}; --json lists them", hca.more, base::join(modes, ", "), stale));
}

std::string owners_text(const DeviceOwners& owners, const std::string& name) {
  const auto found = owners.hcas().find(name);
  std::string text;
  if (found == owners.hcas().end()) return text;
  for (const Hold& hold : found->second.shown) {
    const GrantOwner& owner = owners.owners()[hold.owner];
    text += line_of(owner, hold);
    for (const RailRecord* rail : rails_of(owner, name))
      text += line_of(*rail);
  }
  return found->second.more > 0 ? text + line_of_more(found->second) : text;
}

// Returns the names of allocated HCAs that are not in the caller's network namespace. With an exclusive RDMA subsystem
// they are in the network namespace of their netdevs.
std::vector<std::string> away(const NodeMap& map, const DeviceOwners& owners) {
  std::vector<std::string> names;
  for (const auto& [name, ignored] : owners.hcas())
    if (!map.find(name)) names.push_back(name);
  return names;
}

// Writes a list of a JSON document entry by entry, because a list of all grants could be large. The text equals the
// dump of the whole document.
class ListWriter {
 public:
  ListWriter(const WriteText& write, std::size_t indent) : write_(write), indent_(indent) {}
  void add(const std::string& text) {
    write_((std::exchange(any_, true) ? ",\n" : "\n") + std::string(indent_, ' ') + text);
  }
  void add(const Json& json) { add(text_of(json)); }
  void end() { write_(any_ ? "\n" + std::string(indent_ - kIndent, ' ') + "]" : "]"); }
  std::string text_of(const Json& json) const {
    std::string text = json.dump(kIndent, ' ', true, Json::error_handler_t::replace);
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += indent_ + 1)
      text.insert(at + 1, indent_, ' ');
    return text;
  }

 private:
  static constexpr std::size_t kIndent = 2;
  const WriteText& write_;
  std::size_t indent_;
  bool any_ = false;
};

// hca: the JSON object of the HCA without the member "holders", which is written last.
void write_hca(ListWriter& hcas, const Json& hca, const DeviceOwners& owners, const WriteText& write) {
  constexpr std::size_t kOwnerIndent = 8;
  std::string text = hcas.text_of(hca);
  // The closing brace is removed, so that the list of owners can be written into the object entry by entry.
  text.erase(text.rfind('\n'));
  hcas.add(text + ",\n      \"holders\": [");
  ListWriter list(write, kOwnerIndent);
  const auto name = hca["name"].get<std::string>();
  if (const auto found = owners.hcas().find(name); found != owners.hcas().end()) {
    for (const Hold& hold : found->second.shown)
      list.add(owner_json(owners.owners()[hold.owner], hold, name));
  }
  list.end();
  write("\n    }");
}

}  // namespace

std::string time_text(std::int64_t since) {
  return base::utc_text(static_cast<std::time_t>(since));
}

bool DeviceOwners::has_room(const std::string& hca) const {
  const auto found = hcas_.find(hca);
  return all_ || found == hcas_.end() || found->second.shown.size() < kShownOwners;
}

bool DeviceOwners::shows(const Grant& grant) const {
  return std::ranges::any_of(grant.hcas, [&](const PlannedHca& hca) { return has_room(hca.name); });
}

void DeviceOwners::add(const Grant& grant, std::optional<NetworkRecord> network) {
  ++grants_;
  if (shows(grant)) {
    if (network) {
      for (RailRecord& rail : network->rails)
        // The saved settings of the node's netdev are large and are not printed.
        rail.host = {};
    }
    GrantOwner& owner = owners_.emplace_back(
        GrantOwner{grant.owner.key, grant.owner.label, grant.since, grant.stale, {}, std::move(network)});
    for (const GrantUser& user : grant.users)
      owner.containers.push_back(user.id);
  }
  for (const PlannedHca& hca : grant.hcas) {
    // has_room() must give the answer that shows() used above, so call it before the list grows.
    const bool shown = has_room(hca.name);
    OfHca& of = hcas_[hca.name];
    if (shown) {
      of.shown.push_back({owners_.size() - 1, hca.mode, hca.units, claim_uid(hca.claim)});
    } else {
      ++of.more;
      of.more_stale += grant.stale ? 1 : 0;
      of.more_units[hca.mode] += hca.units;
    }
  }
}

void write_devices_json(const fabric::Inventory& inventory, const Config& config, const DeviceOwners& owners,
                        const WriteText& write) {
  constexpr std::size_t kHcaIndent = 4;
  const NodeMap map(inventory, config);
  write("{\n  \"hcas\": [");
  ListWriter hcas(write, kHcaIndent);
  for (const NodeHca& node : map.hcas())
    write_hca(hcas, hca_json(node), owners, write);
  for (const std::string& name : away(map, owners))
    write_hca(hcas, Json{{"name", name}, {"away", true}}, owners, write);
  hcas.end();
  write(fmt::format(",\n  \"grants\": {}\n}}\n", owners.grants()));
}

void write_devices_text(const fabric::Inventory& inventory, const Config& config, const DeviceOwners& owners,
                        const WriteText& write) {
  const NodeMap map(inventory, config);
  if (map.hcas().empty() && owners.grants() == 0) {
    write("no HCA on this node: no RDMA driver has registered one\n");
    return;
  }
  write(row_of({"HCA", "PCI", "pool", "netdev", "ports"}));
  for (const NodeHca* node : map.by_rail())
    write(row_of(*node) + owners_text(owners, node->name()));
  for (const std::string& name : away(map, owners))
    write(row_of({name, "in a container's network namespace"}) + owners_text(owners, name));
}

}  // namespace hook
