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

constexpr const char* kInfinibandClass = "/class/infiniband";
constexpr const char* kVerbsClass = "/class/infiniband_verbs";
constexpr const char* kMadClass = "/class/infiniband_mad";

// The entries of a class directory by the HCA that each is of. The kernel numbers them on its own: uverbs3 need not
// belong to mlx5_3.
using ClassEntries = std::map<std::string, std::vector<std::string>>;

// What has been read of all HCAs at once, because all are wanted; nullopt: each is looked for.
struct AllEntries {
  std::optional<ClassEntries> verbs;
  std::optional<ClassEntries> mad;
};

// One class directory; what of it cannot be read is noted.
struct ClassReader {
  const Scan& scan;
  const Directory& all;
  const char* path;      // kVerbsClass or kMadClass
  Unread::Part part;     // what depends on which entries there are
  std::string hca = {};  // empty: it is about all

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

  // Those of hardware are below its PCI function too, so that a node's 2,048 VFs need not be looked through; software
  // devices have no parent, and there are few of them.
  std::vector<std::string> entries(const Directory& hca_dir) const {
    const std::string below = "device/" + std::string(std::string_view(path).substr(std::strlen("/class/")));
    const auto near = hca_dir.open_at(below.c_str());
    const std::string listed = near ? fmt::format("/class/infiniband/{}/{}", hca, below) : path;
    auto by_hca = read(near ? *near : all, listed);
    return std::move(by_hca[hca]);
  }

  ClassEntries read(const Directory& directory, const std::string& listed) const {
    ClassEntries by_hca;
    int error = 0;
    for (const std::string& entry : directory.list(&error)) {
      if (path == kVerbsClass && !uverbs_number(entry)) continue;
      if (const auto of = text(part, entry + "/ibdev")) by_hca[*of].push_back(entry);
    }
    note_unread(scan.unread, {part, scan.classes.sys + listed, error, hca});
    return by_hca;
  }
};

AllEntries read_all_entries(const Scan& scan) {
  using Part = Unread::Part;
  AllEntries entries;
  if (scan.wanted) return entries;
  if (scan.classes.verbs)
    entries.verbs =
        ClassReader{scan, *scan.classes.verbs, kVerbsClass, Part::kHcas}.read(*scan.classes.verbs, kVerbsClass);
  if (scan.classes.mad && scan.mad_nodes)
    entries.mad = ClassReader{scan, *scan.classes.mad, kMadClass, Part::kNodes}.read(*scan.classes.mad, kMadClass);
  return entries;
}

std::vector<std::string> entries_of(const std::optional<ClassEntries>& known, const ClassReader& reader,
                                    const Directory& hca_dir) {
  if (!known) return reader.entries(hca_dir);
  const auto found = known->find(reader.hca);
  return found == known->end() ? std::vector<std::string>() : found->second;
}

