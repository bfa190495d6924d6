// What a pod has already is known to its next container under the node's names. HCAs that moved as RDMA devices: the
// VM's network-exclusive-rdma.
#include "hook/grant/hcas.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/inventory.hpp"
#include "hook/rails/record/store.hpp"
#include "support/temp_dir.hpp"

namespace {

using fabric::Inventory;
using hook::NetworkRecord;
using hook::Owner;
using hook::RailKind;
using test_support::TempDir;

hook::NetnsIdentity my_netns() {
  return hook::identify_netns("/proc/self/ns/net").value();
}

Inventory node_with(const std::string& hca, std::optional<std::string> netdev) {
  Inventory inventory;
  fabric::Port port;
  port.number = 1;
  port.netdev = std::move(netdev);
  fabric::Hca one;
  one.name = hca;
  one.pci = "0000:1a:00.0";
  one.ports.push_back(port);
  inventory.hcas.push_back(one);
  return inventory;
}

class OwnHcas : public testing::Test {
 protected:
  void write(const hook::NetnsIdentity& netns, RailKind kind = RailKind::kMove) const {
    NetworkRecord record{owner_.key, netns, 1, {}};
    hook::RailRecord rail;
    rail.rail.hca = "mlx5_0";
    rail.rail.name = "net1";
    rail.rail.kind = kind;
    rail.network = "rails";
    rail.host.name = "eth7";
    rail.host.mac = {2, 0, 0, 0, 0, 0xab};
    for (const char* own : {"10.1.0.7", "fe80::7"})
      rail.host.records.push_back(hook::address_record(7, *fabric::parse_address(own), 24));
    record.rails.push_back(rail);
    const auto store = hook::NetworkRecordStore::open(ledger_.path());
    ASSERT_TRUE(store && store->write(record));
  }
  // "HCA PORT'S-NETDEV ..." and the error.
  std::string after(Inventory inventory) const {
    const auto added = hook::add_own_hcas(ledger_.path(), owner_, "", inventory);
    if (!added) return added.error().message;
    std::string text;
    for (const fabric::Hca& hca : inventory.hcas)
      text += hca.name + " " + hca.ports.at(0).netdev.value_or("-");
    for (const fabric::Netdev& netdev : inventory.netdevs) {
      text += " " + netdev.name + " " + netdev.mac.value_or("?") + (netdev.is_here() ? " here" : "");
      for (const fabric::InterfaceAddress& own : netdev.addresses)
        text += fmt::format(" {}/{}", to_string(own.address), own.prefix.value_or(0));
    }
    return text;
  }

  TempDir ledger_;
  Owner owner_ = hook::netns_owner(my_netns());
};

TEST_F(OwnHcas, ANetdevThatMovedHasItsNameOnTheNode) {
  EXPECT_EQ(after(node_with("mlx5_0", std::nullopt)), "mlx5_0 -") << "no record";
  write(my_netns());
  EXPECT_EQ(after(node_with("mlx5_0", std::nullopt)), "mlx5_0 eth7 eth7 02:00:00:00:00:ab 10.1.0.7/24");
  EXPECT_EQ(after(node_with("mlx5_0", "net1")), "mlx5_0 eth7 eth7 02:00:00:00:00:ab 10.1.0.7/24") << "read inside";
  EXPECT_EQ(after(node_with("mlx5_0", "eth8")), "mlx5_0 eth8") << "it came back, and is another one's";
}

TEST_F(OwnHcas, OtherGrantsSayNothing) {
  write(my_netns(), RailKind::kMacvlan);
  EXPECT_EQ(after(node_with("mlx5_0", std::nullopt)), "mlx5_0 -") << "its netdev never left";
  auto other = my_netns();
  other.ino ^= 1;
  write(other);
  EXPECT_EQ(after(node_with("mlx5_0", std::nullopt)), "mlx5_0 -") << "a namespace that is gone";
}

TEST_F(OwnHcas, ARecordThatCannotBeSeenIsNoMissingOne) {
  ASSERT_EQ(symlink("network", (ledger_ / "network").c_str()), 0);
  EXPECT_EQ(after(node_with("mlx5_0", std::nullopt)), "cannot look at `" + ledger_.path() + "/network/" + owner_.key +
                                                          ".json`: Too many levels of symbolic links");
}

// An RDMA device that is not in the namespace either (this one has none by that name) stays unknown.
TEST_F(OwnHcas, WhatIsNowhereStaysUnknown) {
  write(my_netns());
  EXPECT_EQ(after(node_with("test_hca_9", "eth0")), "test_hca_9 eth0");
}

}  // namespace
