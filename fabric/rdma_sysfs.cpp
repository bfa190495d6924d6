#include "fabric/rdma_sysfs.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/rooted.hpp"
#include "base/text.hpp"
#include "fabric/gid_slots.hpp"
#include "fabric/pci_sysfs.hpp"
#include "fabric/port_use.hpp"

namespace fabric::rdma_sysfs {
namespace {

using Part = Unread::Part;

constexpr const char* kInfinibandClass = "/class/infiniband";
constexpr const char* kVerbsClass = "/class/infiniband_verbs";
constexpr const char* kMadClass = "/class/infiniband_mad";

// The entries of a class directory, such as uverbs3, by HCA. The kernel numbers the entries of each class
// independently: uverbs3 need not belong to mlx5_3.
using ClassEntries = std::map<std::string, std::vector<std::string>>;

// The class entries of all HCAs, read in one pass. nullopt: scan.wanted names HCAs, so entries_of() reads the entries
// of each named HCA; or the class is not needed. Only with hand_out; find_nodes() is for rdma-init.
struct AllEntries {
  std::optional<ClassEntries> verbs;
  std::optional<ClassEntries> mad;
};

// The link of an entry of a class directory.
struct ClassLink {
  // nullopt: the link cannot be read, or a directory is in its place (EINVAL), as in a file tree.
  std::optional<std::string> target;
  // The entry was renamed, removed, or moved to another network namespace after an earlier read found it, so its
  // identity is unknown.
  bool is_absent = false;
};

// A directory of sysfs. Its members read entries and record failed reads in scan.unread.
struct NotedDirectory {
  const Scan& scan;
  const Directory& directory;
  std::string_view path;      // path of the directory below the mount of sysfs
  std::string_view hca = {};  // empty: the reads concern all HCAs

  // Records a failed read. name: empty for the directory itself.
  void note(Part part, std::string_view name, int code) const {
    if (!scan.unread || code == 0) return;
    const char* const slash = name.empty() ? "" : "/";
    note_unread(scan.unread,
                {part, fmt::format("{}{}{}{}", scan.classes.sys, path, slash, name), code, std::string(hca)});
  }

  // Returns the text of an attribute, nullopt if it is empty or unreadable. Records a failed read under `part`.
  std::optional<std::string> text(Part part, const std::string& name) const {
    auto value = directory.read(name.c_str());
    note(part, name, error_of(value));
    auto* text = std::get_if<std::string>(&value);
    if (!text || text->empty()) return std::nullopt;
    return std::move(*text);
  }

