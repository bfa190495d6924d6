#include "hook/rails/netlink/rdma_devices.hpp"

#include <rdma/rdma_netlink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "fabric/inventory.hpp"

namespace hook {
namespace {

using base::netlink::Message;

constexpr std::size_t kLongestName = 63;    // IB_DEVICE_NAME_MAX counts the zero
constexpr std::size_t kLongestNetdev = 15;  // IFNAMSIZ counts the zero
constexpr const char* kReload =
    "end all users of RDMA, unload ib_core with `modprobe -r` and run `modprobe ib_core netns_mode=0`";

constexpr Word<int> kMoveHints[] = {
    {"find the processes that use the device with `rdma resource show` and end them", EBUSY},
    {"run this command as root of the node, with CAP_NET_ADMIN in the user namespace that owns the target", EPERM},
    {"rename the device in the target namespace that has this name: `rdma dev set OLD name NEW`", EEXIST},
    {"check with `rdma dev` whether it was unplugged or moved", ENODEV}};

// Refuses names that are too long: the kernel would cut them (nla_strscpy) and change another device.
Result<void> check_name(std::string_view name, std::size_t longest, const char* what) {
  const bool good = !name.empty() && name.size() <= longest && name != "." && name != ".." &&
                    std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f; }) &&
                    name.find_first_of("/%:") == std::string_view::npos;
  if (good) return {};
  return Error{fmt::format("cannot use `{}`: it is no name of {}", base::printable(name.substr(0, longest)), what),
               EINVAL};
}

// Replaces the text of ENFILE. strerror() describes open files, but the kernel returns ENFILE for a name that is taken
// (assign_name() of drivers/infiniband/core/device.c).
Error explain_taken_name(Error refusal) {
  if (refusal.code != ENFILE) return refusal;
  const std::string_view cause = std::strerror(ENFILE);
  const std::string_view meant = "an RDMA device has this name, and names are unique over all network namespaces";
  if (const auto at = refusal.message.find(cause); at != std::string::npos)
    refusal.message.replace(at, cause.size(), meant);
  refusal.hint = "find it with `rdma dev` in each network namespace, and rename it: `rdma dev set OLD name NEW`";
  return refusal;
}

// Reads the mode of the RDMA subsystem; nullopt: the kernel does not report it (before Linux 5.2).
std::optional<bool> is_shared_mode(Netlink& rdma) {
  std::optional<bool> shared;
  const auto asked =
      rdma.read(rdma_request(RDMA_NLDEV_CMD_SYS_GET), "read the RDMA subsystem's mode", [&](const Message& answer) {
        const auto mode = answer.attributes(0).u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE);
        if (mode) shared = *mode != 0;
      });
  return asked ? shared : std::nullopt;
}

}  // namespace

RequestBuilder rdma_request(unsigned command, unsigned flags) {
  return {RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), flags, base::netlink::Bytes()};
}

RequestBuilder rdma_move_request(std::uint32_t index, int netns) {
  RequestBuilder made = rdma_request(RDMA_NLDEV_CMD_SET);
  made.put(RDMA_NLDEV_ATTR_DEV_INDEX, index);
  made.put(RDMA_NLDEV_NET_NS_FD, static_cast<std::uint32_t>(netns));
  return made;
}

RequestBuilder rdma_rename_request(std::uint32_t index, std::string_view name) {
  RequestBuilder made = rdma_request(RDMA_NLDEV_CMD_SET);
  made.put(RDMA_NLDEV_ATTR_DEV_INDEX, index);
  made.put(RDMA_NLDEV_ATTR_DEV_NAME, name);
  return made;
}

