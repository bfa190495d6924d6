#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"

#include <gtest/gtest.h>

namespace {

using hook::Config;
using hook::Mode;
using hook::parse_config;

std::string said(const hook::ParsedConfig& parsed) {
  std::string text;
  for (const auto& problem : parsed.problems)
    text += to_string(problem) + "\n";
  return text;
}

TEST(HookConfig, EveryMember) {
  const auto parsed = parse_config({{"c.json", R"({
    "$schema": "x", "$comment": ["y"],
    "pools": [{"$comment": "z", "name": "roce",
               "selectors": {"vendors": ["0x15B3"], "deviceIDs": ["101E", "1021"], "drivers": ["mlx5_core"],
                             "ifNames": ["ens*"], "linkTypes": ["ether"]},
               "modes": ["shared", "shared-multi", "host", "shared"], "limits": {"shared-multi": 63, "hca": 2, "hca_objects": 4096,
                                                                          "hca_handles": 2147483646},
               "rdmaHcaMax": 100, "network": "rails", "resource": "rdma-init.io/rails"}],
    "networks": {"$comment": "n", "rails": {"mode": "shared", "child": "ipvlan", "pool": "roce"}, "bare": {}},
    "rails": ["mlx5_1", "mlx5_0"],
    "nodes": {"rdma_cm": false, "mode": "0660", "uid": 1000, "gid": 4294967294},
    "device_plugin": {"cdi": true, "poll_seconds": 60},
    "memlock": "64MiB", "ipc_lock": false, "sysfs_view": false, "netdev_names": "rdma%d",
    "annotations_may_request": ["team-a", "train-*"], "env_may_request": true,
    "trusted_annotations": ["rdma-init.io"], "default_devices": "rail:0,gpu",
    "namespacesInclude": ["a*"], "namespacesExclude": ["ab"]})"}});
  ASSERT_EQ(said(parsed), "");
  Config expected;
  expected.pools = {{"roce",
                     {{"15b3"}, {"101e", "1021"}, {"mlx5_core"}, {"ens*"}, {"ether"}},
                     {Mode::kShared, Mode::kSharedMulti, Mode::kHca},
                     {{Mode::kShared, 100}, {Mode::kSharedMulti, 63}, {Mode::kHca, 2}},
                     "rails",
                     "rdma-init.io/rails",
                     {.handles = 2147483646, .objects = 4096}}};
  expected.networks = {{"rails", {"rails", Mode::kShared, "ipvlan", "roce"}},
                       {"bare", {"bare", std::nullopt, "macvlan", std::nullopt}}};
  expected.rails = {"mlx5_1", "mlx5_0"};
  expected.nodes = {.rdma_cm = false, .umad = false, .issm = false, .mode = 0660, .uid = 1000, .gid = 4294967294};
  expected.device_plugin = {.cdi = true, .poll_seconds = 60};
  expected.memlock = std::uint64_t{64} << 20;
  expected.ipc_lock = false;
  expected.sysfs_view = false;
  expected.netdev_names = "rdma%d";
  expected.annotations_may_request = {"team-a", "train-*"};
  expected.env_may_request = true;
  expected.trusted_annotations = {"rdma-init.io"};
  expected.default_devices = "rail:0,gpu";
  expected.namespaces_include = {"a*"};
  expected.namespaces_exclude = {"ab"};
  EXPECT_EQ(parsed.config, expected);
}

TEST(HookConfig, NothingSaidIsTheDefault) {
  EXPECT_EQ(parse_config({}).config, Config());
  EXPECT_EQ(parse_config({{"c", "{}"}}).config, Config());
  const auto pool = parse_config({{"c", R"({"pools": [{"name": "p"}]})"}});
  ASSERT_EQ(said(pool), "");
  EXPECT_EQ(pool.config.pools.at(0).modes,
            (std::vector{Mode::kHca, Mode::kExclusive, Mode::kShared, Mode::kSharedMulti}));
}

TEST(HookConfig, Memlock) {
  const auto memlock = [](const std::string& value) {
    const auto parsed = parse_config({{"c", "{\"memlock\": " + value + "}"}});
    EXPECT_TRUE(parsed.ok()) << said(parsed);
    return parsed.config.memlock;
  };
  EXPECT_EQ(memlock("null"), std::nullopt);
  EXPECT_EQ(memlock("\"unlimited\""), UINT64_MAX);
  EXPECT_EQ(memlock("1"), 1U);
  EXPECT_EQ(memlock("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(memlock("\"8 GiB\""), std::uint64_t{8} << 30);
  EXPECT_EQ(memlock("\"16777215TiB\""), std::uint64_t{16777215} << 40);
}

TEST(HookConfig, LaterFilesOverride) {
  const auto parsed = parse_config({
      {"config.json", R"({"pools": [{"name": "a"}, {"name": "b", "network": "n"}],
                          "networks": {"n": {"child": "ipvlan", "mode": "shared"}, "kept": {}},
                          "rails": ["mlx5_0"], "nodes": {"uid": 5, "gid": 6}, "memlock": null, "ipc_lock": false,
                          "annotations_may_request": ["x"]})"},
      {"10-a.json", R"({"pools": [{"name": "c", "network": "n"}], "networks": {"n": {"pool": "c", "mode": "exclusive"}},
                        "rails": [], "nodes": {"uid": 7}, "annotations_may_request": ["y"]})"},
      {"20-b.json", "{}"},
  });
  ASSERT_EQ(said(parsed), "");
  ASSERT_EQ(parsed.config.pools.size(), 1U);
  EXPECT_EQ(parsed.config.pools[0].name, "c");
  EXPECT_EQ(parsed.config.networks.at("n"), (hook::Network{"n", Mode::kExclusive, "macvlan", "c"}));
  EXPECT_TRUE(parsed.config.networks.contains("kept"));
  EXPECT_EQ(parsed.config.rails, std::vector<std::string>());
  EXPECT_EQ(parsed.config.nodes.uid, 7U);
  EXPECT_EQ(parsed.config.nodes.gid, 6U);
  EXPECT_EQ(parsed.config.memlock, std::nullopt);
  EXPECT_FALSE(parsed.config.ipc_lock);
  EXPECT_EQ(parsed.config.annotations_may_request, std::vector<std::string>{"y"});
}