  // Reads the link of an entry of a class directory. A failed read other than EINVAL and ENOENT is recorded.
  ClassLink link(const std::string& entry) const {
    ClassLink link{directory.read_link(entry.c_str())};
    const int code = link.target ? 0 : errno;
    link.is_absent = code == ENOENT;
    if (code != EINVAL) note(Part::kView, entry, code);
    return link;
  }
};

// Returns the entries of the class `all`, by HCA. Reads only the entries whose names are in the directory `listed`.
// part: the part of the inventory that is incomplete if a read fails.
ClassEntries read_entries(const NotedDirectory& all, const NotedDirectory& listed, Part part) {
  ClassEntries by_hca;
  int error = 0;
  for (const std::string& entry : listed.directory.list(&error)) {
    // The directory of the class also contains the file abi_version.
    if (all.path == kVerbsClass && !uverbs_number(entry)) continue;
    if (const auto of = all.text(part, entry + "/ibdev")) by_hca[*of].push_back(entry);
  }
  listed.note(part, "", error);
  return by_hca;
}

// Reads the class entries of all HCAs. Reads nothing if the scan is for named HCAs only.
AllEntries read_all_entries(const Scan& scan) {
  AllEntries entries;
  if (scan.wanted || !scan.hand_out) return entries;
  const auto read = [&](const Directory& directory, const char* path, Part part) {
    const NotedDirectory all{scan, directory, path};
    return read_entries(all, all, part);
  };
  if (scan.classes.verbs) entries.verbs = read(*scan.classes.verbs, kVerbsClass, Part::kHcas);
  if (scan.classes.mad && scan.mad_nodes) entries.mad = read(*scan.classes.mad, kMadClass, Part::kNodes);
  return entries;
}

// Returns the first uverbs entry in the directory `listed`, which has the entries of one HCA. An HCA has at most one
// (ib_uverbs_add_one() of drivers/infiniband/core/uverbs_main.c, Linux 6.12), so the listing ends there. nullopt: none,
// or the directory cannot be read.
std::optional<std::string> first_uverbs(const Directory& listed) {
  std::optional<std::string> found;
  const bool read = base::next_names(listed.fd(), [&](std::string_view name) {
    if (uverbs_number(name)) found = name;
    return !found;
  });
  return read ? found : std::nullopt;
}

// Returns the class entries of one HCA. Reads them below the PCI function of the HCA: the class directory has the
// entries of all HCAs, 2,048 on a node with VFs. Software devices have no directory below a PCI function, so the class
// directory is read. A function usually has one HCA. Then its uverbs node belongs to this HCA, and no attribute `ibdev`
// is read. mana_ib (Linux 6.16), and rxe before Linux 5.11, can have two HCAs on one function.
std::vector<std::string> entries_of(const std::optional<ClassEntries>& known, const NotedDirectory& all, Part part,
                                    const Directory& hca_dir) {
  if (known) {
    const auto found = known->find(std::string(all.hca));
    return found == known->end() ? std::vector<std::string>() : found->second;
  }
  const std::string below = fmt::format("device/{}", all.path.substr(std::strlen("/class/")));
  const auto near = hca_dir.open_at(below.c_str());
  const std::string hca(all.hca);
  if (!near) return read_entries(all, all, part)[hca];
  if (all.path == kVerbsClass && hca_dir.has_one_directory("device/infiniband"))
    if (auto only = first_uverbs(*near)) return {*std::move(only)};
  const std::string path = fmt::format("{}/{}/{}", kInfinibandClass, hca, below);
  return read_entries(all, {all.scan, *near, path, hca}, part)[hca];
}

// Returns the path of the device in the target of a class link: without the class and the name.
std::string_view device_path(std::string_view link) {
  for (int part = 0; part < 2; ++part)
    link = link.substr(0, std::min(link.rfind('/'), link.size()));
  return link;
}

// Finds the uverbs node of an HCA by its number: the kernel usually numbers HCAs and nodes alike. Proven by the link of
// the node, which leads to the device of the HCA, if the device has no other HCA (entries_of()). Sets nothing and
// returns false if the number is another one, or this is not proven.
bool guess_node(const Scan& scan, const Directory& dir, Hca& hca) {
  if (!scan.wanted || !scan.root.empty() || !hca.class_link || !hca.pci) return false;
  const std::size_t digits = hca.name.find_last_not_of("0123456789") + 1;
  const auto number = parse_number<unsigned>(std::string_view(hca.name).substr(digits));
  // The numbers of later nodes are dynamic.
  if (!number || *number >= kUverbsFixed) return false;
  auto link = scan.classes.verbs->read_link(fmt::format("uverbs{}", *number).c_str());
  if (!link || device_path(*link) != device_path(*hca.class_link) || !dir.has_one_directory("device/infiniband"))
    return false;
  hca.uverbs = number;
  hca.uverbs_dev = fmt::format("{}:{}", kUverbsMajor, kUverbsFirstMinor + *number);
  hca.verbs_link = std::move(link);
  return true;
}

// Reads the uverbs node of an HCA that may be allocated to a container; with scan.mad_nodes, also its umad and issm
// nodes. Returns false if one of these nodes is gone.
bool read_hand_out_nodes(const Scan& scan, const AllEntries& entries, const Directory& dir, Hca& hca) {
  if (scan.classes.verbs && !guess_node(scan, dir, hca)) {
    const NotedDirectory verbs{scan, *scan.classes.verbs, kVerbsClass, hca.name};
    for (const std::string& entry : entries_of(entries.verbs, verbs, Part::kHcas, dir)) {
      hca.uverbs = uverbs_number(entry);
      hca.uverbs_dev = verbs.text(Part::kNodes, entry + "/dev");
      auto link = verbs.link(entry);
      if (link.is_absent) return false;
      hca.verbs_link = std::move(link.target);
    }
  }
  if (!scan.classes.mad || !scan.mad_nodes) return true;
  const NotedDirectory mad{scan, *scan.classes.mad, kMadClass, hca.name};
  for (const std::string& entry : entries_of(entries.mad, mad, Part::kNodes, dir)) {
    const auto dev = mad.text(Part::kNodes, entry + "/dev");
    const int port = parse_number<int>(mad.text(Part::kNodes, entry + "/port").value_or("")).value_or(1);
    // Without its device number, the node cannot be created in a container.
    if (!dev || port < 1) continue;
    auto link = mad.link(entry);
    if (link.is_absent) return false;
    hca.mad_nodes.push_back({entry, *dev, static_cast<unsigned>(port), std::move(link.target).value_or("")});
  }
  return true;
}

std::string_view directory_of(const Hca& hca) {
  return hca.class_link ? device_directory(*hca.class_link, "infiniband") : std::string_view();
}

// The uverbs entries of all HCAs. An HCA and its entry belong to the same device (ib_uverbs_add_one() of
// drivers/infiniband/core/uverbs_main.c, Linux 6.12), so their links lead below one directory. A link costs one system
// call, the attribute `ibdev` three.
class VerbsEntries {
 public:
  VerbsEntries(const Scan& scan, const std::vector<Hca>& hcas)
      : all_{scan, *scan.classes.verbs, kVerbsClass}, hcas_(hcas) {
    for (std::string& entry : scan.classes.verbs->list()) {
      if (!uverbs_number(entry)) continue;
      auto link = scan.classes.verbs->read_link(entry.c_str());
      entries_.push_back({std::move(entry), std::move(link).value_or("")});
    }
  }

