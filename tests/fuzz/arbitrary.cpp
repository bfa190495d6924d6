#include "arbitrary.hpp"

#include <algorithm>
#include <cerrno>

#include "base/text.hpp"

namespace fuzz {
namespace {

using namespace fabric;
using Text = const char*;

constexpr std::size_t kMaxHcas = 6;
constexpr std::size_t kMaxPorts = 3;
constexpr std::size_t kMaxGids = 8;
constexpr std::size_t kMaxNetdevs = 6;
constexpr std::size_t kMaxSettings = 4;

constexpr Text kAddresses[] = {"10.0.0.1",    "10.0.0.2",    "10.0.1.1",  "10.1.0.1", "192.168.0.1",
                               "169.254.1.1", "127.0.0.1",   "fe80::1",   "fe80::2",  "fd00::1",
                               "fd00::2",     "2001:db8::1", "224.0.0.1", "::1",      "fe80:0:0:1::1"};
constexpr Text kHcas[] = {"mlx5_0", "mlx5_1", "mlx5_10", "mlx5_2", "mlx5_bond_0", "rxe0", "efa_0", "x;$(y)'z\"\n"};
constexpr Text kNetdevs[] = {"eth0", "eth1", "net1", "net2", "bond0", "lo", "a b"};
constexpr Text kStates[] = {"4: ACTIVE", "1: DOWN", "4: ACTIVE", ""};
constexpr Text kLinkLayers[] = {"Ethernet", "InfiniBand", "Ethernet", "Unspecified"};
constexpr Text kRates[] = {"400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)", "2.5 Gb/sec (1X SDR)", "", "99999999999 x"};
constexpr Text kTypes[] = {"RoCE v2", "RoCE v2", "IB/RoCE v1", "RoCE v1", "iWARP"};
constexpr Text kDrivers[] = {"mlx5_core", "efa", "rdma_rxe", "bnxt_en"};
constexpr Text kFunctions[] = {"0000:0c:00.0", "0000:0c:00.1", "0000:0c:00.2", "0000:0c:00.3", "0000:1a:00.0", "x"};
constexpr Text kVariables[] = {"NCCL_IB_HCA",          "NCCL_IB_GID_INDEX",        "NCCL_IB_ADDR_FAMILY",
                               "NCCL_IB_ADDR_RANGE",   "NCCL_IB_ROCE_VERSION_NUM", "NCCL_VERSION",
                               "NCCL_SOCKET_IFNAME",   "UCX_NET_DEVICES",          "UCX_IB_GID_INDEX",
                               "NVSHMEM_IB_GID_INDEX", "NVSHMEM_HCA_LIST"};
constexpr Text kValues[] = {
    "3",           "-1",       "0",           "auto", "",          "mlx5",     "=mlx5_0:1", "^mlx5_1", "^=mlx5_0",
    "mlx5_1,rxe0", "AF_INET",  "AF_INET6",    "1",    "2",         "2.21.5-1", "2.20.3",    "2.25.1",  "2.30.7",
    "10.0.0.0/8",  "fd00::/8", "10.0.0.1/-1", "eth0", "mlx5_0:1,", "0x3",      "4294967295"};
constexpr Text kSelectors[] = {"mlx5_0", "^mlx5_1", "*", "mlx5_*:1", "netdev:eth0", "pci:0c:00.*", "guid:0*", "none"};
constexpr Text kCidrs[] = {"10.0.0.0/24", "10.0.0.0/8", "0.0.0.0/0", "fd00::/8", "::/0", "10.0.0.1"};

template <std::size_t N>
std::string pick(FuzzedDataProvider& data, const Text (&choices)[N]) {
  return data.ConsumeIntegralInRange(0, 15) == 0 ? arbitrary_text(data) : data.PickValueInArray(choices);
}

template <std::size_t N>
Attr<std::string> pick_attribute(FuzzedDataProvider& data, const Text (&choices)[N]) {
  if (data.ConsumeIntegralInRange(0, 7) == 0) return Unreadable{data.PickValueInArray({EINVAL, ENODEV, ENOENT, EIO})};
  return pick(data, choices);
}

fabric::Hca arbitrary_hca(FuzzedDataProvider& data) {
  fabric::Hca hca;
  hca.name = pick(data, kHcas);
  hca.node_guid = "0c42:a103:0000:0001";
  hca.node_type = "1: CA";
  if (data.ConsumeBool()) hca.pci = pick(data, kFunctions);
  if (data.ConsumeBool()) hca.driver = pick(data, kDrivers);
  if (data.ConsumeBool()) hca.physfn = pick(data, kFunctions);
  if (data.ConsumeBool()) hca.vendor = data.PickValueInArray({"0x15b3", "0x1d0f"});
  if (data.ConsumeIntegralInRange(0, 7) != 0) hca.uverbs = data.ConsumeIntegralInRange(0U, 40U);
  if (data.ConsumeIntegralInRange(0, 3) == 0) {
    hca.accessible = data.ConsumeBool();
    if (!*hca.accessible) hca.access_error = data.PickValueInArray({EPERM, EACCES, ENOENT, ENXIO});
    if (*hca.accessible) hca.abi_version = data.ConsumeIntegralInRange(0U, 8U);
    hca.provider = {"/usr/lib64/libibverbs/libmlx5-rdmav34.so", data.ConsumeIntegralInRange(0U, 2U),
                    data.ConsumeIntegralInRange(2U, 9U)};
  }
  if (data.ConsumeBool()) hca.numa_node = data.ConsumeIntegralInRange(-1, 3);
  const auto ports = data.ConsumeIntegralInRange<std::size_t>(data.ConsumeBool() ? 1 : 0, kMaxPorts);
  for (unsigned number = 1; number <= ports; ++number)
    hca.ports.push_back(arbitrary_port(data, number));
  return hca;
}

fabric::Netdev arbitrary_netdev(FuzzedDataProvider& data) {
  fabric::Netdev netdev;
  netdev.name = pick(data, kNetdevs);
  netdev.carrier = 1;
  if (data.ConsumeIntegralInRange(0, 3) == 0)
    netdev.carrier = data.ConsumeBool() ? Attr<int>(0) : Attr<int>(Unreadable{EINVAL});
  if (data.ConsumeIntegralInRange(0, 3) == 0) netdev.in_this_netns = data.ConsumeBool();
  if (data.ConsumeIntegralInRange(0, 3) == 0) netdev.master = pick(data, kNetdevs);
  if (data.ConsumeBool()) netdev.pci = pick(data, kFunctions);
  if (data.ConsumeBool()) netdev.type = data.PickValueInArray({1, 32, 772});
  if (data.ConsumeBool()) netdev.dev_port = data.ConsumeIntegralInRange(-1, 2);
  for (auto left = data.ConsumeIntegralInRange(0, 3); left > 0; --left) {
    const Address address = arbitrary_address(data);
    netdev.addresses.push_back({address, std::nullopt, to_string(address)});
  }
  return netdev;
}

}  // namespace

Address arbitrary_address(FuzzedDataProvider& data) {
  if (data.ConsumeIntegralInRange(0, 15) != 0) return fabric::parse_address(data.PickValueInArray(kAddresses)).value();
  Address address;
  const auto bytes = data.ConsumeBytes<std::uint8_t>(address.bytes.size());
  std::copy(bytes.begin(), bytes.end(), address.bytes.begin());
  return address;
}

std::string arbitrary_text(FuzzedDataProvider& data) {
  return data.ConsumeRandomLengthString(24);
}

std::vector<fabric::GidEntry> arbitrary_gids(FuzzedDataProvider& data) {
  std::vector<fabric::GidEntry> gids;
  unsigned index = 0;
  for (auto left = data.ConsumeIntegralInRange<std::size_t>(0, kMaxGids); left > 0; --left) {
    index += data.ConsumeIntegralInRange(0, 3) == 0 ? data.ConsumeIntegralInRange(0U, 300U) : 0U;
    fabric::GidEntry entry;
    entry.index = index++;
    entry.gid = arbitrary_address(data);
    if (data.ConsumeIntegralInRange(0, 15) != 0) entry.type = pick_attribute(data, kTypes);
    if (data.ConsumeBool()) entry.ndev = pick_attribute(data, kNetdevs);
    gids.push_back(std::move(entry));
  }
  return gids;
}

fabric::Port arbitrary_port(FuzzedDataProvider& data, unsigned number) {
  fabric::Port port;
  port.number = number;
  port.state = pick_attribute(data, kStates);
  port.phys_state = "5: LinkUp";
  port.link_layer = pick_attribute(data, kLinkLayers);
  port.rate = pick_attribute(data, kRates);
  if (data.ConsumeBool()) port.gid_tbl_len = data.ConsumeIntegralInRange(0U, 1024U);
  port.gids = arbitrary_gids(data);
  return port;
}

fabric::Inventory arbitrary_inventory(FuzzedDataProvider& data) {
  fabric::Inventory inventory;
  for (auto left = data.ConsumeIntegralInRange<std::size_t>(0, kMaxNetdevs); left > 0; --left)
    inventory.netdevs.push_back(arbitrary_netdev(data));
  for (auto left = data.ConsumeIntegralInRange<std::size_t>(0, kMaxHcas); left > 0; --left) {
    fabric::Hca hca = arbitrary_hca(data);
    const bool known = std::any_of(inventory.hcas.begin(), inventory.hcas.end(),
                                   [&](const fabric::Hca& other) { return other.name == hca.name; });
    if (!known && !hca.name.empty()) inventory.hcas.push_back(std::move(hca));
  }
  if (data.ConsumeBool()) {
    inventory.routes.emplace();
    inventory.routes->push_back({data.ConsumeBool() ? "default" : "10.0.0.0/8", pick(data, kNetdevs), 254});
  }
  if (data.ConsumeBool()) inventory.rdma_cm = data.ConsumeBool();
  if (data.ConsumeBool()) inventory.gpus = {{{pick(data, kFunctions), 0, std::nullopt}}};
  if (data.ConsumeBool())
    inventory.limits = {data.ConsumeIntegral<std::uint64_t>(), data.ConsumeIntegral<std::uint64_t>(),
                        data.ConsumeIntegral<std::uint64_t>(), data.ConsumeIntegral<unsigned>(), data.ConsumeBool()};
  return inventory;
}

init::Settings arbitrary_settings(FuzzedDataProvider& data) {
  init::Settings settings;
  for (auto left = data.ConsumeIntegralInRange<std::size_t>(0, kMaxSettings); left > 0; --left)
    settings[pick(data, kVariables)] = {pick(data, kValues), data.ConsumeBool() ? "environment" : arbitrary_text(data)};
  return settings;
}

init::nccl::Version arbitrary_version(FuzzedDataProvider& data) {
  return {2, data.PickValueInArray({20U, 21U, 22U, 25U, 26U, 29U, 30U, 31U}), data.ConsumeIntegralInRange(0U, 7U)};
}

init::Policy arbitrary_policy(FuzzedDataProvider& data) {
  init::Policy policy;
  if (data.ConsumeIntegralInRange(0, 3) == 0)
    if (auto list = fabric::parse_selectors(pick(data, kSelectors))) policy.hcas = std::move(*list);
  if (data.ConsumeIntegralInRange(0, 3) == 0)
    if (const auto cidr = fabric::parse_cidr(pick(data, kCidrs))) policy.gids.cidrs.push_back(*cidr);
  if (data.ConsumeIntegralInRange(0, 3) == 0)
    policy.gids.family = data.ConsumeBool() ? fabric::Family::kIpv4 : fabric::Family::kIpv6;
  policy.gids.link_local = data.ConsumeIntegralInRange(0, 3) != 0;
  policy.gids.node_gids = data.ConsumeIntegralInRange(0, 3) != 0;
  if (data.ConsumeIntegralInRange(0, 3) == 0)
    policy.gids.node_addresses = {{{pick(data, kHcas), 1}, {arbitrary_address(data), arbitrary_address(data)}}};
  if (data.ConsumeBool()) {
    policy.exports.clear();
    for (const std::string_view name : init::export_names())
      if (data.ConsumeBool()) policy.exports.emplace_back(name);
  }
  if (data.ConsumeBool()) policy.nccl_version = arbitrary_version(data);
  policy.require = data.ConsumeIntegralInRange<std::size_t>(0, 2);
  policy.strict = data.ConsumeBool();
  policy.override_wrong = data.ConsumeBool();
  return policy;
}

}  // namespace fuzz
