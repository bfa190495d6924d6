#include "support/inventories.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

namespace test_support {
namespace {

fabric::GidEntry gid(unsigned index, std::string_view text, base::Attr<std::string> type) {
  return {index, address(text), std::move(type), std::nullopt};
}

}  // namespace

fabric::Address address(std::string_view text) {
  const auto parsed = fabric::parse_address(text);
  if (!parsed) {
    std::fprintf(stderr, "test set-up: `%s` is no address\n", std::string(text).c_str());
    std::abort();
  }
  return *parsed;
}

fabric::GidEntry v1(unsigned index, std::string_view text) {
  return gid(index, text, "IB/RoCE v1");
}

fabric::GidEntry v2(unsigned index, std::string_view text) {
  return gid(index, text, "RoCE v2");
}

fabric::GidEntry unreadable(unsigned index, std::string_view text, int code) {
  return gid(index, text, base::Unreadable{code});
}

fabric::Port ethernet_port(std::vector<fabric::GidEntry> gids, unsigned number) {
  fabric::Port port;
  port.number = number;
  port.state = "4: ACTIVE";
  port.phys_state = "5: LinkUp";
  port.link_layer = "Ethernet";
  port.rate = "400 Gb/sec (4X NDR)";
  port.gid_tbl_len = 256;
  port.gids = std::move(gids);
  return port;
}

fabric::Port infiniband_port(unsigned number) {
  fabric::Port port = ethernet_port({}, number);
  port.link_layer = "InfiniBand";
  port.lid = "0x1a";
  port.sm_lid = "0x1";
  port.gids = {{0, address("fe80::a288:c203:10:f0a0"), base::Attr<std::string>("IB/RoCE v1"), std::nullopt}};
  return port;
}

fabric::Hca hca(std::string name, unsigned uverbs, std::vector<fabric::Port> ports) {
  fabric::Hca device;
  device.name = std::move(name);
  device.node_guid = fmt::format("a088:c203:0010:{:04x}", uverbs);
  device.node_type = "1: CA";
  device.pci = fmt::format("0000:{:02x}:00.0", 0x10 + uverbs);
  device.numa_node = 0;
  device.driver = "mlx5_core";
  device.uverbs = uverbs;
  device.accessible = true;
  device.ports = std::move(ports);
  return device;
}

fabric::Netdev netdev(std::string name, std::initializer_list<std::string_view> addresses) {
  fabric::Netdev device;
  device.name = std::move(name);
  device.carrier = 1;
  device.operstate = "up";
  device.mtu = 9000;
  device.type = 1;
  device.in_this_netns = true;
  for (const std::string_view text : addresses) {
    const std::size_t slash = text.find('/');
    device.addresses.push_back({address(text.substr(0, slash)),
                                slash == std::string_view::npos ? std::nullopt : std::optional<unsigned>(24),
                                std::string(text)});
  }
  return device;
}

std::vector<fabric::GidEntry> usual_gids(std::string_view link_local, std::string_view ipv4) {
  return {v1(0, link_local), v2(1, link_local), v1(2, ipv4), v2(3, ipv4)};
}

fabric::Inventory rails(unsigned count, unsigned slots) {
  fabric::Inventory node;
  node.rdma_cm = true;
  node.netdevs.push_back(netdev("eth0", {"192.168.0.7/24"}));
  for (unsigned i = 0; i < count; ++i) {
    const std::string link_local = fmt::format("fe80::a288:c2ff:fe10:{:x}", i + 1);
    const std::string ipv4 = fmt::format("10.1.{}.1", i);
    node.hcas.push_back(hca(fmt::format("mlx5_{}", i), i, {ethernet_port(usual_gids(link_local, ipv4))}));
    node.hcas.back().ports[0].gid_tbl_len = slots;
    node.netdevs.push_back(netdev(fmt::format("rail{}", i), {ipv4 + "/24"}));
    node.netdevs.back().addresses.push_back({address(link_local), 64, link_local + "/64"});
    node.netdevs.back().pci = node.hcas.back().pci;
  }
  return node;
}

void add_vfs(fabric::Inventory& node, unsigned count) {
  const auto first = static_cast<unsigned>(node.hcas.size());
  for (unsigned i = 0; i < count; ++i) {
    fabric::Hca vf = hca(fmt::format("mlx5_{}", first + i), first + i, {ethernet_port({})});
    vf.ports[0].gid_tbl_len = 1;
    vf.pci = fmt::format("0000:{:02x}:{:02x}.{}", 0xc0 + i / 256, i / 8 % 32, i % 8);
    vf.physfn = node.hcas.at(0).pci;
    node.hcas.push_back(std::move(vf));
  }
}

}  // namespace test_support
