#include "hook/admin/cluster/generate_config.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "fabric/management_slots.hpp"
#include "hook/admin/cluster/fabric_hcas.hpp"
#include "hook/config/read_config.hpp"
#include "hook/config/values.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/pools.hpp"
#include "hook/request/parsers.hpp"

namespace hook {
namespace {

using Hcas = std::vector<const NodeHca*>;
using Texts = std::vector<std::string>;

constexpr const char* kPool = "rails";
constexpr std::size_t kMostNamed = 4;  // names of nodes in one comment

// A node with the HCAs of its fabric. The map points into the inventory.
struct FabricNode {
  std::string name;
  const fabric::Inventory* inventory = nullptr;
  std::unique_ptr<NodeMap> map;
  FabricHcas hcas;
};
using Nodes = std::vector<FabricNode>;

std::string shown_id(const std::optional<std::string>& id) {
  const auto four = id ? pci_id(*id) : std::nullopt;
  return four.value_or("unknown");
}

// Describes an HCA without its name, so that nodes of one kind have equal descriptions.
std::string kind_of(const NodeHca& node) {
  double rate = 0;
  for (const fabric::Port& port : node.hca->ports)
    if (port.is_active()) rate = std::max(rate, port.rate_gbps());
  return fmt::format("{} {}:{} {} Gb/s", node.is_infiniband() ? "InfiniBand" : "RoCE", shown_id(node.hca->vendor),
                     shown_id(node.hca->device_id), rate);
}

std::string counted(std::size_t number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

// Returns one line for each kind of node: "19 nodes (a, b, c, d and 15 more): 8 HCAs, RoCE 15b3:1021 400 Gb/s: mlx5_0
// (0000:0c:00.0), ...".
Texts kinds_of_nodes(const Nodes& nodes) {
  std::map<std::string, Texts> names;
  for (const FabricNode& node : nodes) {
    std::set<std::string> kinds;
    Texts places;
    for (const NodeHca* hca : node.hcas.used) {
      kinds.insert(kind_of(*hca));
      places.push_back(base::printable(hca->name()) + (hca->hca->pci ? fmt::format(" ({})", *hca->hca->pci) : ""));
    }
    std::string text = counted(node.hcas.used.size(), "HCA");
    if (!kinds.empty()) text += ", " + base::join(Texts(kinds.begin(), kinds.end()), " and ");
    if (!places.empty()) text += ": " + base::join(places, ", ");
    names[text].push_back(node.name);
  }
  Texts lines;
  for (const auto& [text, those] : names)
    lines.push_back(nodes.size() == 1
                        ? text
                        : fmt::format("{} ({}): {}", counted(those.size(), "node"), some_of(those, kMostNamed), text));
  return lines;
}

// Returns one line for each reason for which HCAs are left out.
Texts left_out(const Nodes& nodes) {
  std::map<std::string, Texts> by_reason;
  for (const FabricNode& node : nodes) {
    for (const FabricHcas::LeftOut& one : node.hcas.left_out) {
      Texts& names = by_reason[one.reason];
      if (std::ranges::find(names, one.hca->name()) == names.end()) names.push_back(one.hca->name());
    }
  }
  Texts lines;
  for (auto& [reason, names] : by_reason) {
    std::ranges::sort(names, base::natural_less);
    lines.push_back(fmt::format("Not granted: {}: {}.", some_of(names, kMostNamed), reason));
  }
  return lines;
}

bool all_used(const Nodes& nodes, const std::function<bool(const NodeHca&)>& test) {
  return std::ranges::all_of(nodes, [&](const FabricNode& node) {
    return std::ranges::all_of(node.hcas.used, [&](const NodeHca* hca) { return test(*hca); });
  });
}

bool any_used(const Nodes& nodes, const std::function<bool(const NodeHca&)>& test) {
  return !all_used(nodes, [&](const NodeHca& hca) { return !test(hca); });
}

// Returns the sorted values of all HCAs; empty if one HCA has none.
Texts values_of(const Nodes& nodes, bool also_down,
                const std::function<std::optional<std::string>(const NodeHca&)>& value) {
  std::set<std::string, decltype(&base::natural_less)> values(&base::natural_less);
  for (const FabricNode& node : nodes) {
    for (const NodeHca* hca : also_down ? node.hcas.all() : node.hcas.used) {
      const auto one = value(*hca);
      if (!one) return {};
      values.insert(*one);
    }
  }
  return {values.begin(), values.end()};
}

// Returns why the configuration grants other HCAs than those of the fabric: "node a: mlx5_2 is granted too"; nullopt:
// it grants exactly these.
std::optional<std::string> misses(const Config& config, const Nodes& nodes) {
  for (const FabricNode& node : nodes) {
    const NodeMap map(*node.inventory, config);
    const auto has = [](const Hcas& hcas, const NodeHca& one) {
      return std::ranges::any_of(hcas, [&](const NodeHca* hca) { return hca->hca == one.hca; });
    };
    for (const NodeHca& hca : map.hcas()) {
      const bool is_used = has(node.hcas.used, hca);
      if (is_used == (hca.pool != nullptr) || (hca.pool && has(node.hcas.down, hca))) continue;
      return fmt::format("node {}: {} {}", base::printable(node.name), base::printable(hca.name()),
                         is_used ? "is not selected" : "is selected too");
    }
  }
  return std::nullopt;
}

std::optional<Config> parsed_with(const Json& selectors) {
  const Json whole{{"pools", Json::array({Json{{"name", kPool}, {"selectors", selectors}}})}};
  auto parsed = parse_config({{"generated", whole.dump()}});
  return parsed.ok() ? std::optional(std::move(parsed.config)) : std::nullopt;
}

// Selectors and the reason for their choice.
struct Selection {
  Json selectors;
  std::string comment;
};

void add_list(Json& selectors, const char* key, const Texts& values) {
  if (!values.empty()) selectors[key] = values;
}

// Returns the selectors by model, which also select a replaced card and a renamed netdev.
Json by_model(const Nodes& nodes) {
  Json selectors = Json::object();
  const auto id = [](const std::optional<std::string>& text) { return text ? pci_id(*text) : std::nullopt; };
  add_list(selectors, "vendors", values_of(nodes, false, [&](const NodeHca& hca) { return id(hca.hca->vendor); }));
  add_list(selectors, "deviceIDs", values_of(nodes, false, [&](const NodeHca& hca) { return id(hca.hca->device_id); }));
  add_list(selectors, "drivers", values_of(nodes, false, [](const NodeHca& hca) { return hca.hca->driver; }));
  add_list(selectors, "linkTypes", values_of(nodes, false, [](const NodeHca& hca) {
             return std::optional<std::string>(hca.is_infiniband() ? "infiniband" : "ether");
           }));
  return selectors;
}

// Returns the simplest selectors that select exactly the HCAs of the fabric on all nodes.
Result<Selection> choose_selectors(const Nodes& nodes) {
  const Json model = by_model(nodes);
  constexpr const char* kOthers =
      "Other HCAs of these nodes have the same model or an unknown one, and selectors have no rate";
  std::vector<Selection> ways = {{model,
                                  "The HCAs are selected by model and link layer, so that a replaced card and a "
                                  "renamed netdev are still selected."}};
  const auto add = [&](const char* key, const Texts& values, const std::string& comment) {
    if (values.empty()) return;
    Json selectors = model;
    selectors[key] = values;
    ways.push_back({std::move(selectors), comment});
  };
  add("ifNames", values_of(nodes, true, [](const NodeHca& hca) { return hca.netdev; }),
      fmt::format("{}: the HCAs are selected by their netdevs too.", kOthers));
  add("pciAddresses", values_of(nodes, true, [](const NodeHca& hca) { return hca.hca->pci; }),
      fmt::format("{}: the HCAs are selected by their PCI addresses too.", kOthers));
  std::string why;
  for (Selection& way : ways) {
    const auto config = parsed_with(way.selectors);
    const auto missed =
        config ? misses(*config, nodes) : std::optional<std::string>("a name that no selector can hold");
    if (!missed) return std::move(way);
    why = *missed;
  }
  return Error{fmt::format("no selectors fit all nodes: {}", why), 0,
               "generate a configuration for each kind of node, from its snapshots only"};
}

// How containers use the HCAs.
struct HcaUse {
  Texts modes;
  std::string comment;
  bool is_exclusive = false;
};

HcaUse usage_of(const Nodes& nodes, bool rails) {
  const bool infiniband = any_used(nodes, [](const NodeHca& hca) { return hca.is_infiniband(); });
  if (all_used(nodes, [](const NodeHca& hca) { return fabric::is_vf(*hca.hca); }))
    return {{"exclusive", "hca"},
            "The HCAs are virtual functions: each has one owner, unless a pod requests mode hca.",
            true};
  if (std::ranges::any_of(
          nodes, [](const FabricNode& node) { return node.inventory->netns_mode == fabric::NetnsMode::kExclusive; }))
    return {{"exclusive", "hca"},
            "A node's RDMA subsystem is in exclusive mode, so an HCA moves into the container that gets it.",
            true};
  if (infiniband) return {{"hca"}, "InfiniBand needs no netdev for verbs: containers get device nodes only.", false};
  if (!rails)
    return {{"hca"},
            "Containers get device nodes only, which is all that a container on the node's network needs. "
            "`rdma-hook config generate --rails` prints a network for containers with a network of their own.",
            false};
  return {{"shared", "hca"}, "Each container gets a child netdev of each of its rails.", false};
}

// Returns the address of the HCA's netdev by which its subnet is known: IPv4 before IPv6, no link-local address.
std::optional<fabric::InterfaceAddress> address_of(const NodeHca& hca, const fabric::Inventory& inventory) {
  const fabric::Netdev* netdev = hca.netdev ? fabric::find_netdev(inventory, *hca.netdev) : nullptr;
  std::optional<fabric::InterfaceAddress> found;
  for (const fabric::InterfaceAddress& one : netdev ? netdev->addresses : decltype(netdev->addresses)()) {
    if (!one.prefix || one.address.is_link_local()) continue;
    if (!found || (one.address.is_ipv4() && !found->address.is_ipv4())) found = one;
  }
  return found;
}

// The HCAs of a node in the order of its rails.
struct RailOrder {
  Hcas hcas;
  bool by_gpu = false;  // rail N is the nearest one of GPU N, and that is not the order of the PCI addresses
};

RailOrder rail_order(const FabricNode& node) {
  RailOrder order{node.hcas.all()};
  const auto& gpus = node.inventory->gpus;
  if (!gpus || gpus->size() != order.hcas.size()) return order;
  std::vector<const fabric::Gpu*> by_pci;
  for (const fabric::Gpu& gpu : *gpus)
    by_pci.push_back(&gpu);
  std::ranges::sort(by_pci, [](const auto* left, const auto* right) { return pci_less(left->pci, right->pci); });
  Hcas beside;
  for (const fabric::Gpu* gpu : by_pci) {
    const Hcas near = nearest(order.hcas, *gpu);
    // Several HCAs behind one PCI switch with several GPUs: their PCI order is the order of the GPUs.
    if (near.size() != 1 || std::ranges::find(beside, near.front()) != beside.end()) return order;
    beside.push_back(near.front());
  }
  if (beside != order.hcas) order = {std::move(beside), true};
  return order;
}

struct Rails {
  Texts entries;  // "rails" of config.json; empty: left out
  std::string comment;
};

// Returns the list that all nodes have in common; empty: none.
Texts common_list(const std::vector<RailOrder>& orders,
                  const std::function<std::optional<std::string>(const NodeHca&)>& entry) {
  std::optional<Texts> common;
  for (const RailOrder& order : orders) {
    if (order.hcas.empty()) continue;
    Texts list;
    for (const NodeHca* hca : order.hcas) {
      const auto text = entry(*hca);
      if (!text) return {};
      if (list.empty() || list.back() != *text) list.push_back(*text);
    }
    if (common && *common != list) return {};
    common = std::move(list);
  }
  return common.value_or(Texts());
}

// Returns "pf:NAME" for a VF whose physical function is visible.
std::optional<std::string> pf_entry(const NodeHca& hca, const Nodes& nodes) {
  for (const FabricNode& node : nodes) {
    if (node.map->find(hca.name()) == nullptr || !hca.hca->physfn) continue;
    for (const NodeHca& other : node.map->hcas())
      if (other.hca->pci == hca.hca->physfn && is_config_name(other.name())) return "pf:" + other.name();
  }
  return std::nullopt;
}

Result<Rails> config_rails(const Nodes& nodes) {
  std::vector<RailOrder> orders;
  bool by_gpu = false;
  for (const FabricNode& node : nodes) {
    orders.push_back(rail_order(node));
    by_gpu = by_gpu || orders.back().by_gpu;
  }
  const std::string order = by_gpu ? "Rail N is the HCA nearest to GPU N." : "Rails are in the order of PCI addresses.";
  if (auto list = common_list(orders, [&](const NodeHca& hca) { return pf_entry(hca, nodes); }); !list.empty())
    return Rails{std::move(list), order + " A physical function stands for all its virtual functions."};
  if (auto list = common_list(
          orders,
          [](const NodeHca& hca) { return hca.hca->pci ? std::optional("pci:" + *hca.hca->pci) : std::nullopt; });
      !list.empty())
    return Rails{std::move(list), order + " They keep their numbers if an HCA fails."};
  if (!by_gpu) return Rails{{}, "The nodes have HCAs at different PCI addresses, so rails are in the order of these."};
  if (auto list = common_list(orders, [](const NodeHca& hca) { return std::optional(hca.name()); }); !list.empty())
    return Rails{std::move(list), order};
  return Error{"the nodes' rails have different orders beside their GPUs", 0,
               "generate a configuration for each kind of node, from its snapshots only"};
}

// Returns the subnet of each rail. Errors: a rail without an address; a subnet that has no room or differs.
Result<Texts> subnets_of(const Nodes& nodes) {
  constexpr unsigned kIpv4Bits = 32;
  constexpr unsigned kIpv6Bits = 128;
  std::optional<Texts> subnets;
  for (const FabricNode& node : nodes) {
    if (node.hcas.used.empty()) continue;
    Texts list;
    for (const NodeHca* hca : rail_order(node).hcas) {
      const std::string place = fmt::format("node {}: {}", base::printable(node.name), base::printable(hca->name()));
      const auto own = address_of(*hca, *node.inventory);
      if (!own)
        return Error{fmt::format("{}: its netdev has no address, so its subnet is not known", place), 0,
                     "set the addresses of the rails first, or omit --rails"};
      if (*own->prefix + 2 > (own->address.is_ipv4() ? kIpv4Bits : kIpv6Bits))
        return Error{fmt::format("{}: `{}` is the subnet of a link between two hosts and has no room for containers",
                                 place, base::printable(own->text)),
                     0, "omit --rails and use the node's network"};
      list.push_back(fmt::format("{}/{}", to_string(masked(own->address, *own->prefix)), *own->prefix));
    }
    if (subnets && *subnets != list)
      return Error{fmt::format("node {}: its rails are in other subnets than those of node {}",
                               base::printable(node.name), base::printable(nodes.front().name)),
                   0, "pass snapshots of nodes whose rail N is in one subnet"};
    subnets = std::move(list);
  }
  return subnets.value_or(Texts());
}

// Returns a network with the subnets of the rails. The ranges of containers are left to the administrator.
Result<Json> shared_network(const Nodes& nodes) {
  const bool is_bond = any_used(nodes, [](const NodeHca& hca) { return hca.enslaved; });
  Json addresses = Json::array();
  for (const std::string& subnet : TRY(subnets_of(nodes))) {
    Json range{{"rail", addresses.size()}, {"subnet", subnet}};
    if (nodes.size() == 1) {
      range["from"] = "FILL: the first address for containers of this node, which no other host has";
      range["to"] = "FILL: the last address";
    } else {
      range["per_node"] = "FILL: the prefix length of one node's part of the subnet, which no other host uses";
    }
    addresses.push_back(std::move(range));
  }
  const char* const child = is_bond ? "ipvlan" : "macvlan";
  return Json{{"$comment", fmt::format("{}The subnets are those of the nodes' addresses.",
                                       is_bond ? "The rails are bonds, whose children must be ipvlan. " : "")},
              {"mode", "shared"},
              {"child", child},
              {"pool", kPool},
              {"addresses", std::move(addresses)}};
}

// Returns whether each HCA has a netdev with an address, which moves into a container with the netdev.
bool have_addresses(const Nodes& nodes) {
  return std::ranges::all_of(nodes, [](const FabricNode& node) {
    return std::ranges::all_of(node.hcas.used,
                               [&](const NodeHca* hca) { return address_of(*hca, *node.inventory).has_value(); });
  });
}

// Returns "networks"; nullopt: none.
Result<std::optional<Json>> networks_of(const Nodes& nodes, const HcaUse& usage, bool rails) {
  const bool infiniband = any_used(nodes, [](const NodeHca& hca) { return hca.is_infiniband(); });
  if (infiniband) return std::optional<Json>();
  if (usage.is_exclusive && have_addresses(nodes))
    return std::optional<Json>(Json{
        {kPool,
         {{"$comment", "The netdev of an HCA moves into the container with its addresses, and returns at its end."},
          {"mode", "exclusive"},
          {"pool", kPool}}}});
  if (usage.is_exclusive || !rails) return std::optional<Json>();
  return std::optional<Json>(Json{{kPool, TRY(shared_network(nodes))}});
}

// Returns the number of HCAs of a node without fault, if it is the same on all nodes that have HCAs of the fabric.
std::optional<std::size_t> expected(const Nodes& nodes) {
  std::set<std::size_t> counts;
  for (const FabricNode& node : nodes)
    if (!node.hcas.used.empty()) counts.insert(node.hcas.used.size() + node.hcas.down.size());
  return counts.size() == 1 ? std::optional(*counts.begin()) : std::nullopt;
}

// Returns the number of containers that may share an HCA: one for each GPU.
std::size_t containers_per_hca(const Nodes& nodes) {
  constexpr std::size_t kUsual = 8;
  std::size_t most = 0;
  for (const FabricNode& node : nodes)
    most = std::max(most, node.inventory->gpus ? node.inventory->gpus->size() : 0);
  return most > 0 ? most : kUsual;
}

// Adds what the scheduler needs.
void add_of_starter(const Nodes& nodes, StartedBy starter, bool has_network, Json& pool, Json& whole) {
  if (starter == StartedBy::kPodman) {
    whole["annotations_may_request"] = Json::array({"*"});
    return;
  }
  if (starter != StartedBy::kKubernetes) return;
  const std::string mode = pool["modes"].front().get<std::string>();
  if (mode != "exclusive") pool["limits"] = {{mode, containers_per_hca(nodes)}};
  pool["resource"] = fmt::format("rdma-init.io/{}", kPool);
  if (has_network && whole["networks"][kPool].contains("addresses") && nodes.size() > 1)
    whole["node_index"] = "FILL: NODE_NAME if each name ends with another number, else an object of names";
}

std::string comment_of(StartedBy starter) {
  switch (starter) {
    case StartedBy::kPodman:
      return "annotations_may_request is [\"*\"] because Podman adds annotations of images: each user that can run an "
             "image as root on this node can get these HCAs.";
    case StartedBy::kKubernetes:
      return "The device plugin counts the HCAs as the resource of the pool; its limit is one container for each GPU. "
             "To accept annotations of pods, add \"annotations_may_request\": [\"NAMESPACE\"].";
    case StartedBy::kSlurm:
      return "`rdma-hook doctor --job` in Prolog and HealthCheckProgram uses this pool.";
    default:
      return "With Docker and runc, annotations of the command line can request these HCAs.";
  }
}

// Returns the warnings about single nodes.
Texts warnings_of(const Nodes& nodes) {
  Texts warnings;
  std::size_t most = 0;
  for (const FabricNode& node : nodes)
    most = std::max(most, node.hcas.used.size());
  for (const FabricNode& node : nodes) {
    const std::string name = base::printable(node.name);
    if (node.hcas.used.empty()) warnings.push_back(fmt::format("node {}: it has no HCA that can be granted", name));
    if (!node.hcas.used.empty() && node.hcas.used.size() < most)
      warnings.push_back(fmt::format("node {}: it has {}, other nodes have {}", name,
                                     counted(node.hcas.used.size(), "usable HCA"), most));
    if (!node.hcas.down.empty())
      warnings.push_back(
          fmt::format("node {}: no ACTIVE port: {}", name, some_of(names_of(node.hcas.down), kMostNamed)));
  }
  return warnings;
}

// Returns the pool for a node without InfiniBand and RoCE: config.json without pools would grant every HCA.
Json pool_of_none() {
  return Json{{"$comment", "No HCA of the node is InfiniBand or RoCE, so no HCA is granted."},
              {"name", kPool},
              {"selectors", {{"linkTypes", Json::array({"infiniband", "ether"})}}},
              {"modes", Json::array({"hca"})}};
}

Result<Json> whole_config(const Nodes& nodes, const GenerateWishes& wishes) {
  Texts comment = {"Made by `rdma-hook config generate` of rdma-init " RDMA_INIT_VERSION " from:"};
  for (std::string& line : kinds_of_nodes(nodes))
    comment.push_back(std::move(line));
  for (std::string& line : left_out(nodes))
    comment.push_back(std::move(line));
  const bool has_any = any_used(nodes, [](const NodeHca&) { return true; });
  if (!has_any) return Json{{"$comment", comment}, {"pools", Json::array({pool_of_none()})}};
  const Selection selection = TRY(choose_selectors(nodes));
  const HcaUse usage = usage_of(nodes, wishes.rails);
  auto networks = TRY(networks_of(nodes, usage, wishes.rails));
  const Rails rails = TRY(config_rails(nodes));
  const auto count = expected(nodes);
  comment.push_back(rails.comment);
  comment.push_back(comment_of(wishes.started_by));
  Json pool{{"$comment",
             {selection.comment, usage.comment,
              count ? "A node with fewer usable HCAs than \"expect\" is reported as broken."
                    : "The nodes have different numbers of HCAs, so \"expect\" is left out."}},
            {"name", kPool},
            {"selectors", selection.selectors},
            {"modes", usage.modes}};
  if (networks) pool["network"] = kPool;
  if (count) pool["expect"] = *count;
  Json whole{{"$comment", comment}, {"pools", nullptr}};
  if (networks) whole["networks"] = *networks;
  if (!rails.entries.empty()) whole["rails"] = rails.entries;
  add_of_starter(nodes, wishes.started_by, networks.has_value(), pool, whole);
  whole["pools"] = Json::array({std::move(pool)});
  return whole;
}

}  // namespace

Result<GeneratedConfig> generate_config(const std::vector<NamedNode>& named, const GenerateWishes& wishes) {
  Nodes nodes;
  bool has_hcas = false;
  const Config none;
  for (const NamedNode& one : named) {
    FabricNode& node = nodes.emplace_back();
    node.name = one.name;
    node.inventory = &one.inventory;
    node.map = std::make_unique<NodeMap>(one.inventory, none);
    node.hcas = fabric_hcas(one.inventory, *node.map);
    has_hcas = has_hcas || !one.inventory.hcas.empty();
  }
  if (!has_hcas)
    return Error{"no node has an HCA", 0,
                 "load the driver, or pass the output of `rdma-init snapshot` with --snapshot"};
  GeneratedConfig generated{"", warnings_of(nodes)};
  const Json whole = TRY(whole_config(nodes, wishes));
  generated.text = whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return generated;
}

}  // namespace hook
