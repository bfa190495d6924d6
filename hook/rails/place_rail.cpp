#include "hook/rails/place_rail.hpp"

#include <fcntl.h>
#include <linux/netlink.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <utility>

#include "base/text.hpp"
#include "fabric/inventory.hpp"
#include "fabric/pci_sysfs.hpp"
#include "hook/rails/netlink/rdma_devices.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/netlink/vf.hpp"

namespace hook {
namespace {

// Returns the present values of the attributes that the hook will change, because only these attributes are restored.
VfAttributes only_changed(const VfAttributes& now, const VfAttributes& wanted) {
  VfAttributes kept;
  if (wanted.mac) kept.mac = now.mac;
  each_vf_attribute([&](const char*, auto attribute) {
    if (wanted.*attribute) kept.*attribute = now.*attribute;
  });
  return kept;
}

constexpr const char* kPfHint = "bring the physical function up, or remove \"vf\" from the network";

// Compares MAC addresses. With IPoIB only the last 8 of the 20 bytes count, which are the port's GUID. The bytes before
// the GUID contain the number of a queue pair, which differs for each netdev that the kernel makes (INFINIBAND_ALEN,
// include/linux/if_infiniband.h).
bool has_mac(const Link& link, const HostNetdev& host) {
  constexpr std::ptrdiff_t kGuid = 8;
  if (!is_ipoib(host) || link.mac.size() < kGuid || host.mac.size() < kGuid) return link.mac == host.mac;
  return std::equal(link.mac.end() - kGuid, link.mac.end(), host.mac.end() - kGuid, host.mac.end());
}

// Returns false for the kinds of qdisc that the kernel attaches by itself (net.core.default_qdisc), because their loss
// needs no warning. All qdiscs are lost when a netdev moves (dev_shutdown() in __dev_change_net_namespace(), Linux
// 6.12).
bool is_set_qdisc(const std::string& kind) {
  constexpr std::string_view kDefault[] = {"", "noop", "noqueue", "mq", "pfifo_fast", "fq_codel", "fq", "pfifo", "sfq"};
  return std::ranges::find(kDefault, kind) == std::end(kDefault);
}

bool is_same_netdev(const Link& link, const HostNetdev& host) {
  if (link.kind != host.kind || (!host.bus_address.empty() && link.bus_address != host.bus_address)) return false;
  // The IPoIB child of a pkey has the kind and the GUID of its parent, but is not the recorded netdev.
  if (is_ipoib(host) && link.lower_ifindex != 0) return false;
  // Without a bus address only the MAC address can identify the netdev. With a bus address the MAC address may differ
  // here; find_netdev() then distinguishes the netdevs that have the same bus address.
  return has_mac(link, host) || !host.bus_address.empty();
}

// Moves the RDMA device into the namespace. Does nothing if the device is not on the node, because an earlier step has
// moved it.
Result<void> send_rdma_device(NodeSockets& node, const RailRecord& record, int netns) {
  const std::string& name = record.rail.hca;
  if (!node.rdma) return make_error("cannot move RDMA device `{}`: the kernel has no RDMA netlink", name);
  const auto& known = record.host.rdma;
  // A software device that was made again in the container has another index, but the same node GUID. The device is
  // therefore searched by the GUID.
  const auto device = TRY(record.rail.recreate ? find_software_device(*node.rdma, guid_on_record(record), name)
                          : known              ? find_rdma_device(*node.rdma, *known)
                                               : find_rdma_device(*node.rdma, name));
  return device ? move_rdma_device(*node.rdma, device->index, netns) : Result<void>();
}

NewChild child_of(const RailRecord& rail, std::uint32_t group, int netns) {
  return {.kind = rail.rail.kind,
          .macvlan_private = rail.rail.macvlan_private,
          .pkey = rail.rail.pkey,
          .name = rail.rail.name,
          .parent = rail.host.ifindex,
          .mtu = rail.rail.mtu,
          .group = group,
          .netns = netns};
}

// Moves the netdev. With IPoIB the recorded netdev ended when the RDMA device moved, and the kernel made another one
// with another index, named ib%d. That netdev is on the node, or since Linux 6.16 in the namespace of the RDMA device
// (ipoib_remove_one(), ipoib_add_port()).
Result<void> send_netdev(NodeSockets& node, NetworkNamespace& inside, const RailRecord& rail) {
  LinkChange in{.name = rail.rail.name, .up = false, .netns = inside.netns.get()};
  if (!rail.rail.move_rdma || !is_ipoib(rail.host)) return change_link(node.route, rail.host.ifindex, in);
  const auto here = find_netdev(TRY(all_links(node.route)), rail.host.name, rail.host);
  if (here) return change_link(node.route, here->ifindex, in);
  const auto there = find_netdev(TRY(all_links(inside.route)), rail.rail.name, rail.host);
  if (!there) {
    return Error{
        fmt::format("RDMA device `{}` has moved into the container, but the kernel made no IPoIB netdev for it",
                    rail.rail.hca),
        ENODEV, "check with `lsmod` that ib_ipoib is loaded, and read the kernel's log (`dmesg`)"};
  }
  in.netns.reset();
  return change_link(inside.route, there->ifindex, in);
}

// Returns true if the netdev belongs to another PCI function than the HCA. Returns false if the netdev has no PCI
// address: the netdev of a scalable function has an auxiliary device, and a bond has no device, but both can belong to
// the HCA.
bool is_of_another_function(const Link& link, const fabric::Hca* hca) {
  return hca && hca->pci && fabric::pci::is_address(link.bus_address) && link.bus_address != *hca->pci;
}

// The state and the steps of describe_host().
class HostReader {
 public:
  HostReader(NodeSockets& node, const Rail& rail, const fabric::Hca* hca, const std::string& sys,
             std::vector<std::string>& warnings)
      : node_(node), rail_(rail), hca_(hca), sys_(sys), warnings_(warnings) {}