  // Returns the entry of an HCA with its link in class_link, nullopt if it has none.
  std::optional<std::string> of(const Hca& hca) {
    const std::string_view device = directory_of(hca);
    const auto is_of_device = [&](const Hca& other) { return directory_of(other) == device; };
    // A device can have two HCAs: see entries_of().
    if (!device.empty() && std::ranges::count_if(hcas_, is_of_device) == 1) {
      const Entry* found = nullptr;
      std::size_t count = 0;
      for (const Entry& entry : entries_) {
        if (device_directory(entry.link, "infiniband_verbs") != device) continue;
        found = &entry;
        ++count;
      }
      if (count == 1) return found->name;
    }
    if (!by_name_) by_name_ = read_entries(all_, all_, Part::kHcas);
    const auto named = by_name_->find(hca.name);
    return named == by_name_->end() ? std::nullopt : std::optional(named->second.back());
  }

 private:
  struct Entry {
    std::string name;
    std::string link;
  };

  NotedDirectory all_;
  const std::vector<Hca>& hcas_;
  std::vector<Entry> entries_;
  std::optional<ClassEntries> by_name_;  // read for the first HCA whose entry the links do not show
};

// Finds the uverbs nodes of the HCAs and opens each once, to learn whether this process can use it. To allocate an HCA
// to another process, use read_hand_out_nodes(). Clears class_link.
void find_nodes(const Scan& scan, std::vector<Hca>& hcas) {
  std::optional<VerbsEntries> entries;
  if (scan.classes.verbs && !hcas.empty()) entries.emplace(scan, hcas);
  for (Hca& hca : hcas) {
    hca.accessible = false;
    const auto entry = entries ? entries->of(hca) : std::nullopt;
    if (!entry) continue;
    hca.uverbs = uverbs_number(*entry);
    if (scan.full) hca.uverbs_dev = scan.classes.verbs->read_text((*entry + "/dev").c_str());
    // The flags are those of libibverbs. Below a root, the author of an image may have made links.
    const int error =
        base::Rooted(scan.root).probe(fmt::format("/dev/infiniband/uverbs{}", *hca.uverbs), O_RDWR | O_CLOEXEC);
    hca.accessible = error == 0;
    if (error != 0) hca.access_error = error;
  }
  for (Hca& hca : hcas)
    hca.class_link.reset();
}

// Reads the ABI version of each HCA that opens. A driver has one version for its HCAs (ib_device_ops, Linux 6.12; mlx4
// has two, and its provider accepts both), so one read for each driver is enough.
void read_abi_versions(const Directory& verbs, std::vector<Hca>& hcas) {
  for (Hca& hca : hcas) {
    if (!hca.is_accessible() || !hca.driver) continue;
    const auto same = std::ranges::find_if(
        hcas, [&](const Hca& other) { return &other == &hca || (other.abi_version && other.driver == hca.driver); });
    if (&*same == &hca) {
      const std::string path = fmt::format("uverbs{}/abi_version", *hca.uverbs);
      hca.abi_version = parse_number<unsigned>(verbs.read_text(path.c_str()).value_or(""));
    } else {
      hca.abi_version = same->abi_version;
    }
  }
}

// Returns the driver of a software device. rxe has no device link; its "parent" names the netdev
// (drivers/infiniband/sw/rxe/rxe_verbs.c). siw has neither and reports an iWARP node type.
std::optional<std::string> software_driver(const Directory& hca, std::string_view node_type) {
  if (hca.contains("parent")) return "rdma_rxe";
  if (node_type.starts_with("4:")) return "siw";
  return std::nullopt;
}

// Returns the netdev in HCA/device/net that belongs to the port. With mlx4, the directory has the netdevs of both
// ports; the netdev's dev_port plus 1 is the port. In switchdev mode the directory also has representors of VFs, which
// is_representor() detects by phys_port_name.
std::optional<std::string> hardware_netdev(const NotedDirectory& hca, unsigned port) {
  constexpr const char* kNet = "device/net";
  const auto net = hca.directory.open_at(kNet);
  int error = net ? 0 : errno;
  const auto names = net ? net->list(&error) : std::vector<std::string>();
  hca.note(Part::kPool, kNet, error);
  // A single netdev belongs to port 1, whatever its dev_port: bnxt_en counts dev_port per card, though each port is a
  // function with its own HCA.
  if (names.size() == 1 && port == 1) return names.front();
  std::optional<std::string> representor;
  for (const std::string& name : names) {
    const auto netdev = Directory::open(fmt::format("{}/class/net/{}", hca.scan.classes.sys, name));
    if (!netdev || static_cast<unsigned>(netdev->read_int("dev_port").value_or(0)) + 1 != port) continue;
    if (!is_representor(netdev->read_text("phys_port_name").value_or(""))) return name;
    // Without a netdev that is no representor, the first representor is the best guess.
    if (!representor) representor = name;
  }
  return representor;
}

// Reads the attributes of one port relative to the open `ports` directory: to open and close the directory of each port
// would cost two more system calls.
struct PortReader {
  const Directory& ports;
  std::string name;