TEST(HookConfig, NamesThatLeadNowhereAreToldWhereTheyStand) {
  const auto parsed = parse_config({{"a.json", "{\"networks\": {\"n\": {},\n\"m\": {\"pool\": \"q\"}}}"},
                                    {"b.json", "{\"pools\": [{\"name\": \"p\",\n\n\"network\": \"none\"}]}"}});
  EXPECT_EQ(said(parsed),
            "b.json:3: error: `pools[0].network`: there is no network `none`; add it to \"networks\", or correct the "
            "name\n"
            "a.json:2: error: `networks.m.pool`: there is no pool `q`; add it to \"pools\", or correct the name\n");
}

TEST(HookConfig, AllProblemsAreShownWithTheirLines) {
  const auto parsed = parse_config({{"c.json",
                                     "{\n\"poolz\": [],\n\"rails\": [\"ok\",\n\"a/b\",\n3],\n\"nodes\":\n{"
                                     "\"umad\": true,\n\"issm\": true}\n}"}});
  EXPECT_FALSE(parsed.ok());
  EXPECT_EQ(said(parsed),
            "c.json:2: error: `poolz`: unknown key; did you mean `pools`?\n"
            "c.json:4: error: `rails[1]`: `a/b` is no name of an HCA; write names as `rdma link` shows them, e.g. "
            "\"mlx5_0\"\n"
            "c.json:5: error: `rails[2]`: expected a text, this is a number; write it in quotes\n"
            "c.json:7: warning: `nodes.umad`: every container with an HCA can send management datagrams to the "
            "fabric; leave it out unless they run fabric tools such as ibstat or ibnetdiscover\n"
            "c.json:8: warning: `nodes.issm`: every container with an HCA can be a subnet manager of the fabric; leave "
            "it out unless a subnet manager runs in a container\n");
}

