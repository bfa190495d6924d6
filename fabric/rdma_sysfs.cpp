#include "fabric/rdma_sysfs.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/gid_slots.hpp"
#include "fabric/netdev_map.hpp"
#include "fabric/pci_sysfs.hpp"
#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace fabric::rdma_sysfs {
namespace {

using sysfs::Directory;

struct VerbsNode {
  unsigned number = 0;
  std::optional<std::string> dev;  // "MAJ:MIN"
};

constexpr const char* kInfinibandClass = "/class/infiniband";
constexpr const char* kVerbsClass = "/class/infiniband_verbs";
constexpr const char* kMadClass = "/class/infiniband_mad";

// HCA name to its uverbs node. The kernel numbers them on its own: uverbs3 need not belong to mlx5_3.
std::map<std::string, VerbsNode> read_verbs_nodes(const std::optional<Directory>& verbs, bool full) {
  std::map<std::string, VerbsNode> nodes;
  if (!verbs) return nodes;
  for (const std::string& entry : verbs->list()) {
    const auto number = uverbs_number(entry);
    if (!number) continue;
    const auto hca = verbs->read_text((entry + "/ibdev").c_str());
    if (!hca) continue;
    nodes[*hca] = VerbsNode{*number, full ? verbs->read_text((entry + "/dev").c_str()) : std::nullopt};
  }
  return nodes;
}

// One class directory, as far as it is about one HCA; what of it cannot be read is noted.
struct ClassOfHca {
  const Scan& scan;
  const Directory& all;
  const char* path;  // kVerbsClass or kMadClass
  const std::string& hca;
  Unread::Part part;  // what depends on which entries there are

  void note(Unread::Part what, const std::string& name, int code) const {
    note_unread(scan.unread, {what, fmt::format("{}{}/{}", scan.classes.sys, path, name), code, hca});
  }

  std::optional<std::string> text(Unread::Part what, const std::string& name) const {
    auto value = all.read(name.c_str());
    auto* text = std::get_if<std::string>(&value);
    if (!text) note(what, name, std::get<Unreadable>(value).code);
    if (!text || text->empty()) return std::nullopt;
    return std::move(*text);
  }

  // In a file tree the class may hold no links, but what they lead to.
  std::optional<std::string> link(const std::string& entry) const {
    auto target = all.read_link(entry.c_str());
    if (!target && errno != EINVAL) note(Unread::Part::kView, entry, errno);
    return target;
  }

