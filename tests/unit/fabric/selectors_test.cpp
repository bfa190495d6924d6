#include "fabric/selectors.hpp"

#include <gtest/gtest.h>

#include "support/inventories.hpp"

namespace {

using fabric::parse_selectors;

fabric::Hca device() {
  fabric::Hca hca =
      test_support::hca("mlx5_1", 1, {test_support::infiniband_port(1), test_support::infiniband_port(2)});
  hca.pci = "0000:1a:00.0";
  hca.node_guid = "a088:c203:0010:f0a0";
  return hca;
}

TEST(Selectors, TakeWhatTheyName) {
  struct Row {
    const char* list;
    unsigned port;
    bool selected;
  };
  const std::vector<Row> rows = {
      {"mlx5_1", 1, true},
      {"mlx5_1", 2, true},
      {"mlx5_1:1", 1, true},
      {"mlx5_1:1", 2, false},
      {"mlx5", 1, false},
      {"mlx5_10", 1, false},
      {"mlx5_*", 2, true},
      {"*:2", 1, false},
      {"*:2", 2, true},
      {"mlx4_0, mlx5_1", 1, true},
      {"^mlx5_1", 1, false},
      {"^mlx5_1:2", 1, true},
      {"^mlx5_1:2", 2, false},
      {"^mlx4_0,mlx5_9", 1, true},
      {"netdev:rail1", 1, true},
      {"netdev:bond0", 1, true},
      {"netdev:rail*", 1, true},
      {"netdev:eth0", 1, false},
      {"^netdev:bond*", 1, false},
      {"pci:0000:1a:00.0", 1, true},
      {"pci:1a:00.0", 1, true},
      {"pci:0000:1a:*", 1, true},
      {"pci:1b:00.0", 1, false},
      {"guid:a088:c203:0010:f0a0", 1, true},
      {"guid:A088C2030010F0A0", 1, true},
      {"guid:0xa088c2030010f0a0", 1, true},
      {"guid:a088c203*", 1, true},
      {"guid:a088c2030010f0a1", 1, false},
  };
  const fabric::Hca hca = device();
  for (const Row& row : rows) {
    SCOPED_TRACE(row.list);
    const auto list = parse_selectors(row.list);
    ASSERT_TRUE(list) << list.error().message;
    EXPECT_EQ(list->text, row.list);
    EXPECT_EQ(selects(*list, hca, hca.ports[row.port - 1], {"rail1", "bond0"}), row.selected);
  }
}

TEST(Selectors, SoftwareDevicesHaveNoPciAddress) {
  fabric::Hca hca = device();
  hca.pci.reset();
  EXPECT_FALSE(selects(*parse_selectors("pci:*"), hca, hca.ports[0], {}));
}

TEST(Selectors, ErrorsNameTheEntry) {
  struct Row {
    const char* list;
    const char* message;
  };
  const std::vector<Row> rows = {
      {"", "`` names nothing"},
      {"^", "`` names nothing"},
      {"mlx5_0,", "`` names nothing"},
      {",mlx5_0", "`` names nothing"},
      {":1", "`:1` names nothing"},
      {"netdev:", "`netdev:` names nothing"},
      {"guid:", "`guid:` names nothing"},
      {"guid:zz", "`guid:zz` names nothing"},
      {"=mlx5_0", "`=mlx5_0`: names are exact here, leave out the `=`"},
      {"^=mlx5_0", "`^=mlx5_0`: names are exact here, leave out the `=`"},
      {"mlx5_0:x", "`mlx5_0:x`: expected NAME:PORT with a port from 1, netdev:NAME, pci:ADDRESS or guid:GUID"},
      {"mlx5_0:0", "`mlx5_0:0`: expected NAME:PORT with a port from 1, netdev:NAME, pci:ADDRESS or guid:GUID"},
      {"mlx5_0:", "`mlx5_0:`: expected NAME:PORT with a port from 1, netdev:NAME, pci:ADDRESS or guid:GUID"},
      {"a\x1b:x", "`a?:x`: expected NAME:PORT with a port from 1, netdev:NAME, pci:ADDRESS or guid:GUID"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.list);
    const auto list = parse_selectors(row.list);
    ASSERT_FALSE(list);
    EXPECT_EQ(list.error().message, row.message);
  }
}

}  // namespace