  Result<HostNetdev> read() {
    const auto link = TRY(find_link(node_.route, rail_.host));
    if (!link)
      return Error{fmt::format("netdev `{}` of `{}` is not in the node's network namespace", rail_.host, rail_.hca),
                   ENODEV, "find its owner with `rdma-hook devices`"};
    if (is_of_another_function(*link, hca_)) {
      return Error{
          fmt::format("netdev `{}` does not belong to `{}`: an HCA was renamed meanwhile", rail_.host, rail_.hca),
          ENODEV, "check the names with `rdma link` and start the container again"};
    }
    host_.ifindex = link->ifindex;
    host_.name = link->name;
    host_.kind = link->kind;
    host_.bus_address = link->bus_address;
    host_.mac = link->mac;
    host_.permanent_mac = link->permanent_mac;
    host_.mtu = link->mtu;
    host_.tx_queue_length = link->tx_queue_length;
    host_.up = link->up;
    if (rail_.kind == RailKind::kMove) TRY_VOID(describe_moving(*link));
    return std::move(host_);
  }

 private:
  // Records the state of a moving netdev that RailRestorer::restore() needs.
  Result<void> describe_moving(const Link& link) {
    if (rail_.move_rdma && node_.rdma) host_.rdma = TRY(describe_rdma_device(*node_.rdma, rail_.hca));
    if (rail_.recreate && node_.rdma) host_.rdma = TRY(describe_software_device());
    host_.settings = link.settings;
    if (link.vfs > 0) {
      for (auto& [number, vf] : TRY(read_vfs(node_.route, link.ifindex)))
        if (number == host_.vfs.size()) host_.vfs.push_back(vf);
    }
    describe_what_may_be_lost(link);
    // If the netdev has no bus address, a container can make another netdev with the same kind and MAC address.
    // Therefore the identity is recorded too (netdev_identity()).
    if (host_.bus_address.empty() && !is_ipoib(host_)) {
      if (!node_.sysfs.ok()) node_.sysfs = TRY(open_sysfs());
      if (node_.sysfs.ok()) host_.identity = TRY(netdev_identity(node_.sysfs.get(), link));
    }
    describe_sysfs(link);
    auto configured = TRY(read_records(node_.route, link.ifindex, link.name));
    host_.records = std::move(configured.records);
    for (const std::string& route : configured.skipped)
      warnings_.push_back(fmt::format("`{}`: cannot move `{}` with the netdev", rail_.host, route));
    return describe_vf();
  }