  // Those of hardware are below its PCI function too, so that a node's 512 VFs need not be looked through; software
  // devices have no parent, and there are few of them.
  std::vector<std::string> entries(const Directory& hca_dir) const {
    std::vector<std::string> found;
    const std::string below = "device/" + std::string(std::string_view(path).substr(std::strlen("/class/")));
    const auto near = hca_dir.open_at(below.c_str());
    int error = 0;
    for (const std::string& entry : (near ? *near : all).list(&error)) {
      if (text(part, entry + "/ibdev") == hca) found.push_back(entry);
    }
    if (error == 0) return found;
    const std::string listed = near ? fmt::format("/class/infiniband/{}/{}", hca, below) : path;
    note_unread(scan.unread, {part, scan.classes.sys + listed, error, hca});
    return found;
  }
};

void read_hand_out_nodes(const Scan& scan, const Directory& dir, Hca& hca) {
  using Part = Unread::Part;
  if (scan.classes.verbs) {
    const ClassOfHca verbs{scan, *scan.classes.verbs, kVerbsClass, hca.name, Part::kHcas};
    for (const std::string& entry : verbs.entries(dir)) {
      const auto number = uverbs_number(entry);
      if (!number) continue;
      hca.uverbs = number;
      hca.uverbs_dev = verbs.text(Part::kNodes, entry + "/dev");
      hca.verbs_link = verbs.link(entry);
    }
  }
  if (!scan.classes.mad || !scan.mad_nodes) return;
  const ClassOfHca mad{scan, *scan.classes.mad, kMadClass, hca.name, Part::kNodes};
  for (const std::string& entry : mad.entries(dir)) {
    const auto dev = mad.text(Part::kNodes, entry + "/dev");
    const auto text = mad.text(Part::kNodes, entry + "/port");
    const int port = (text ? parse_number<int>(*text) : std::nullopt).value_or(1);
    if (!dev || port < 1) continue;
    hca.mad_nodes.push_back({entry, *dev, static_cast<unsigned>(port), mad.link(entry).value_or("")});
  }
}

// The errno of opening the node as libibverbs does, 0 if it opens.
int probe_node(const std::string& root, unsigned number) {
  const std::string path = fmt::format("{}/dev/infiniband/uverbs{}", root, number);
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  return fd.ok() ? 0 : errno;
}

// rxe has no device link but names its netdev in "parent" (drivers/infiniband/sw/rxe/rxe_verbs.c); siw has neither and
// is an iWARP node.
std::optional<std::string> software_driver(const Directory& hca) {
  if (hca.contains("parent")) return "rdma_rxe";
  const auto node_type = hca.read_text("node_type");
  if (node_type && node_type->starts_with("4:")) return "siw";
  return std::nullopt;
}

// The netdev below HCA/device/net that belongs to the port: dev_port counts from 0 (mlx4 has both ports on one
// function). In switchdev mode the representors of VFs are there too, told apart by phys_port_name.
std::optional<std::string> hardware_netdev(const std::string& sys, const Directory& hca, unsigned port) {
  const auto net = hca.open_at("device/net");
  if (!net) return std::nullopt;
  const auto names = net->list();
  // bnxt_en counts dev_port per card, though each port is a function with an HCA of its own.
  if (names.size() == 1 && port == 1) return names.front();
  std::optional<std::string> chosen;
  bool chosen_is_representor = false;
  for (const std::string& name : names) {
    const auto netdev = Directory::open(fmt::format("{}/class/net/{}", sys, name));
    if (!netdev || static_cast<unsigned>(netdev->read_int("dev_port").value_or(0)) + 1 != port) continue;
    const bool representor = is_representor(netdev->read_text("phys_port_name").value_or(""));
    if (chosen && (representor || !chosen_is_representor)) continue;
    chosen = name;
    chosen_is_representor = representor;
  }
  return chosen;
}

// rxe names its netdev in "parent"; of siw only the GIDs know it.
std::optional<std::string> software_netdev(const Directory& hca, const Directory& port) {
  auto parent = hca.read_text("parent");
  return parent ? parent : port.read_text("gid_attrs/ndevs/0");
}

std::optional<std::string> port_netdev(const Scan& scan, const Directory& hca, const Directory& dir, const Hca& values,
                                       const Port& port) {
  if (scan.hand_out) {
    return values.pci ? hardware_netdev(scan.classes.sys, hca, port.number) : software_netdev(hca, dir);
  }
  // RDMA netlink names the netdev only if it is in this netns, which a name in sysfs cannot tell; it does not know the
  // IPoIB netdev of an InfiniBand port.
  if (scan.port_netdevs && scan.port_netdevs->hcas.contains(values.name) && !port.is_infiniband()) {
    const auto& netdevs = scan.port_netdevs->netdevs;
    const auto found = netdevs.find({values.name, port.number});
    return found == netdevs.end() ? std::nullopt : std::optional(found->second);
  }
  auto name = values.pci ? hardware_netdev(scan.classes.sys, hca, port.number) : software_netdev(hca, dir);
  const bool here = name && std::any_of(scan.netdevs->begin(), scan.netdevs->end(),
                                        [&](const Netdev& netdev) { return netdev.is_here() && netdev.name == *name; });
  return here ? name : std::nullopt;
}

// Reads the GID table slot by slot, with the type of every GID and in full mode its ndev, until the search is complete
// or the table ends.
void read_gids(const Scan& scan, const Directory& port_dir, Port& port) {
  const auto slots = GidSlots::open(port_dir, scan.full);
  if (!slots) {
    port.gids_error = errno;
    port.gids_complete = false;
    return;
  }
  GidSearch search(*scan.netdevs, port.netdev);
  // A real table has the slots 0..n-1; in a file tree or a prepared view some may be missing, so a missing slot ends
  // nothing until the listing says so.
  std::optional<unsigned> listed;
  for (unsigned index = 0;; ++index) {
    if (!scan.whole_tables && search.complete()) {
      port.gids_complete = false;
      return;
    }
    const auto gid = slots->gid(index);
    if (const auto* failed = std::get_if<Unreadable>(&gid)) {
      if (failed->code == EBADMSG) continue;
      if (failed->code == ENOENT) {
        if (!listed) listed = slots->listed();
        if (index >= *listed) {
          port.gid_tbl_len = listed;
          return;
        }
      } else {
        port.gids_error = failed->code;
      }
      if (index > GidSlots::kMost) return;
      continue;
    }
    GidEntry entry{index, std::get<Address>(gid), std::nullopt, std::nullopt};
    if (entry.gid.is_zero()) continue;
    if (slots->types_error() == 0) entry.type = slots->type(index);
    entry.ndev = slots->ndev(index);
    if (entry.is_v2()) search.found_v2(entry.gid);
    port.gids.push_back(std::move(entry));
  }
}

Port read_port(const Scan& scan, const Directory& hca_dir, const Hca& hca, const Directory& dir, unsigned number) {
  Port port;
  port.number = number;
  port.state = dir.read("state");
  const bool selectors = !scan.hand_out || scan.selectors;
  if (selectors) port.link_layer = dir.read("link_layer");
  if (!scan.hand_out || scan.details) port.rate = dir.read("rate");
  // Only explains why a port is not active.
  if (scan.full || (!scan.hand_out && !port.is_active())) port.phys_state = dir.read("phys_state");
  if (scan.full) {
    port.lid = dir.read_text("lid");
    port.sm_lid = dir.read_text("sm_lid");
  }
  const bool wanted = scan.hand_out ? scan.gids : port.is_active() && port.is_ethernet() && hca.is_accessible();
  if (scan.full || (scan.hand_out && scan.selectors) || (!scan.hand_out && port.is_active()))
    port.netdev = port_netdev(scan, hca_dir, dir, hca, port);
  if (scan.full || wanted) {
    read_gids(scan, dir, port);
  } else {
    port.gids_complete = false;
  }
  return port;
}

void read_details(const std::string& root, const Directory& dir, Hca& hca, std::vector<std::string> path) {
  hca.numa_node = hca.pci ? dir.read_int("device/numa_node") : std::optional(-1);
  hca.pci_class = dir.read_text("device/class");
  hca.fw_ver = dir.read_text("fw_ver");
  if (hca.pci) {
    if (!path.empty()) path.pop_back();
    hca.pci_path = path.empty() ? pci::read_path(root, *hca.pci) : std::optional(std::move(path));
  }
}

void read_ids(const Directory& dir, Hca& hca) {
  hca.node_guid = dir.read_text("node_guid").value_or("");
  hca.driver = dir.read_link_name("device/driver");
  if (!hca.driver && !hca.pci) hca.driver = software_driver(dir);
  hca.vendor = dir.read_text("device/vendor");
  hca.device_id = dir.read_text("device/device");
  hca.node_type = dir.read_text("node_type").value_or("");
  hca.physfn = dir.read_link_name("device/physfn");
}

std::optional<Hca> read_hca(const Scan& scan, const std::string& name, const std::map<std::string, VerbsNode>& nodes) {
  const Directory& infiniband = *scan.classes.infiniband;
  const auto path_of = [&](std::string_view entry) {
    return fmt::format("{}/class/infiniband/{}{}", scan.classes.sys, name, entry);
  };
  const auto dir = infiniband.open_at(name.c_str());
  if (!dir) {
    if (const int error = errno; scan.unread) note_unread(scan.unread, {Unread::Part::kHcas, path_of(""), error, name});
    return std::nullopt;
  }
  Hca hca;
  hca.name = name;
  auto link = infiniband.read_link(name.c_str());
  auto path = pci::addresses_in_path(link.value_or(""));
  // The last is the HCA's own function, or that of the sub-function on whose auxiliary bus the HCA is. In a file tree
  // the class may hold no links.
  if (!path.empty()) {
    hca.pci = path.back();
  } else if (const auto device = dir->read_link_name("device"); device && pci::is_address(*device)) {
    hca.pci = device;
  }
  if (!scan.hand_out || scan.selectors) read_ids(*dir, hca);
  if (scan.full || (scan.hand_out && scan.details)) read_details(scan.root, *dir, hca, std::move(path));
  if (scan.hand_out) {
    hca.class_link = std::move(link);
    read_hand_out_nodes(scan, *dir, hca);
  } else if (const auto node = nodes.find(name); node != nodes.end()) {
    hca.uverbs = node->second.number;
    hca.uverbs_dev = node->second.dev;
    const int error = probe_node(scan.root, node->second.number);
    hca.accessible = error == 0;
    if (error != 0) hca.access_error = error;
  } else {
    hca.accessible = false;
  }
  const auto ports = dir->open_at("ports");
  if (!ports) {
    if (const int error = errno; scan.unread)
      note_unread(scan.unread, {Unread::Part::kDetail, path_of("/ports"), error, name});
    return hca;
  }
  for (const std::string& entry : ports->list()) {
    const auto number = parse_number<unsigned>(entry);
    const auto port_dir = number ? ports->open_at(entry.c_str()) : std::nullopt;
    if (port_dir) hca.ports.push_back(read_port(scan, *dir, hca, *port_dir, *number));
  }
  return hca;
}

}  // namespace

