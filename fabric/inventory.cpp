#include "fabric/inventory.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "base/text.hpp"

namespace fabric {

bool GidEntry::is_v2() const {
  const auto* text = type ? std::get_if<std::string>(&*type) : nullptr;
  return text && *text == "RoCE v2";  // drivers/infiniband/core/cache.c, gid_type_str
}

bool GidEntry::is_v1() const {
  return type && !std::holds_alternative<Unreadable>(*type) && !is_v2();
}

bool Port::is_active() const {
  // The text is "4: ACTIVE". The number is part of the ABI of verbs; the word is only for people.
  return value_or(state, std::string()).starts_with("4:");
}

bool Port::is_infiniband() const {
  return value_or(link_layer, std::string()) == "InfiniBand";
}

bool Port::is_ethernet() const {
  return value_or(link_layer, std::string()) == "Ethernet";
}

double Port::rate_gbps() const {
  const auto* text = std::get_if<std::string>(&rate);
  // A port without a readable rate must not win a comparison of rates.
  if (!text) return 0;
  return parse_decimal(std::string_view(*text).substr(0, text->find(' '))).value_or(0);
}

PortObstacle Port::obstacle() const {
  if (!is_active()) return PortObstacle::kNotActive;
  return is_infiniband() || is_ethernet() ? PortObstacle::kNone : PortObstacle::kLinkLayer;
}

std::optional<Address> Port::subnet_prefix() const {
  constexpr unsigned kPrefixBits = 64;
  if (!is_infiniband()) return std::nullopt;
  if (!gids.empty() && gids.front().index == 0) return masked(gids.front().gid, kPrefixBits);
  return subnet;
}

std::optional<unsigned> Port::pkey_at(std::size_t index) const {
  constexpr std::string_view kPrefix = "0x";
  if (!pkeys || index >= pkeys->size() || !(*pkeys)[index].starts_with(kPrefix)) return std::nullopt;
  return parse_number<unsigned>(std::string_view((*pkeys)[index]).substr(kPrefix.size()), 16);
}

bool Port::has_subnet_manager() const {
  // The kernel prints "0x0" if there is none.
  return sm_lid && sm_lid->find_first_not_of("0x") != std::string::npos;
}

LinkLayers link_layers_of(const std::vector<const Port*>& ports) {
  LinkLayers layers;
  std::size_t infiniband = 0;
  double highest[2] = {};
  for (const Port* port : ports) {
    // The ports have no obstacle, so a port that is not InfiniBand is Ethernet.
    const bool is_infiniband = port->is_infiniband();
    double& total = is_infiniband ? layers.infiniband : layers.ethernet;
    double& most = highest[is_infiniband ? 1 : 0];
    const double rate = port->rate_gbps();
    if (rate > most) total = 0;
    if (rate >= most) total += most = rate;
    infiniband += is_infiniband ? 1 : 0;
  }
  layers.mixed = infiniband != 0 && infiniband != ports.size();
  return layers;
}

bool Hca::has_zero_guid() const {
  return !node_guid.empty() && node_guid.find_first_not_of("0:") == std::string::npos;
}

bool Hca::is_efa() const {
  // Vendor 0x1d0f is Amazon. The vendor decides if a snapshot does not name the driver.
  return driver == "efa" || (vendor == "0x1d0f" && !driver);
}

bool Hca::is_software() const {
  // If the snapshot does not name the driver, a device without a PCI function counts as software.
  return driver == "rdma_rxe" || driver == "siw" || (!driver && !pci);
}

bool Hca::is_iwarp() const {
  return node_type.starts_with("4:");  // "4: RNIC"; the number is an ABI
}

std::optional<InterfaceAddress> parse_interface_address(std::string_view text) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  const auto address = parse_address(text.substr(0, slash));
  if (!address) return std::nullopt;
  return InterfaceAddress{*address, parse_number<unsigned>(text.substr(std::min(slash + 1, text.size()))),
                          std::string(text)};
}

const std::string& Netdev::socket_name() const {
  const auto is_ipv4 = [](const InterfaceAddress& own) { return own.address.is_ipv4(); };
  const auto first = std::ranges::find_if(addresses, is_ipv4);
  return first == addresses.end() || first->label.empty() ? name : first->label;
}

bool Netdev::is_up() const {
  if (const int* value = std::get_if<int>(&carrier)) return *value != 0;
  // Reading carrier returns EINVAL while the netdev is administratively down (net/core/net-sysfs.c, Linux 6.12).
  return std::get<Unreadable>(carrier).code != EINVAL;
}