  // Describes the software RDMA device of a netdev that moves. The device is made again in the container and is then
  // found by the recorded node GUID. The kernel makes the GUID of the new device from the MAC address of the netdev, so
  // this GUID must be equal to the recorded one.
  // Errors: ENODEV, the device was renamed or removed since the plan; EINVAL, a new device would have another node
  // GUID.
  Result<std::optional<RdmaDevice>> describe_software_device() {
    const std::uint64_t guid = hca_ ? parse_node_guid(hca_->node_guid) : 0;
    auto device = TRY(find_software_device(*node_.rdma, guid, rail_.hca));
    if (!device || device->name != rail_.hca)
      return Error{fmt::format("RDMA device `{}` was renamed or removed meanwhile", rail_.hca), ENODEV,
                   "check the names with `rdma dev` and start the container again"};
    const std::uint64_t made_anew = node_guid_of_mac(host_.mac);
    if (made_anew == 0 || made_anew == device->node_guid) return device;
    return Error{
        fmt::format("cannot make RDMA device `{}` again in a container: it was made when `{}` had another MAC address",
                    rail_.hca, host_.name),
        EINVAL,
        fmt::format("run `rdma link delete {0}; rdma link add {0} type TYPE netdev {1}`", rail_.hca, host_.name)};
  }

  // Records features and tcx programs. Adds warnings about settings that a move or the container can remove and that
  // cannot be restored.
  void describe_what_may_be_lost(const Link& link) {
    auto features = node_.ethtool.features(link.ifindex, link.name);
    if (features) {
      host_.features = *std::move(features);
    } else {
      warnings_.push_back(
          fmt::format("{}: features of `{}` will not be restored", features.error().message, link.name));
    }
    auto programs = tcx_programs(link.ifindex, link.name);
    if (!programs) {
      warnings_.push_back(programs.error().message + ": tcx programs of containers will not be detached");
    } else {
      if (!programs->empty()) {
        warnings_.push_back(
            fmt::format("`{0}` moves with {1} of the node's tcx programs, which its container can detach; remedy: "
                        "list them with `bpftool net show dev {0}`",
                        link.name, programs->size()));
      }
      host_.tcx = *std::move(programs);
    }
    if (is_set_qdisc(link.qdisc)) {
      warnings_.push_back(fmt::format(
          "`{0}` loses its qdisc `{1}` when it moves; remedy: save `tc qdisc show dev {0}` and set it again "
          "when the netdev is back",
          link.name, base::printable(link.qdisc)));
    }
  }