void read_hand_out_nodes(const Scan& scan, const AllEntries& entries, const Directory& dir, Hca& hca) {
  using Part = Unread::Part;
  if (scan.classes.verbs) {
    const ClassReader verbs{scan, *scan.classes.verbs, kVerbsClass, Part::kHcas, hca.name};
    for (const std::string& entry : entries_of(entries.verbs, verbs, dir)) {
      hca.uverbs = uverbs_number(entry);
      hca.uverbs_dev = verbs.text(Part::kNodes, entry + "/dev");
      hca.verbs_link = verbs.link(entry);
    }
  }
  if (!scan.classes.mad || !scan.mad_nodes) return;
  const ClassReader mad{scan, *scan.classes.mad, kMadClass, Part::kNodes, hca.name};
  for (const std::string& entry : entries_of(entries.mad, mad, dir)) {
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

// For who uses the HCA rather than hands it out.
void find_node(const Scan& scan, const AllEntries& entries, Hca& hca) {
  const auto found = entries.verbs ? entries.verbs->find(hca.name) : ClassEntries::const_iterator();
  if (!entries.verbs || found == entries.verbs->end()) {
    hca.accessible = false;
    return;
  }
  const std::string& entry = found->second.back();
  hca.uverbs = uverbs_number(entry);
  if (scan.full) hca.uverbs_dev = scan.classes.verbs->read_text((entry + "/dev").c_str());
  const int error = probe_node(scan.root, *hca.uverbs);
  hca.accessible = error == 0;
  if (error != 0) hca.access_error = error;
}

// rxe has no device link but names its netdev in "parent" (drivers/infiniband/sw/rxe/rxe_verbs.c); siw has neither and
// is an iWARP node.
std::optional<std::string> software_driver(const Directory& hca, std::string_view node_type) {
  if (hca.contains("parent")) return "rdma_rxe";
  if (node_type.starts_with("4:")) return "siw";
  return std::nullopt;
}

// The netdev below HCA/device/net that belongs to the port: dev_port counts from 0 (mlx4 has both ports on one
// function). In switchdev mode the representors of VFs are there too, told apart by phys_port_name.
std::optional<std::string> hardware_netdev(const Scan& scan, const Directory& dir, const Hca& hca, unsigned port) {
  const auto note = [&](int code) {
    const std::string path = fmt::format("{}/class/infiniband/{}/device/net", scan.classes.sys, hca.name);
    note_unread(scan.unread, {Unread::Part::kPool, path, code, hca.name});
  };
  const auto net = dir.open_at("device/net");
  if (!net) {
    note(errno);
    return std::nullopt;
  }
  int error = 0;
  const auto names = net->list(&error);
  note(error);
  // bnxt_en counts dev_port per card, though each port is a function with an HCA of its own.
  if (names.size() == 1 && port == 1) return names.front();
  std::optional<std::string> representor;
  for (const std::string& name : names) {
    const auto netdev = Directory::open(fmt::format("{}/class/net/{}", scan.classes.sys, name));
    if (!netdev || static_cast<unsigned>(netdev->read_int("dev_port").value_or(0)) + 1 != port) continue;
    if (!is_representor(netdev->read_text("phys_port_name").value_or(""))) return name;
    if (!representor) representor = name;
  }
  return representor;
}

// The attributes of one port, from the directory of all: one that is opened for itself costs two more system calls.
struct PortReader {
  const Directory& ports;
  std::string name;

  Attr<std::string> read(const char* attribute) const { return ports.read((name + "/" + attribute).c_str()); }
  std::optional<std::string> text(const char* attribute) const {
    return ports.read_text((name + "/" + attribute).c_str());
  }
};

// rxe names its netdev in "parent"; of siw only the GIDs know it.
std::optional<std::string> software_netdev(const Directory& hca, const PortReader& port) {
  auto parent = hca.read_text("parent");
  return parent ? parent : port.text("gid_attrs/ndevs/0");
}

std::optional<std::string> port_netdev(const Scan& scan, const Directory& hca, const PortReader& reader,
                                       const Hca& values, const Port& port) {
  if (scan.hand_out) {
    return values.pci ? hardware_netdev(scan, hca, values, port.number) : software_netdev(hca, reader);
  }
  // RDMA netlink names the netdev only if it is in this netns, which a name in sysfs cannot tell; it does not know the
  // IPoIB netdev of an InfiniBand port.
  if (scan.port_netdevs && scan.port_netdevs->hcas.contains(values.name) && !port.is_infiniband()) {
    const auto& netdevs = scan.port_netdevs->netdevs;
    const auto found = netdevs.find({values.name, port.number});
    return found == netdevs.end() ? std::nullopt : std::optional(found->second);
  }
  auto name = values.pci ? hardware_netdev(scan, hca, values, port.number) : software_netdev(hca, reader);
  const bool here = name && std::any_of(scan.netdevs->begin(), scan.netdevs->end(),
                                        [&](const Netdev& netdev) { return netdev.is_here() && netdev.name == *name; });
  return here ? name : std::nullopt;
}

// Of a slot that cannot be read. A real table has the slots 0..n-1; in a file tree or a prepared view some may be
// missing, so a missing slot ends nothing until the listing says so.
bool ends_table(const GidSlots& slots, unsigned index, int code, std::optional<unsigned>& listed, Port& port) {
  if (code == EBADMSG) return false;
  if (code == ENOENT) {
    if (!listed) listed = slots.listed();
    if (index >= *listed) {
      port.gid_tbl_len = listed;
      return true;
    }
  } else {
    port.gids_error = code;
  }
  return index > GidSlots::kMost;
}

// Reads the GID table slot by slot, with the type of every GID and in whole tables for a container its ndev, until the
// search is complete or the table ends.
void read_gids(const Scan& scan, const PortReader& reader, Port& port) {
  const auto directory = reader.ports.open_at(reader.name.c_str());
  const auto slots = directory ? GidSlots::open(*directory, scan.whole_tables && !scan.hand_out) : std::nullopt;
  if (!slots) {
    port.gids_error = errno;
    port.gids_complete = false;
    return;
  }
  GidSearch search(*scan.netdevs, port.netdev);
  std::optional<unsigned> listed;
  for (unsigned index = 0;; ++index) {
    const bool is_enough = scan.first_v2 ? !port.gids.empty() && port.gids.back().is_v2()
                                         : search.complete() || (scan.hand_out && search.any());
    if (!scan.whole_tables && is_enough) {
      port.gids_complete = false;
      return;
    }
    const auto gid = slots->gid(index);
    if (const auto* failed = std::get_if<Unreadable>(&gid)) {
      if (ends_table(*slots, index, failed->code, listed, port)) return;
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

// nullopt: no directory is there.
std::optional<Port> read_port(const Scan& scan, const HcaFacts& facts, const Directory& hca_dir, const Hca& hca,
                              const PortReader& reader, unsigned number) {
  Port port;
  port.number = number;
  if (facts.node) {
    port.state = reader.read("state");
    const auto* failed = std::get_if<Unreadable>(&port.state);
    if (failed && failed->code == ENOTDIR) return std::nullopt;
  }
  if (facts.link_layer || (facts.use && port.is_active())) {
    port.link_layer = reader.read("link_layer");
    if (const auto* failed = std::get_if<Unreadable>(&port.link_layer); failed && scan.unread) {
      const std::string path =
          fmt::format("{}/class/infiniband/{}/ports/{}/link_layer", scan.classes.sys, hca.name, number);
      const auto part = facts.link_layer ? Unread::Part::kPool : Unread::Part::kDetail;
      note_unread(scan.unread, {part, path, failed->code, hca.name});
    }
  }
  if (facts.rate) port.rate = reader.read("rate");
  // Only explains why a port is not active.
  if (scan.full || (!scan.hand_out && !port.is_active())) port.phys_state = reader.read("phys_state");
  if (scan.full) {
    port.lid = reader.text("lid");
    port.sm_lid = reader.text("sm_lid");
  }
  const bool in_use = !scan.hand_out && port.is_active();
  const bool own_gids = facts.use && facts.own_gids && port.is_active() && port.is_ethernet();
  if (scan.full || in_use || (scan.hand_out && (facts.netdevs || own_gids)))
    port.netdev = port_netdev(scan, hca_dir, reader, hca, port);
  const bool is_wanted = in_use && (port.is_ethernet() || scan.whole_tables) && hca.is_accessible();
  if (scan.full || is_wanted || (scan.hand_out && facts.gids)) {
    read_gids(scan, reader, port);
  } else {
    port.gids_complete = false;
  }
  return port;
}

void read_place(const std::string& root, const Directory& dir, Hca& hca, std::vector<std::string> path) {
  hca.numa_node = hca.pci ? dir.read_int("device/numa_node") : std::optional(-1);
  if (!hca.pci) return;
  if (!path.empty()) path.pop_back();
  hca.pci_path = path.empty() ? pci::read_path(root, *hca.pci) : std::optional(std::move(path));
}

// A function whose driver has made no HCA has no such directory. Of one whose HCA is in another network namespace it is
// empty (Linux 6.12 drivers/base/core.c, class_dir_child_ns_type()).
template <typename Note>
std::optional<std::vector<std::string>> read_hcas_of(const Directory& dir, const std::string& path, const Note& note) {
  const auto hcas = dir.open_at(path.c_str());
  int error = hcas ? 0 : errno;
  auto names = hcas ? hcas->list(&error) : std::vector<std::string>();
  if (error == 0) return names;
  note(path.c_str(), error);
  return std::nullopt;
}

// A VF may be a virtual machine's (vfio-pci), or its netdev a container's.
template <typename Note>
void read_vfs(const Directory& dir, Hca& hca, const Note& note) {
  constexpr const char* kCount = "device/sriov_numvfs";
  const auto text = dir.read(kCount);
  if (const auto* failed = std::get_if<Unreadable>(&text)) return note(kCount, failed->code);
  const auto count = parse_number<unsigned>(std::get<std::string>(text));
  if (!count) return note(kCount, EINVAL);
  hca.is_pf = true;
  for (unsigned i = 0; i < *count; ++i) {
    const std::string function = fmt::format("device/virtfn{}", i);
    if (const auto names = read_hcas_of(dir, function + "/infiniband", note)) {
      hca.vfs.insert(hca.vfs.end(), names->begin(), names->end());
      if (names->empty()) hca.unseen_vf = fmt::format("virtfn{}, whose HCA is in another network namespace", i);
      continue;
    }
    const std::string link = function + "/driver";
    const auto driver = dir.read_link_name(link.c_str());
    if (const int code = errno; !driver) note(link.c_str(), code);
    if (driver) hca.unseen_vf = fmt::format("virtfn{}, of which `{}` has made no HCA", i, printable(*driver));
  }
}

template <typename Note>
void read_pfs(const Directory& dir, Hca& hca, const Note& note) {
  auto names = read_hcas_of(dir, "device/physfn/infiniband", note);
  if (!names) return;
  hca.physfn = dir.read_link_name("device/physfn");
  hca.is_pf_hidden = names->empty();
  hca.pfs = std::move(*names);
}

void read_ids(const Scan& scan, const HcaFacts& facts, bool guid, const Directory& dir, Hca& hca) {
  const auto note = [&](Unread::Part part, const char* attribute, int code) {
    if (!scan.unread) return;
    note_unread(scan.unread, {part, fmt::format("{}/class/infiniband/{}/{}", scan.classes.sys, hca.name, attribute),
                              code, hca.name});
  };
  const auto text = [&](Unread::Part part, const char* attribute) {
    auto value = dir.read(attribute);
    if (const auto* failed = std::get_if<Unreadable>(&value)) note(part, attribute, failed->code);
    auto* read = std::get_if<std::string>(&value);
    return read && !read->empty() ? std::optional(std::move(*read)) : std::nullopt;
  };
  if (guid) hca.node_guid = text(Unread::Part::kDetail, "node_guid").value_or("");
  const auto note_function = [&](const char* attribute, int code) { note(Unread::Part::kHcas, attribute, code); };
  if (facts.vfs) read_vfs(dir, hca, note_function);
  if (facts.pfs) read_pfs(dir, hca, note_function);
  if (facts.vendor) hca.vendor = text(Unread::Part::kPool, "device/vendor");
  if (facts.device_id) hca.device_id = text(Unread::Part::kPool, "device/device");
  if (!facts.driver) return;
  // To whom it is handed out it says what a software device is.
  if (!scan.hand_out || !hca.pci) hca.node_type = text(Unread::Part::kDetail, "node_type").value_or("");
  hca.driver = dir.read_link_name("device/driver");
  if (const int code = errno; !hca.driver && code != EINVAL) note(Unread::Part::kPool, "device/driver", code);
  if (!hca.driver && !hca.pci) hca.driver = software_driver(dir, hca.node_type);
  hca.physfn = dir.read_link_name("device/physfn");
}

void read_ports(const Scan& scan, const HcaFacts& facts, const Directory& dir, Hca& hca) {
  const auto ports = dir.open_at("ports");
  int error = ports ? 0 : errno;
  const auto names = ports ? ports->list(&error) : std::vector<std::string>();
  for (const std::string& name : names) {
    const auto number = parse_number<unsigned>(name);
    if (!number) continue;
    if (auto port = read_port(scan, facts, dir, hca, {*ports, name}, *number)) hca.ports.push_back(std::move(*port));
  }
  note_unread(scan.unread, {Unread::Part::kPool,
                            fmt::format("{}/class/infiniband/{}/ports", scan.classes.sys, hca.name), error, hca.name});
}

// A container can rename HCAs while they are read, and their uverbs nodes are found by name.
bool was_renamed(const Directory& infiniband, const Hca& hca) {
  const std::string_view device = device_in_link(*hca.class_link);
  if (hca.verbs_link && device_in_link(*hca.verbs_link) != device) return true;
  // Links do not tell software HCAs apart.
  if (device != kNoDevice || hca.node_guid.empty()) return false;
  return infiniband.read_text((hca.name + "/node_guid").c_str()) != hca.node_guid;
}

std::optional<Hca> read_hca(const Scan& scan, const HcaFacts& facts, const std::string& name,
                            const AllEntries& entries) {
  const Directory& infiniband = *scan.classes.infiniband;
  Hca hca;
  hca.name = name;
  if (!facts.pci) return hca;
  const auto unread = [&](Unread::Part part, int code) {
    if (!scan.unread) return;
    note_unread(scan.unread, {part, fmt::format("{}/class/infiniband/{}", scan.classes.sys, name), code, name});
  };
  std::optional<Directory> dir;
  if (facts.beyond_pci()) {
    dir = infiniband.open_at(name.c_str());
    if (!dir) {
      unread(Unread::Part::kHcas, errno);
      return std::nullopt;
    }
  }
  // In a file tree the class may hold no links.
  auto link = infiniband.read_link(name.c_str());
  if (const int code = errno; !link && code != EINVAL) unread(Unread::Part::kView, code);
  auto path = pci::addresses_in_path(link.value_or(""));
  // The last is the HCA's own function, or that of the sub-function on whose auxiliary bus the HCA is.
  if (!path.empty()) {
    hca.pci = path.back();
  } else if (const auto device = infiniband.read_link_name((name + "/device").c_str());
             device && pci::is_address(*device)) {
    hca.pci = device;
  }
  if (!dir) return hca;
  const bool hands_out = scan.hand_out && facts.node;
  // The ledger knows software HCAs by their node GUIDs.
  const bool is_virtual = hands_out && link && device_in_link(*link) == kNoDevice;
  read_ids(scan, facts, facts.guid || is_virtual, *dir, hca);
  if (scan.full || (scan.hand_out && facts.place)) read_place(scan.root, *dir, hca, std::move(path));
  if (scan.full) {
    hca.pci_class = dir->read_text("device/class");
    hca.fw_ver = dir->read_text("fw_ver");
  }
  if (hands_out) {
    hca.class_link = std::move(link);
    read_hand_out_nodes(scan, entries, *dir, hca);
    if (hca.class_link && was_renamed(infiniband, hca)) {
      unread(Unread::Part::kHcas, ESTALE);
      return std::nullopt;
    }
  }
  if (!scan.hand_out) find_node(scan, entries, hca);
  if (!hca.pci && scan.whole_tables && !scan.hand_out) hca.parent = dir->read_text("parent");
  if (facts.of_ports()) read_ports(scan, facts, *dir, hca);
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

void read_some_gids(const Scan& scan, const std::string& hca, Port& port) {
  read_gids(scan, {*scan.classes.infiniband, fmt::format("{}/ports/{}", hca, port.number)}, port);
}

std::vector<Hca> read_hcas(const Scan& scan, const std::vector<std::string>& names) {
  std::vector<Hca> hcas;
  if (!scan.classes.infiniband) return hcas;
  const AllEntries entries = read_all_entries(scan);
  for (const std::string& name : names) {
    const bool wanted = !scan.wanted || std::find(scan.wanted->begin(), scan.wanted->end(), name) != scan.wanted->end();
    if (auto hca = read_hca(scan, wanted ? scan.facts : scan.other_facts, name, entries))
      hcas.push_back(std::move(*hca));
  }
  return hcas;
}

}  // namespace fabric::rdma_sysfs