  Attr<std::string> read(const char* attribute) const { return ports.read((name + "/" + attribute).c_str()); }
  std::optional<std::string> text(const char* attribute) const {
    return ports.read_text((name + "/" + attribute).c_str());
  }
};

// Returns true if RDMA netlink has the netdev of the port. RDMA netlink names only netdevs of this namespace. A name in
// sysfs may belong to a netdev of another namespace. RDMA netlink does not know the IPoIB netdev of an InfiniBand port.
bool is_in_netlink(const Scan& scan, const std::string& hca, const Port& port) {
  return !scan.hand_out && scan.port_netdevs && scan.port_netdevs->hcas.contains(hca) && !port.is_infiniband();
}

bool is_here(const Scan& scan, const std::string& netdev) {
  return std::ranges::any_of(*scan.netdevs, [&](const Netdev& one) { return one.is_here() && one.name == netdev; });
}

// Returns the netdev of a port of a device that has one or no netdev, nullopt if this is not known.
std::optional<std::optional<std::string>> netdev_of_device(const Scan& scan, const Hca& hca, unsigned port) {
  if (!scan.netdevs_of_device || port != 1) return std::nullopt;
  const std::string_view device = directory_of(hca);
  if (device.empty()) return std::nullopt;
  auto names = scan.netdevs_of_device(device);
  if (!names || names->size() > 1) return std::nullopt;
  return names->empty() ? std::optional<std::string>() : std::optional(std::move(names->front()));
}

// Returns the netdev of a port. With scan.full, returns it only if it is in this network namespace.
std::optional<std::string> port_netdev(const NotedDirectory& hca, const PortReader& reader, const Hca& values,
                                       const Port& port) {
  const Scan& scan = hca.scan;
  if (is_in_netlink(scan, values.name, port)) {
    const auto& netdevs = scan.port_netdevs->netdevs;
    const auto found = netdevs.find({values.name, port.number});
    return found == netdevs.end() ? std::nullopt : std::optional(found->second);
  }
  if (auto known = netdev_of_device(scan, values, port.number)) return *std::move(known);
  // rxe names its netdev in "parent". For siw, only the GID table names it.
  auto name = values.pci ? hardware_netdev(hca, port.number) : hca.directory.read_text("parent");
  if (!name && !values.pci) name = reader.text("gid_attrs/ndevs/0");
  return !scan.full || (name && is_here(scan, *name)) ? name : std::nullopt;
}

// Returns true if an unreadable slot ends the table. Records in the port the length of the table, or the errno of a
// slot that exists but cannot be read. A real table has the slots 0 to n-1. A file tree or a prepared view may lack
// some slots. So a missing slot ends the table only if the directory lists no higher slot.
bool ends_table(const GidSlots& slots, unsigned index, int code, std::optional<unsigned>& listed, Port& port) {
  // A slot with a malformed text does not end the scan.
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

// Reads the GID table slot by slot, with the type of each GID, until the table ends or all GIDs that Scan asks
// for are found. For rdma-init (whole_tables without hand_out), also reads the netdev (ndev) of every GID. Returns the
// slots with a GID of type RoCE v2 that this network namespace can own.
std::vector<unsigned> read_gids(const Scan& scan, const PortReader& reader, Port& port) {
  std::vector<unsigned> own;
  const auto slots = GidSlots::open(reader.ports, reader.name, scan.whole_tables && !scan.hand_out);
  if (!slots) {
    port.gids_error = errno;
    port.gids_complete = false;
    return own;
  }
  GidSearch search(*scan.netdevs, port.netdev);
  std::optional<unsigned> listed;
  for (unsigned index = 0;; ++index) {
    const bool is_enough = scan.first_v2 ? !port.gids.empty() && port.gids.back().is_v2()
                                         : search.complete() || (scan.hand_out && search.any());
    if (!scan.whole_tables && is_enough) {
      port.gids_complete = false;
      return own;
    }
    const auto gid = slots->gid(index);
    if (const int code = error_of(gid); code != 0) {
      if (ends_table(*slots, index, code, listed, port)) return own;
      continue;
    }
    GidEntry entry{index, std::get<Address>(gid), std::nullopt, std::nullopt};
    // The kernel prints zeros for an empty slot.
    if (entry.gid.is_zero()) continue;
    if (slots->types_error() == 0) entry.type = slots->type(index);
    entry.ndev = slots->ndev(index);
    if (entry.is_v2() && search.found_v2(entry.gid)) own.push_back(index);
    port.gids.push_back(std::move(entry));
  }
}

// Reads the GIDs in these slots only, which are those of another port. Returns true if all GIDs of the port that this
// network namespace can own are there. Otherwise the port must be read again by read_gids().
bool read_gids_at(const std::vector<unsigned>& slots, const Scan& scan, const PortReader& reader, Port& port) {
  GidSearch search(*scan.netdevs, port.netdev);
  // If there is nothing to find, read_gids() reports whether the table can be read.
  if (search.complete()) return false;
  port.gids.reserve(slots.size());
  for (const unsigned index : slots) {
    const auto gid = GidSlots::gid_of(reader.ports, reader.name, index);
    const auto* address = std::get_if<Address>(&gid);
    if (!address || !search.wants(*address)) return false;
    GidEntry entry{index, *address, GidSlots::type_of(reader.ports, reader.name, index), std::nullopt};
    if (!entry.is_v2()) return false;
    search.found_v2(*address);
    port.gids.push_back(std::move(entry));
  }
  port.gids_complete = false;
  port.gids_skipped = slots.back() >= slots.size();
  return search.complete();
}

// Reads P_Keys of an InfiniBand port: up to the first full member, which index 0 usually is, or all of them. Each entry
// costs three system calls. Ends after kMostEmpty empty entries in a row, because a table has up to 128 entries of
// which few are used.
void read_pkeys(const PortReader& reader, bool all, Port& port) {
  constexpr unsigned kMostPkeys = 128;
  constexpr unsigned kMostEmpty = 8;
  constexpr std::string_view kEmpty = "0x0000";
  std::vector<std::string> pkeys;
  unsigned empty = 0;
  for (unsigned index = 0; index < kMostPkeys && empty < kMostEmpty; ++index) {
    auto pkey = reader.read(fmt::format("pkeys/{}", index).c_str());
    const int code = error_of(pkey);
    if (code == ENOENT) break;
    if (code != 0) return;
    auto& text = std::get<std::string>(pkey);
    empty = text == kEmpty ? empty + 1 : 0;
    const bool is_full = text > "0x8" && text.size() == kEmpty.size();
    pkeys.push_back(std::move(text));
    if (is_full && !all) break;
  }
  while (pkeys.size() > 1 && pkeys.back() == kEmpty)
    pkeys.pop_back();
  if (!pkeys.empty()) port.pkeys = std::move(pkeys);
}

// Reads the prefix of the port's InfiniBand subnet from the answer of RDMA netlink, which costs no system call. A file
// tree has no such answer, so the first GID is read.
void read_subnet(const Scan& scan, const PortReader& reader, const std::string& hca, Port& port) {
  if (scan.port_netdevs) {
    const auto found = scan.port_netdevs->subnets.find({hca, port.number});
    if (found != scan.port_netdevs->subnets.end())
      std::ranges::copy(found->second, port.subnet.emplace().bytes.begin());
  } else if (!scan.root.empty()) {
    const auto gid = parse_address(reader.text("gids/0").value_or(""));
    if (gid) port.subnet = masked(*gid, 64);
  }
}

// Reads one port. Returns nullopt if the entry in `ports` is not a directory.
std::optional<Port> read_port(const NotedDirectory& dir, const HcaFacts& facts, const Hca& hca,
                              const PortReader& reader, unsigned number) {
  const Scan& scan = dir.scan;
  Port port;
  port.number = number;
  if (facts.node) {
    port.state = reader.read("state");
    if (error_of(port.state) == ENOTDIR) return std::nullopt;
  }
  if (facts.link_layer || (facts.use && port.is_active())) {
    port.link_layer = reader.read("link_layer");
    dir.note(facts.link_layer ? Part::kPool : Part::kDetail, fmt::format("ports/{}/link_layer", number),
             error_of(port.link_layer));
  }
  if (facts.rate) port.rate = reader.read("rate");
  // phys_state only explains why a port is not active, so an active port does not need it.
  if (scan.full || (!scan.hand_out && !port.is_active())) port.phys_state = reader.read("phys_state");
  if (scan.full) port.lid = reader.text("lid");
  // The subnet manager matters to an InfiniBand port that is not active.
  if (scan.full || (!scan.hand_out && !port.is_active() && port.is_infiniband())) port.sm_lid = reader.text("sm_lid");
  if (scan.full && port.is_active() && port.is_infiniband()) read_pkeys(reader, true, port);
  const bool in_use = !scan.hand_out && port.is_active();
  const bool own_gids = facts.use && facts.own_gids && port.is_active() && port.is_ethernet();
  if (scan.full || in_use || (scan.hand_out && (facts.netdevs || own_gids)))
    port.netdev = port_netdev(dir, reader, hca, port);
  if (scan.full || (scan.hand_out && facts.gids)) {
    read_gids(scan, reader, port);
  } else {
    port.gids_complete = false;
  }
  return port;
}

// Reads the NUMA node and the upstream ports. link: the class link; its last PCI address is the function itself.
void read_place(const std::string& root, const Directory& dir, Hca& hca, std::string_view link) {
  hca.numa_node = hca.pci ? dir.read_int("device/numa_node") : std::optional(-1);
  if (!hca.pci) return;
  auto path = pci::addresses_in_path(link);
  if (!path.empty()) path.pop_back();
  hca.pci_path = path.empty() ? pci::read_path(root, *hca.pci) : std::optional(std::move(path));
}

// Returns the HCAs of a PCI function. nullopt: the directory does not exist because the driver created no HCA, or
// cannot be read. If the HCA is in another network namespace, the directory is empty (drivers/base/core.c,
// class_dir_child_ns_type(), Linux 6.12).
std::optional<std::vector<std::string>> read_hcas_of(const NotedDirectory& dir, const std::string& path) {
  const auto hcas = dir.directory.open_at(path.c_str());
  int error = hcas ? 0 : errno;
  auto names = hcas ? hcas->list(&error) : std::vector<std::string>();
  if (error == 0) return names;
  dir.note(Part::kHcas, path, error);
  return std::nullopt;
}

// Reads the HCAs of all VFs. A VF without a visible HCA may be in use: by a virtual machine through vfio-pci, or by a
// container whose network namespace has the HCA.
void read_vfs(const NotedDirectory& dir, Hca& hca) {
  constexpr const char* kCount = "device/sriov_numvfs";
  const auto text = dir.directory.read(kCount);
  if (const int code = error_of(text); code != 0) return dir.note(Part::kHcas, kCount, code);
  const auto count = parse_number<unsigned>(std::get<std::string>(text));
  if (!count) return dir.note(Part::kHcas, kCount, EINVAL);
  hca.is_pf = true;
  for (unsigned i = 0; i < *count; ++i) {
    const std::string function = fmt::format("device/virtfn{}", i);
    if (const auto names = read_hcas_of(dir, function + "/infiniband")) {
      hca.vfs.insert(hca.vfs.end(), names->begin(), names->end());
      if (names->empty()) hca.unseen_vf = fmt::format("virtfn{} with its HCA in another network namespace", i);
      continue;
    }
    const std::string link = function + "/driver";
    const auto driver = dir.directory.read_link_name(link.c_str());
    if (const int code = errno; !driver) dir.note(Part::kHcas, link, code);
    // Without a driver, the VF is not in use.
    if (driver) hca.unseen_vf = fmt::format("virtfn{}, for which `{}` created no HCA", i, printable(*driver));
  }
}

// Reads the HCAs of the PF, if the function is a VF.
void read_pfs(const NotedDirectory& dir, Hca& hca) {
  auto names = read_hcas_of(dir, "device/physfn/infiniband");
  if (!names) return;
  hca.physfn = dir.directory.read_link_name("device/physfn");
  hca.is_pf_hidden = names->empty();
  hca.pfs = std::move(*names);
}

void read_ids(const NotedDirectory& dir, const HcaFacts& facts, Hca& hca) {
  if (facts.guid) hca.node_guid = dir.text(Part::kDetail, "node_guid").value_or("");
  if (facts.vfs) read_vfs(dir, hca);
  if (facts.pfs) read_pfs(dir, hca);
  if (facts.vendor) hca.vendor = dir.text(Part::kPool, "device/vendor");
  if (facts.device_id) hca.device_id = dir.text(Part::kPool, "device/device");
  if (!facts.driver) return;
  // The node type serves to find the driver of a software device (and see read_hca()).
  if (dir.scan.full || !hca.pci) hca.node_type = dir.text(Part::kDetail, "node_type").value_or("");
  hca.driver = dir.directory.read_link_name("device/driver");
  // EINVAL: the entry is no symbolic link. This happens in a file tree (ReadOptions::root).
  if (const int code = errno; !hca.driver && code != EINVAL) dir.note(Part::kPool, "device/driver", code);
  if (!hca.driver && !hca.pci) hca.driver = software_driver(dir.directory, hca.node_type);
  if (dir.scan.full || dir.scan.hand_out) hca.physfn = dir.directory.read_link_name("device/physfn");
}

// Reads the port of an HCA with one port, without a listing. Returns false if the HCA may have another port.
bool read_only_port(const NotedDirectory& dir, const HcaFacts& facts, Hca& hca) {
  if (!facts.node || !dir.directory.has_one_directory("ports")) return false;
  auto port = read_port(dir, facts, hca, {dir.directory, "ports/1"}, 1);
  if (!port || error_of(port->state) != 0) return false;  // the port has another number
  hca.ports.push_back(std::move(*port));
  return true;
}

void read_ports(const NotedDirectory& dir, const HcaFacts& facts, Hca& hca) {
  if (read_only_port(dir, facts, hca)) return;
  const auto ports = dir.directory.open_at("ports");
  int error = ports ? 0 : errno;
  const auto names = ports ? ports->list(&error) : std::vector<std::string>();
  for (const std::string& name : names) {
    const auto number = parse_number<unsigned>(name);
    if (!number) continue;
    if (auto port = read_port(dir, facts, hca, {*ports, name}, *number)) hca.ports.push_back(std::move(*port));
  }
  dir.note(Part::kPool, "ports", error);
}

bool lacks_v2(const Port& port) {
  return port.is_active() && port.is_ethernet() && std::ranges::none_of(port.gids, &GidEntry::is_v2);
}

// Reads the GIDs of the ports of a machine. The rails of most machines have their GIDs in the same slots, so the slots
// before them need not be read for every port. They are read if a port has its GIDs elsewhere: then NCCL's choice is
// simulated, which depends on the earlier slots too.
class UsualSlots {
 public:
  explicit UsualSlots(const Scan& scan) : scan_(scan) {}

  void read(const std::string& hca, Port& port) {
    const PortReader reader = reader_of(hca, port);
    if (scan_.usual_slots && !usual_.empty()) {
      reset(port);
      if (read_gids_at(usual_, scan_, reader, port)) return;
    }
    reset(port);
    const auto own = read_gids(scan_, reader, port);
    if (usual_.empty()) usual_ = own;
    differ_ |= !own.empty() && own != usual_;
  }

  // Reads the slots that were skipped, if ports have their GIDs in different slots.
  void complete(Hca& hca) const {
    for (Port& port : hca.ports) {
      if (!differ_ || !port.gids_skipped) continue;
      reset(port);
      read_gids(scan_, reader_of(hca.name, port), port);
    }
  }

 private:
  static void reset(Port& port) {
    port.gids.clear();
    port.gids_error.reset();
    port.gids_complete = true;
    port.gids_skipped = false;
  }

  PortReader reader_of(const std::string& hca, const Port& port) const {
    return {*scan_.classes.infiniband, fmt::format("{}/ports/{}", hca, port.number)};
  }

  const Scan& scan_;
  std::vector<unsigned> usual_;  // slots of the GIDs of the first port that has any
  bool differ_ = false;
};

// Completes a port of an HCA that read_hcas() read without `full` and hand_out.
void read_port_in_use(const Scan& scan, const Hca& hca, Port& port, UsualSlots& slots) {
  if (port.netdev && !is_in_netlink(scan, hca.name, port) && !is_here(scan, *port.netdev)) port.netdev.reset();
  // If this process cannot open the HCA, it needs no GIDs. An InfiniBand port is usable without its GIDs, so they are
  // wanted only with whole_tables.
  if (!port.is_active() || !hca.is_accessible()) return;
  if (port.is_infiniband() && !port.pkeys) {
    const PortReader reader{*scan.classes.infiniband, fmt::format("{}/ports/{}", hca.name, port.number)};
    read_pkeys(reader, scan.whole_tables, port);
    read_subnet(scan, reader, hca.name, port);
  }
  if (port.is_ethernet() || scan.whole_tables) slots.read(hca.name, port);
}

// Returns true if the HCA was renamed during the read: a container can rename HCAs in a shared RDMA subsystem. The
// uverbs, umad and issm nodes are found by the name of the HCA. So after a rename they may belong to another HCA.
bool was_renamed(const Directory& infiniband, const Hca& hca) {
  const std::string_view device = device_in_link(*hca.class_link);
  const auto is_of_another = [&](std::string_view link) { return !link.empty() && device_in_link(link) != device; };
  if (hca.verbs_link && is_of_another(*hca.verbs_link)) return true;
  if (std::ranges::any_of(hca.mad_nodes, is_of_another, &MadNode::link)) return true;
  // The links of all software HCAs name the same device, so the GUIDs are compared.
  if (device != kNoDevice || hca.node_guid.empty()) return false;
  return infiniband.read_text((hca.name + "/node_guid").c_str()) != hca.node_guid;
}

// Reads the facts in the directory of an HCA. link: target of the class link, for read_place(). Returns false if the
// HCA no longer exists, or was renamed during the read.
bool read_directory(const NotedDirectory& dir, const HcaFacts& facts, const AllEntries& entries, std::string_view link,
                    Hca& hca) {
  const Scan& scan = dir.scan;
  read_ids(dir, facts, hca);
  if (scan.full || (scan.hand_out && facts.place)) read_place(scan.root, dir.directory, hca, link);
  if (scan.full) {
    hca.pci_class = dir.directory.read_text("device/class");
    hca.fw_ver = dir.directory.read_text("fw_ver");
  }
  if (scan.hand_out && facts.node) {
    if (!read_hand_out_nodes(scan, entries, dir.directory, hca)) return false;
    if (hca.class_link && was_renamed(*scan.classes.infiniband, hca)) return false;
  }
  if (!hca.pci && scan.whole_tables && !scan.hand_out) hca.parent = dir.directory.read_text("parent");
  if (facts.of_ports()) read_ports(dir, facts, hca);
  return true;
}

// Reads the link of an HCA in the class directory. links: links that are known, or nullptr.
ClassLink class_link(const NotedDirectory& all, KnownLinks* links, const std::string& name) {
  if (links) {
    if (auto known = links->find(name)) return {std::move(known), false};
  }
  ClassLink read = all.link(name);
  if (links && read.target) links->note(name, *read.target);
  return read;
}

// Returns the address of an HCA's own PCI function: the last one in the class link. For a subfunction it is the parent
// function, because the HCA is on the auxiliary bus of that function.
std::optional<std::string> function_of(const Directory& infiniband, const std::string& name,
                                       const std::optional<std::string>& link) {
  if (const auto own = link ? pci::last_address_in_path(*link) : std::string_view(); !own.empty())
    return std::string(own);
  auto function = infiniband.read_link_name((name + "/device").c_str());
  return function && pci::is_address(*function) ? std::move(function) : std::nullopt;
}

// Reads the HCA that has the name. Returns false if it no longer exists, or was renamed during the read.
bool read_hca(const Scan& scan, HcaFacts facts, const AllEntries& entries, Hca& hca) {
  const std::string& name = hca.name;
  const Directory& infiniband = *scan.classes.infiniband;
  const NotedDirectory all{scan, infiniband, kInfinibandClass, name};
  // The name leads to another HCA, or to none, than at an earlier read. ESTALE keeps callers from deciding without it.
  const auto stale = [&] {
    all.note(Part::kHcas, name, ESTALE);
    return false;
  };
  hca.is_name_only = !facts.pci;
  if (hca.is_name_only) return true;
  std::optional<Directory> opened;
  if (facts.beyond_pci()) {
    opened = infiniband.open_at(name.c_str());
    if (!opened) {
      all.note(Part::kHcas, name, errno);
      return false;
    }
  }
  auto [link, is_absent] = class_link(all, facts.beyond_pci() ? nullptr : scan.links, name);
  if (is_absent) return stale();
  hca.pci = function_of(infiniband, name, link);
  if (link && scan.hand_out) hca.device = device_in_link(*link);
  const bool identifies = (scan.hand_out && facts.node) || facts.identity;
  // The GUID of a software HCA is always read, because the ledger identifies software HCAs by it.
  facts.guid |= identifies && link && device_in_link(*link) == kNoDevice;
  if (!opened) {
    if (identifies) hca.class_link = std::move(link);
    if (facts.guid) hca.node_guid = all.text(Part::kDetail, name + "/node_guid").value_or("");
    return true;
  }
  // Without hand_out, find_nodes() uses the link and clears it.
  if (identifies || !scan.hand_out) hca.class_link = link;
  const std::string path = fmt::format("{}/{}", kInfinibandClass, name);
  return read_directory({scan, *opened, path, name}, facts, entries, link.value_or(""), hca) || stale();
}

}  // namespace

Classes::Classes(std::string sys_path)
    : sys(std::move(sys_path)), infiniband(Directory::open(sys + kInfinibandClass)), error(infiniband ? 0 : errno) {
  // ENODEV means that no sysfs is mounted. ENOENT means that sysfs has no RDMA devices, because no RDMA driver is
  // loaded.
  if (error == ENOENT && !Directory::open(sys + "/class")) error = ENODEV;
}

void Classes::open_nodes(std::optional<Unread::Part> mad_part, std::vector<Unread>* unread) {
  const auto open = [&](const char* path, Part part) {
    auto directory = Directory::open(sys + path);
    if (const int code = errno; !directory) note_unread(unread, {part, sys + path, code});
    return directory;
  };
  note_unread(unread, {Part::kHcas, sys + kInfinibandClass, error});
  verbs = open(kVerbsClass, Part::kHcas);
  if (mad_part) mad = open(kMadClass, *mad_part);
}

std::vector<std::string> Classes::names(std::vector<Unread>* unread, KnownLinks* links) const {
  int failed = 0;
  std::vector<std::string> names;
  if (infiniband && links) {
    std::vector<std::pair<std::string, std::uint64_t>> entries;
    const auto add = [&](std::string_view name, std::uint64_t inode) {
      entries.emplace_back(name, inode);
      return true;
    };
    if (!base::next_entries(infiniband->fd(), add)) failed = errno;
    // Sorts views, as Directory::list() does.
    std::vector<std::pair<std::string_view, std::uint64_t>> order(entries.begin(), entries.end());
    std::ranges::sort(order, natural_less, &std::pair<std::string_view, std::uint64_t>::first);
    names.reserve(order.size());
    for (const auto& entry : order)
      names.emplace_back(entry.first);
    links->begin(*infiniband, {order.begin(), order.end()});
  } else if (infiniband) {
    names = infiniband->list(&failed);
  }
  note_unread(unread, {Part::kHcas, sys + kInfinibandClass, failed});
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

void read_gids_in_use(const Scan& scan, std::vector<Hca>& hcas) {
  UsualSlots slots(scan);
  for (Hca& hca : hcas)
    for (Port& port : hca.ports)
      read_port_in_use(scan, hca, port, slots);
  for (Hca& hca : hcas) {
    slots.complete(hca);
    // An iWARP device has no GID of type RoCE v2, so the type of most HCAs need not be read.
    if (hca.node_type.empty() && hca.is_accessible() && std::ranges::any_of(hca.ports, lacks_v2))
      hca.node_type = scan.classes.infiniband->read_text((hca.name + "/node_type").c_str()).value_or("");
  }
}

void read_models(const Classes& classes, std::vector<Hca>& hcas) {
  if (!classes.infiniband) return;
  for (Hca& hca : hcas) {
    hca.node_guid = classes.infiniband->read_text((hca.name + "/node_guid").c_str()).value_or("");
    if (!hca.pci) continue;
    const std::string device = hca.name + "/device/";
    hca.vendor = classes.infiniband->read_text((device + "vendor").c_str());
    hca.device_id = classes.infiniband->read_text((device + "device").c_str());
    hca.physfn = classes.infiniband->read_link_name((device + "physfn").c_str());
  }
}

std::vector<Hca> read_hcas(const Scan& scan, const std::vector<std::string>& names) {
  std::vector<Hca> hcas;
  if (!scan.classes.infiniband) return hcas;
  const AllEntries entries = read_all_entries(scan);
  hcas.reserve(names.size());
  for (const std::string& name : names) {
    const bool wanted = !scan.wanted || std::ranges::find(*scan.wanted, name) != scan.wanted->end();
    // Reads in place, because an HCA is expensive to move.
    hcas.emplace_back().name = name;
    if (!read_hca(scan, wanted ? scan.facts : scan.other_facts, entries, hcas.back())) hcas.pop_back();
  }
  if (scan.hand_out) return hcas;
  find_nodes(scan, hcas);
  if (scan.classes.verbs) read_abi_versions(*scan.classes.verbs, hcas);
  return hcas;
}

}  // namespace fabric::rdma_sysfs