// What is not wrong, and yet not what the administrator will have meant.
TEST(HookConfig, Warnings) {
  struct Row {
    const char* text;
    std::string expected;
  };
  const std::string plugin =
      "c:1: warning: `pools[0].rdmaHcaMax`: limits shared only, and containers that name no mode get hca; write "
      "\"modes\": [\"shared\"] beside it\n";
  const std::string no_netdev =
      "c:1: warning: `pools[0].network`: containers that name no mode get hca, which has no netdev of a network; write "
      "the network's \"mode\", or begin the pool's \"modes\" with another\n";
  for (const Row& row : std::vector<Row>{
           {R"({"pools":[{"name":"p","rdmaHcaMax":4}]})", plugin},
           {R"({"pools":[{"name":"p","rdmaHcaMax":4,"limits":{"hca":4}}]})", ""},
           {R"({"pools":[{"name":"p","rdmaHcaMax":4,"modes":["shared"]}]})", ""},
           {R"({"pools":[{"name":"p","network":"n"}],"networks":{"n":{}}})", no_netdev},
           {R"({"pools":[{"name":"p","network":"n","modes":["shared"]}],"networks":{"n":{"mode":"shared"}}})", ""},
           {R"({"pools":[{"name":"p","network":"n","modes":["shared","hca"]}],"networks":{"n":{"mode":"hca"}}})",
            no_netdev},
           {R"({"pools":[{"name":"p","network":"n","modes":["shared","hca"]}],"networks":{"n":{}}})", ""},
           {R"({"pools":[{"name":"p","selectors":{"ifNames":["ens?f0","ens*f0"]}}]})",
            "c:1: warning: `pools[0].selectors.ifNames[0]`: only * is a wildcard: `ens?f0` is taken as it is; write * "
            "instead, or one text for each netdev\n"},
           {R"({"nodes":{"umad":false,"issm":false}})", ""},
       }) {
    SCOPED_TRACE(row.text);
    const auto parsed = parse_config({{"c", row.text}});
    EXPECT_TRUE(parsed.ok());
    EXPECT_EQ(said(parsed), row.expected);
  }
}

// A pool that allows no shared mode makes no child netdevs, whatever the network calls them.
TEST(HookConfig, ChildrenThatNobodyCanHaveAreNoError) {
  for (const char* text : {
           R"({"pools":[{"name":"p","network":"n","modes":["exclusive"],"selectors":{"linkTypes":["infiniband"]}}],
               "networks":{"n":{}}})",
           R"({"pools":[{"name":"p","network":"n","modes":["exclusive"],"selectors":{"linkTypes":["ether"]}}],
               "networks":{"n":{"child":"ipoib"}}})",
           R"({"pools":[{"name":"p","modes":["exclusive"],"selectors":{"linkTypes":["infiniband"]}}],
               "networks":{"n":{"pool":"p"}}})",
       }) {
    EXPECT_EQ(said(parse_config({{"c", text}})), "") << text;
  }
}

TEST(HookConfig, ALaterFileThatIsBrokenKeepsNoWarning) {
  EXPECT_EQ(
      said(parse_config({{"a", R"({"nodes":{"umad":true}})"}, {"b", R"({"nodes":{"umad":"no"}})"}})),
      "a:1: warning: `nodes.umad`: every container with an HCA can send management datagrams to the fabric; leave "
      "it out unless they run fabric tools such as ibstat or ibnetdiscover\n"
      "b:1: error: `nodes.umad`: expected true or false, this is a text; write true or false, without quotes\n");
}

TEST(HookConfig, WarnsAboutRdmaLimitsWhereOnlyExclusiveIsAllowed) {
  const auto parsed = parse_config({{"c", R"({"pools": [{"name": "p",
    "limits": {"hca_objects": 5}, "modes": ["exclusive"]}]})"}});
  EXPECT_TRUE(parsed.ok());
  EXPECT_EQ(
      said(parsed),
      "c:2: warning: `pools[0].limits.hca_objects`: the pool allows exclusive alone, in which nothing is limited; "
      "remove it, or add a mode to \"modes\"\n");
}

TEST(HookConfig, WarningsAreNoErrors) {
  const auto parsed = parse_config({{"c", R"({"pools": [{"name": "p", "limits": {"shared": 4},
    "modes": ["exclusive"]}], "annotations_may_request": ["*"], "env_may_request": true})"}});
  EXPECT_TRUE(parsed.ok());
  EXPECT_EQ(said(parsed),
            "c:1: warning: `pools[0].limits.shared`: the pool does not allow shared; remove the limit, or add the mode "
            "to \"modes\"\n");
}

}  // namespace