RequestBuilder rdma_link_request(std::string_view name, std::string_view type, std::string_view netdev) {
  RequestBuilder made = rdma_request(RDMA_NLDEV_CMD_NEWLINK);
  made.put(RDMA_NLDEV_ATTR_DEV_NAME, name);
  made.put(RDMA_NLDEV_ATTR_LINK_TYPE, type);
  made.put(RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
  return made;
}

RequestBuilder rdma_unlink_request(std::uint32_t index) {
  RequestBuilder made = rdma_request(RDMA_NLDEV_CMD_DELLINK);
  made.put(RDMA_NLDEV_ATTR_DEV_INDEX, index);
  return made;
}

Error explain_rdma_move(Error refusal, std::optional<bool> shared_mode) {
  switch (refusal.code) {
    case EOPNOTSUPP:  // EOPNOTSUPP has two causes, which older kernels do not report separately
      if (shared_mode.value_or(false)) {
        refusal.message += "; the RDMA subsystem is shared between network namespaces";
        refusal.hint = fmt::format("set `options ib_core netns_mode=0` in /etc/modprobe.d and reboot, or: {}", kReload);
      } else {
        refusal.message +=
            "; the driver of the device cannot disconnect its users; software devices (rxe, siw) can never move";
        refusal.hint = "use a newer kernel or driver, or share the RDMA subsystem: `rdma system set netns shared`";
      }
      break;
    case ENFILE:
      return explain_taken_name(std::move(refusal));
    default:
      if (const auto hint = to_word(kMoveHints, refusal.code); !hint.empty()) refusal.hint = hint;
  }
  return refusal;
}

Error explain_rdma_rename(Error refusal) {
  if (refusal.code == EEXIST) refusal.hint = "find the other device with this name: `rdma dev`";
  return explain_taken_name(std::move(refusal));
}

Error explain_rdma_link(Error refusal, std::string_view type) {
  const std::string shown = base::printable(type);
  if (refusal.code == EINVAL) refusal.hint = fmt::format("run `modprobe rdma_{}` or `modprobe {}`", shown, shown);
  if (refusal.code == ENODEV) refusal.hint = "check that the netdev exists in this network namespace";
  if (refusal.code == EEXIST) refusal.hint = "find the device with this name or on this netdev: `rdma link`";
  if (refusal.code == EPERM) refusal.hint = "run this command as root of the node; a VLAN cannot have rxe";
  return explain_taken_name(std::move(refusal));
}

Result<std::vector<RdmaDevice>> rdma_devices(Netlink& rdma) {
  std::vector<RdmaDevice> devices;
  TRY_VOID(rdma.dump(
      rdma_request(RDMA_NLDEV_CMD_GET, NLM_F_DUMP), "list RDMA devices", [&] { devices.clear(); },
      [&](const Message& answer) {
        const auto attributes = answer.attributes(0);
        const auto index = attributes.u32(RDMA_NLDEV_ATTR_DEV_INDEX);
        auto name = attributes.text(RDMA_NLDEV_ATTR_DEV_NAME);
        const auto guid = attributes.u64(RDMA_NLDEV_ATTR_NODE_GUID);
        if (index && name) devices.push_back({*index, *std::move(name), guid.value_or(0)});
      }));
  return devices;
}

Result<std::optional<RdmaDevice>> find_rdma_device(Netlink& rdma, std::string_view name) {
  for (RdmaDevice& device : TRY(rdma_devices(rdma)))
    if (device.name == name) return std::optional(std::move(device));
  return std::optional<RdmaDevice>();
}

Result<std::optional<RdmaDevice>> describe_rdma_device(Netlink& rdma, std::string_view name) {
  std::optional<RdmaDevice> found;
  std::map<std::uint64_t, int> guids;
  for (RdmaDevice& device : TRY(rdma_devices(rdma))) {
    ++guids[device.node_guid];
    if (device.name == name) found = std::move(device);
  }
  if (!found) return found;
  // A GUID that is made from a MAC address does not identify the device (addrconf_addr_eui48()): a container can make
  // an rxe or siw device with this GUID, on a netdev with the same MAC address. Some hardware also has a GUID made from
  // its MAC address.
  const bool is_of_mac = (found->node_guid >> 24 & 0xffff) == 0xfffe;
  if (is_of_mac || guids[found->node_guid] > 1) found->node_guid = 0;
  return found;
}

Result<std::optional<RdmaDevice>> find_rdma_device(Netlink& rdma, const RdmaDevice& known) {
  std::vector<RdmaDevice> anew;
  for (RdmaDevice& device : TRY(rdma_devices(rdma))) {
    if (device.index == known.index) return std::optional(std::move(device));
    // If the driver was bound again, the device has another index, and only its GUID identifies it.
    if (known.node_guid != 0 && device.node_guid == known.node_guid) anew.push_back(std::move(device));
  }
  return anew.size() == 1 ? std::optional(std::move(anew.front())) : std::nullopt;
}

Result<std::optional<RdmaDevice>> find_software_device(Netlink& rdma, std::uint64_t node_guid, std::string_view name) {
  if (node_guid == 0) return find_rdma_device(rdma, name);
  auto devices = TRY(rdma_devices(rdma));
  std::erase_if(devices, [&](const RdmaDevice& device) { return device.node_guid != node_guid; });
  if (devices.size() > 1) std::erase_if(devices, [&](const RdmaDevice& device) { return device.name != name; });
  return devices.size() == 1 ? std::optional(std::move(devices.front())) : std::nullopt;
}

// sysfs prints a GUID in groups of four digits.
std::uint64_t parse_node_guid(std::string_view text) {
  std::string digits(text);
  std::erase(digits, ':');
  return base::parse_number<std::uint64_t>(digits, 16).value_or(0);
}

std::uint64_t node_guid_of_mac(const std::vector<std::uint8_t>& mac) {
  // The GUID is the modified EUI-64 of the address: the universal/local bit is inverted, and ff:fe is in the middle.
  constexpr std::size_t kLength = 6;
  if (mac.size() != kLength) return 0;
  std::uint64_t guid = 0;
  for (const unsigned byte : {mac[0] ^ 2U, unsigned{mac[1]}, unsigned{mac[2]}, 0xffU, 0xfeU, unsigned{mac[3]},
                              unsigned{mac[4]}, unsigned{mac[5]}})
    guid = guid << 8 | byte;
  return guid;
}

Result<void> move_rdma_device(Netlink& rdma, std::uint32_t index, int netns) {
  auto moved = rdma.change(rdma_move_request(index, netns), fmt::format("move RDMA device {}", index));
  if (moved) return {};
  // Reading the mode costs a request, so it is read only for the one error that it explains.
  const bool ask = moved.error().code == EOPNOTSUPP;
  return explain_rdma_move(std::move(moved).error(), ask ? is_shared_mode(rdma) : std::nullopt);
}

Result<void> move_rdma_device_from(int from, std::uint32_t index, int to) {
  return run_in_network_namespace(from, [&]() -> Result<void> {
    auto rdma = TRY(Netlink::open(NETLINK_RDMA));
    return move_rdma_device(rdma, index, to);
  });
}

Result<void> rename_rdma_device(Netlink& rdma, std::uint32_t index, std::string_view name) {
  TRY_VOID(check_name(name, kLongestName, "an RDMA device"));
  auto renamed =
      rdma.change(rdma_rename_request(index, name), fmt::format("rename RDMA device {} to `{}`", index, name));
  if (renamed) return {};
  return explain_rdma_rename(std::move(renamed).error());
}

Result<void> restore_rdma_name(Netlink& rdma, Netlink* elsewhere, const RdmaDevice& device, const std::string& name,
                               std::vector<std::string>& warnings) {
  if (device.name == name) return {};
  auto renamed = rename_rdma_device(rdma, device.index, name);
  if (renamed || renamed.error().code != EEXIST) return renamed;
  if (TRY(free_rdma_name(rdma, elsewhere, name, warnings))) return rename_rdma_device(rdma, device.index, name);
  return Error{
      fmt::format("RDMA device `{}` returned as `{}`: a device of another container has its name", name, device.name),
      EEXIST, "run `rdma-hook recover` when that container is gone"};
}

Result<bool> free_rdma_name(Netlink& rdma, Netlink* elsewhere, const std::string& name,
                            std::vector<std::string>& warnings) {
  for (Netlink* const place : {&rdma, elsewhere}) {
    const auto other = place ? TRY(find_rdma_device(*place, name)) : std::nullopt;
    if (!other) continue;
    const std::string aside = fmt::format("rdma{}-{:x}", other->index, ::getpid());
    TRY_VOID(rename_rdma_device(*place, other->index, aside));
    warnings.push_back(fmt::format("another RDMA device took the name `{}`: renamed it to `{}`", name, aside));
    return true;
  }
  return false;
}

Result<void> create_rdma_link(Netlink& rdma, std::string_view name, std::string_view type, std::string_view netdev) {
  TRY_VOID(check_name(name, kLongestName, "an RDMA device"));
  TRY_VOID(check_name(netdev, kLongestNetdev, "a netdev"));
  auto made = rdma.change(rdma_link_request(name, type, netdev),
                          fmt::format("make {} device `{}` on `{}`", base::printable(type), name, netdev));
  if (made) return {};
  return explain_rdma_link(std::move(made).error(), type);
}

Result<void> delete_rdma_link(Netlink& rdma, const RdmaDevice& device) {
  auto removed = rdma.change(rdma_unlink_request(device.index),
                             fmt::format("remove RDMA device `{}`", base::printable(device.name)));
  if (removed || removed.error().code != EINVAL) return removed;
  // The kernel also returns EINVAL if no device has the index any more. A missing device is no error.
  const auto devices = TRY(rdma_devices(rdma));
  const auto is_it = [&](const RdmaDevice& other) { return other.index == device.index; };
  if (std::ranges::none_of(devices, is_it)) return {};
  removed.error().hint = "remove only software devices (rxe, siw)";
  return removed;
}

std::optional<NewNode> find_uverbs(int sysfs, const std::string& hca, std::uint64_t node_guid) {
  const auto verbs = base::Directory::open(sysfs, "class/infiniband_verbs");
  if (!verbs) return std::nullopt;
  for (const std::string& name : verbs->list()) {
    const auto number = fabric::uverbs_number(name);
    const auto device = number ? verbs->open_at(name.c_str()) : std::nullopt;
    if (!device || device->read_text("ibdev") != hca) continue;
    const auto dev = device->read_text("dev");
    // The GUID is read after the device number. If another device took the name in between, the GUID differs.
    const auto all = node_guid != 0 ? base::Directory::open(sysfs, "class/infiniband") : std::nullopt;
    const auto guid = all ? all->read_text((hca + "/node_guid").c_str()) : std::nullopt;
    if (node_guid != 0 && parse_node_guid(guid.value_or("")) != node_guid) return std::nullopt;
    if (dev) return NewNode{hca, *number, *dev};
  }
  return std::nullopt;
}

}  // namespace hook
