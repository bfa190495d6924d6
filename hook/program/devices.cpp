#include "hook/program/devices.hpp"

#include <algorithm>
#include <ctime>
#include <iterator>

#include "fabric/text.hpp"
#include "hook/base/json/json.hpp"
#include "hook/plan/pools.hpp"

namespace hook {
namespace {

std::string attribute(const fabric::Attr<std::string>& attr) {
  return fabric::value_or(attr, std::string("?"));
}

// "4: ACTIVE" is ACTIVE for people.
std::string state_word(const fabric::Port& port) {
  const std::string state = attribute(port.state);
  const std::size_t space = state.find(' ');
  return space == std::string::npos ? state : state.substr(space + 1);
}

std::string time_text(std::int64_t since) {
  const auto time = static_cast<std::time_t>(since);
  std::tm parts{};
  char text[32];
  if (!::gmtime_r(&time, &parts) || std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) return "?";
  return text;
}

struct Held {
  const Grant* grant = nullptr;
  const PlannedHca* hca = nullptr;
};

std::vector<Held> holders_of(const std::string& name, const std::vector<Grant>& grants) {
  std::vector<Held> holders;
  for (const Grant& grant : grants) {
    for (const PlannedHca& hca : grant.hcas) {
      if (hca.name == name) holders.push_back({&grant, &hca});
    }
  }
  return holders;
}

std::vector<std::string> containers_of(const Grant& grant) {
  std::vector<std::string> ids;
  std::transform(grant.users.begin(), grant.users.end(), std::back_inserter(ids),
                 [](const GrantUser& user) { return user.id; });
  return ids;
}

const NetworkRecord* find_record(const NetworkRecords& networks, const Held& held) {
  const auto found = networks.find(held.grant->owner.key);
  return found == networks.end() ? nullptr : &found->second;
}

std::vector<const RailRecord*> rails_of(const NetworkRecords& networks, const Held& held) {
  std::vector<const RailRecord*> rails;
  const NetworkRecord* record = find_record(networks, held);
  if (!record) return rails;
  for (const RailRecord& rail : record->rails) {
    if (rail.rail.hca == held.hca->name) rails.push_back(&rail);
  }
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

Json holder_json(const Held& held, const NetworkRecords& networks) {
  Json rails = Json::array();
  for (const RailRecord* rail : rails_of(networks, held))
    rails.push_back(rail_json(*rail));
  const NetworkRecord* record = find_record(networks, held);
  return {{"grant", held.grant->owner.key},
          {"holder", held.grant->owner.label},
          {"mode", to_string(held.hca->mode)},
          {"units", held.hca->units},
          {"containers", containers_of(*held.grant)},
          {"since", time_text(held.grant->since)},
          {"netns", record ? Json(record->netns.path) : Json()},
          {"rails", std::move(rails)},
          {"gone", held.grant->vanished}};
}

Json holders_json(const std::string& name, const std::vector<Grant>& grants, const NetworkRecords& networks) {
  Json holders = Json::array();
  for (const Held& held : holders_of(name, grants))
    holders.push_back(holder_json(held, networks));
  return holders;
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

std::string device_node(const fabric::Hca& hca) {
  return hca.uverbs ? fmt::format("/dev/infiniband/uverbs{}", *hca.uverbs) : "no uverbs node";
}

std::string line_of(const NodeHca& node) {
  const fabric::Hca& hca = *node.hca;
  std::string line = fmt::format("{:<12} {:<14} {:<12} {:<16}", hca.name, hca.pci.value_or("-"),
                                 node.pool ? node.pool->name : "no pool", node.netdev.value_or("-"));
  for (const fabric::Port& port : hca.ports) {
    line +=
        fmt::format(" {}:{} {} {}", port.number, state_word(port), attribute(port.link_layer), attribute(port.rate));
  }
  return fabric::printable(line) + "\n";
}

std::string line_of(const RailRecord& rail) {
  std::string line = fmt::format("    {} ({} of {})", rail.rail.name, to_string(rail.rail.kind), rail.rail.host);
  for (const std::string& address : addresses_of(rail))
    line += " " + address;
  if (rail.gid_index) line += fmt::format(" at GID index {}", *rail.gid_index);
  return fabric::printable(line) + "\n";
}

std::string line_of(const Held& held) {
  return "  " +
         fabric::printable(fmt::format("held by {} since {}, {}{}{}", held.grant->owner.label,
                                       time_text(held.grant->since), to_string(held.hca->mode),
                                       held.hca->units > 1 ? fmt::format(" x{}", held.hca->units) : "",
                                       held.grant->vanished ? "; it is gone: `rdma-hook recover` returns it" : "")) +
         "\n";
}

std::string holders_text(const std::string& name, const std::vector<Grant>& grants, const NetworkRecords& networks) {
  std::string text;
  for (const Held& held : holders_of(name, grants)) {
    text += line_of(held);
    for (const RailRecord* rail : rails_of(networks, held))
      text += line_of(*rail);
  }
  return text;
}

// HCAs that are held and not on the node: with an exclusive RDMA subsystem they are where their netdevs are.
std::vector<std::string> away(const NodeMap& map, const std::vector<Grant>& grants) {
  std::vector<std::string> names;
  for (const Grant& grant : grants) {
    for (const PlannedHca& hca : grant.hcas) {
      if (!map.find(hca.name) && std::find(names.begin(), names.end(), hca.name) == names.end()) {
        names.push_back(hca.name);
      }
    }
  }
  return names;
}

}  // namespace

Json devices_json(const fabric::Inventory& inventory, const Config& config, const std::vector<Grant>& grants,
                  const NetworkRecords& networks) {
  const NodeMap map(inventory, config);
  Json hcas = Json::array();
  for (const NodeHca& node : map.hcas()) {
    const fabric::Hca& hca = *node.hca;
    hcas.push_back({{"name", hca.name},
                    {"pool", node.pool ? Json(node.pool->name) : Json()},
                    {"rail", node.rail},
                    {"pci", or_null(hca.pci)},
                    {"numa_node", or_null(hca.numa_node)},
                    {"driver", or_null(hca.driver)},
                    {"physfn", or_null(hca.physfn)},
                    {"netdev", or_null(node.netdev)},
                    {"node", hca.uverbs ? Json(device_node(hca)) : Json()},
                    {"device", or_null(hca.uverbs_dev)},
                    {"ports", ports_json(hca)},
                    {"holders", holders_json(hca.name, grants, networks)}});
  }
  for (const std::string& name : away(map, grants))
    hcas.push_back({{"name", name}, {"away", true}, {"holders", holders_json(name, grants, networks)}});
  return {{"hcas", std::move(hcas)}, {"grants", grants.size()}};
}

std::string devices_text(const fabric::Inventory& inventory, const Config& config, const std::vector<Grant>& grants,
                         const NetworkRecords& networks) {
  const NodeMap map(inventory, config);
  if (map.hcas().empty() && grants.empty()) return "no HCA on this node: no RDMA driver has found one\n";
  std::string text = fmt::format("{:<12} {:<14} {:<12} {:<16} {}\n", "HCA", "PCI", "pool", "netdev", "ports");
  for (const NodeHca* node : map.by_rail()) {
    text += line_of(*node);
    text += holders_text(node->name(), grants, networks);
  }
  for (const std::string& name : away(map, grants)) {
    text += fmt::format("{:<12} in a container's network namespace\n", fabric::printable(name));
    text += holders_text(name, grants, networks);
  }
  return text;
}

}  // namespace hook