Classes::Classes(std::string sys_path)
    : sys(std::move(sys_path)), infiniband(Directory::open(sys + kInfinibandClass)), error(infiniband ? 0 : errno) {
  if (error == ENOENT && !Directory::open(sys + "/class")) error = ENODEV;
}

void Classes::open_nodes(std::optional<Unread::Part> mad_part, std::vector<Unread>* unread) {
  const auto open = [&](const char* path, Unread::Part part) {
    auto directory = Directory::open(sys + path);
    if (const int code = errno; !directory) note_unread(unread, {part, sys + path, code});
    return directory;
  };
  note_unread(unread, {Unread::Part::kHcas, sys + kInfinibandClass, error});
  verbs = open(kVerbsClass, Unread::Part::kHcas);
  if (mad_part) mad = open(kMadClass, *mad_part);
}

std::vector<std::string> Classes::names(std::vector<Unread>* unread) const {
  int failed = 0;
  auto names = infiniband ? infiniband->list(&failed) : std::vector<std::string>();
  note_unread(unread, {Unread::Part::kHcas, sys + kInfinibandClass, failed});
  return names;
}

void note_unread(std::vector<Unread>* unread, Unread unreadable) {
  const int code = unreadable.code;
  if (!unread || code == 0 || code == ENOENT || code == ENODEV || code == ENOTDIR) return;
  unread->push_back(std::move(unreadable));
}

bool is_representor(std::string_view phys_port_name) {
  return phys_port_name.find("vf") != std::string_view::npos || phys_port_name.find("sf") != std::string_view::npos;
}

std::vector<Hca> read_hcas(const Scan& scan, const std::vector<std::string>& names) {
  std::vector<Hca> hcas;
  if (!scan.classes.infiniband) return hcas;
  const auto nodes =
      scan.hand_out ? std::map<std::string, VerbsNode>() : read_verbs_nodes(scan.classes.verbs, scan.full);
  for (const std::string& name : names) {
    if (auto hca = read_hca(scan, name, nodes)) hcas.push_back(std::move(*hca));
  }
  return hcas;
}

}  // namespace fabric::rdma_sysfs