  // Reads the netdev's settings in sysfs: in node_.sysfs if it is open, otherwise in `sys`. Does not open node_.sysfs,
  // because closing this mount takes some 10 ms (a grace period of the kernel).
  void describe_sysfs(const Link& link) {
    const base::UniqueFd own(node_.sysfs.ok() ? -1 : ::open(sys_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const auto netdev = open_netdev(node_.sysfs.ok() ? node_.sysfs.get() : own.get(), link);
    if (netdev && *netdev) {
      host_.sysfs = read_sysfs_settings(**netdev, link.name, warnings_);
      return;
    }
    warnings_.push_back(
        fmt::format("{}: queue and NAPI settings of the netdev will not be restored",
                    netdev ? fmt::format("`{}` is not in `{}`", link.name, sys_) : netdev.error().message));
  }

  Result<void> describe_vf() {
    if (rail_.vf.empty()) return {};
    const auto place = hca_ && hca_->pci && hca_->physfn ? find_vf_slot(sys_, *hca_->pci, *hca_->physfn) : std::nullopt;
    if (!place) {
      return Error{
          fmt::format("cannot set VF attributes of `{}`: its physical function has no netdev on the node", rail_.host),
          ENODEV, kPfHint};
    }
    host_.pf = place->pf;
    host_.vf = place->vf;
    const auto pf = TRY(find_link(node_.route, place->pf));
    if (!pf)
      return Error{fmt::format("`{}`, the physical function of `{}`, is gone", place->pf, rail_.host), 0, kPfHint};
    host_.vf_attributes = only_changed(TRY(read_vf(node_.route, pf->ifindex, place->vf)), rail_.vf);
    return {};
  }

  NodeSockets& node_;
  const Rail& rail_;
  const fabric::Hca* hca_;
  const std::string& sys_;
  std::vector<std::string>& warnings_;
  HostNetdev host_;
};

}  // namespace

Result<NodeSockets> open_node_sockets() {
  auto route = TRY(Netlink::open(NETLINK_ROUTE));
  auto rdma = TRY(Netlink::open_if_known(NETLINK_RDMA));
  NodeSockets node{std::move(route), std::move(rdma),
                   base::UniqueFd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC))};
  if (!node.netns.ok()) return sys_error(errno, "cannot open `/proc/self/ns/net`");
  return node;
}

bool is_ipoib(const HostNetdev& host) {
  return host.kind == "ipoib";
}

std::uint64_t guid_on_record(const RailRecord& rail) {
  return rail.host.rdma ? rail.host.rdma->node_guid : 0;
}

std::optional<Link> find_netdev(const std::vector<Link>& links, const std::string& name, const HostNetdev& host) {
  std::vector<Link> same;
  std::ranges::copy_if(links, std::back_inserter(same), [&](const Link& link) { return is_same_netdev(link, host); });
  // The permanent MAC address distinguishes two netdevs of one function. A driver that was bound again may have
  // assigned another permanent address. Then no link has the recorded permanent address, and name and MAC address
  // decide.
  const auto is_permanent = [&](const Link& link) {
    return !host.permanent_mac.empty() && link.permanent_mac == host.permanent_mac;
  };
  if (std::ranges::any_of(same, is_permanent)) std::erase_if(same, std::not_fn(is_permanent));
  for (const Link& link : same)
    if (link.name == name) return link;
  const auto by_mac = std::ranges::find_if(same, [&](const Link& link) { return has_mac(link, host); });
  if (by_mac != same.end()) return *by_mac;
  return same.size() == 1 ? std::optional(same.front()) : std::nullopt;
}

Result<std::optional<Link>> find_recorded_netdev(Netlink& route, const base::UniqueFd& sysfs, const std::string& name,
                                                 const HostNetdev& host) {
  if (host.identity == 0) return find_netdev(TRY(all_links(route)), name, host);
  if (sysfs.ok()) return find_by_identity(route, sysfs.get(), host.kind, host.identity);
  return Error{
      fmt::format("cannot identify `{}` among the netdevs of its container: sysfs cannot be mounted", host.name), EPERM,
      "run `rdma-hook recover` as root of the node"};
}

Result<void> set_vf(NodeSockets& node, const HostNetdev& host, const VfAttributes& attributes) {
  if (attributes.empty()) return {};
  const auto pf = TRY(find_link(node.route, host.pf));
  if (!pf) return make_error("cannot set VF {} of `{}`: there is no such netdev", host.vf, host.pf);
  return change_vf(node.route, pf->ifindex, host.vf, attributes);
}

Result<HostNetdev> describe_host(NodeSockets& node, const Rail& rail, const fabric::Hca* hca, const std::string& sys,
                                 std::vector<std::string>& warnings) {
  return HostReader(node, rail, hca, sys, warnings).read();
}

Result<int> place_rail(NodeSockets& node, NetworkNamespace& inside, const RailRecord& rail, std::uint32_t group) {
  if (rail.rail.kind != RailKind::kMove) {
    TRY_VOID(create_child(node.route, child_of(rail, group, inside.netns.get())));
  } else {
    TRY_VOID(set_vf(node, rail.host, rail.rail.vf));
    if (rail.rail.move_rdma) TRY_VOID(send_rdma_device(node, rail, inside.netns.get()));
    if (rail.rail.recreate && rail.host.rdma && node.rdma) TRY_VOID(delete_rdma_link(*node.rdma, *rail.host.rdma));
    TRY_VOID(send_netdev(node, inside, rail));
  }
  const auto link = TRY(find_link(inside.route, rail.rail.name));
  if (!link) return make_error("`{}` is not in the container's network namespace", rail.rail.name);
  return link->ifindex;
}

Result<void> recreate_inside(NodeSockets& node, NetworkNamespace& inside, const RailRecord& record) {
  const Rail& rail = record.rail;
  if (!rail.recreate) return {};
  if (!inside.rdma)
    return Error{
        fmt::format("cannot make RDMA device `{}` in the container again: the kernel has no RDMA netlink", rail.hca), 0,
        "run `modprobe ib_core` and create the container again"};
  TRY_VOID(create_rdma_link(*inside.rdma, rail.hca, *rail.recreate, rail.name));
  if (TRY(find_software_device(*inside.rdma, guid_on_record(record), rail.hca))) return {};
  // If the RDMA subsystem is exclusive, the kernel makes every new RDMA device in the initial namespace, even if its
  // netdev is in another one (ib_alloc_device(), Linux 6.12). The new device must therefore be moved.
  return send_rdma_device(node, record, inside.netns.get());
}

}  // namespace hook