std::optional<unsigned> uverbs_number(std::string_view path_or_name) {
  constexpr std::string_view kDirectory = "/dev/infiniband/";
  constexpr std::string_view kPrefix = "uverbs";
  // At most nine digits are accepted, because they always fit into 32 bits.
  constexpr std::size_t kMostDigits = 9;
  if (path_or_name.starts_with(kDirectory)) path_or_name.remove_prefix(kDirectory.size());
  if (!path_or_name.starts_with(kPrefix) || path_or_name.size() > kPrefix.size() + kMostDigits) return std::nullopt;
  return parse_number<unsigned>(path_or_name.substr(kPrefix.size()));
}

std::optional<unsigned> uverbs_of_number(std::int64_t major, std::int64_t minor) {
  if (major != kUverbsMajor || minor < kUverbsFirstMinor || minor >= kUverbsFirstMinor + kUverbsFixed)
    return std::nullopt;
  return static_cast<unsigned>(minor - kUverbsFirstMinor);
}

bool Route::is_default() const {
  constexpr unsigned kMainTable = 254;  // RT_TABLE_MAIN, linux/rtnetlink.h
  // netlink.cpp writes a default route as "0.0.0.0/0" or "::/0"; a snapshot may have "default", the word of
  // ip-route(8).
  return table == kMainTable && (dst == "default" || dst == "0.0.0.0/0" || dst == "::/0");
}

Hca* find_hca(Inventory& inventory, std::string_view name) {
  const auto found = std::ranges::find(inventory.hcas, name, &Hca::name);
  return found == inventory.hcas.end() ? nullptr : &*found;
}

const Hca* find_hca(const Inventory& inventory, std::string_view name) {
  // Reuses the search of the function above. The cast is safe, because the result is const again.
  return find_hca(const_cast<Inventory&>(inventory), name);
}

const Netdev* find_netdev(const Inventory& inventory, std::string_view name) {
  for (const Netdev& netdev : inventory.netdevs)
    if (netdev.is_here() && netdev.name == name) return &netdev;
  return nullptr;
}

const Netdev* default_route_netdev(const Inventory& inventory) {
  if (!inventory.routes) return nullptr;
  const Route* chosen = nullptr;
  for (const Route& route : *inventory.routes) {
    // The first IPv4 default route wins. An IPv6 default route is used only if there is no IPv4 default route.
    const bool is_better = !chosen || (chosen->dst == "::/0" && route.dst != "::/0");
    if (route.is_default() && is_better) chosen = &route;
  }
  return chosen ? find_netdev(inventory, chosen->dev) : nullptr;
}

std::optional<std::string> gpu_uuid(std::string_view text) {
  constexpr std::string_view kForm = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  if (text.size() != kForm.size()) return std::nullopt;
  std::string uuid(text);
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (kForm[i] == 'x') uuid[i] = static_cast<char>(std::tolower(static_cast<unsigned char>(uuid[i])));
    const bool is_hex = std::isxdigit(static_cast<unsigned char>(uuid[i])) != 0;
    if (kForm[i] == 'x' ? !is_hex : uuid[i] != kForm[i]) return std::nullopt;
  }
  return uuid;
}

std::string_view device_directory(std::string_view link, std::string_view class_name) {
  if (device_in_link(link) == kNoDevice) return {};
  const std::size_t name = link.rfind('/');
  const std::string_view parent = link.substr(0, name == std::string_view::npos ? 0 : name);
  const bool is_of_class = base::last_component(parent) == class_name && parent.size() > class_name.size();
  const std::string_view device = is_of_class ? parent.substr(0, parent.size() - class_name.size() - 1) : "";
  // Another text can lead to the same directory. So only the kernel's own form, and the absolute one, are compared.
  for (const std::string_view devices : {std::string_view("../../devices/"), std::string_view("/sys/devices/")}) {
    if (!device.starts_with(devices)) continue;
    const bool is_resolved = device.find("/.", devices.size() - 1) == std::string_view::npos;
    return is_resolved ? device.substr(devices.size()) : std::string_view();
  }
  return {};
}

std::string_view device_in_link(std::string_view link) {
  // Removes the last two components, which are the class and the HCA: "infiniband/mlx5_0".
  for (int part = 0; part < 2; ++part) {
    const std::size_t last = base::last_component(link).size();
    if (last < link.size()) link.remove_suffix(last + 1);
  }
  return base::last_component(link);
}

}  // namespace fabric
