#include "hook/config/config.hpp"

#include <gtest/gtest.h>

#include "hook/config/read_config.hpp"

namespace {

using namespace hook;

// Returns the problem without the label of its remedy, so that cases are short.
std::string brief(const hook::ConfigProblem& problem) {
  constexpr std::string_view kLabel = "remedy: ";
  std::string text = to_string(problem);
  return text.erase(text.find(kLabel), kLabel.size());
}

std::string problems_of(const hook::ParsedConfig& parsed) {
  std::string text;
  for (const auto& problem : parsed.problems)
    text += brief(problem) + "\n";
  return text;
}

std::string problems_of(const std::string& text) {
  return problems_of(parse_config({{"c", text}}));
}

TEST(HookConfig, ReadsEveryMember) {
  const auto parsed = parse_config({{"c.json", R"({
    "$schema": "x", "$comment": ["y"],
    "pools": [{"$comment": "z", "name": "roce",
               "selectors": {"vendors": ["0x15B3"], "deviceIDs": ["101E", "1021"], "drivers": ["mlx5_core"],
                             "ifNames": ["ens*"], "linkTypes": ["ether"], "pciAddresses": ["0000:0C:00.*"]},
               "expect": 8, "modes": ["shared", "shared-multi", "host", "shared"], "limits": {"shared-multi": 63, "hca": 2, "hca_objects": 4096,
                                                                          "hca_handles": 2147483646},
               "rdmaHcaMax": 100, "network": "rails", "resource": "rdma-init.io/rails",
               "env": {"NCCL_IB_TC": "106"}}],
    "networks": {"$comment": "n", "rails": {"mode": "shared", "child": "ipvlan", "pool": "roce"}, "bare": {}},
    "rails": ["mlx5_1", "mlx5_0"],
    "nodes": {"rdma_cm": false, "mode": "0660", "uid": 1000, "gid": 4294967294},
    "device_plugin": {"cdi": true, "poll_seconds": 60},
    "memlock": "64MiB", "ipam_allowed": ["whereabouts"], "ipc_lock": false, "sysfs_view": false, "netdev_names": "rdma%d",
    "annotations_may_request": ["team-a", "train-*"], "env_may_request": true,
    "trusted_annotations": ["rdma-init.io"], "default_devices": "rail:0,gpu",
    "namespacesInclude": ["a*"], "namespacesExclude": ["ab"]})"}});
  ASSERT_EQ(problems_of(parsed), "");
  Config expected;
  expected.pools = {{"roce",
                     {{"15b3"}, {"101e", "1021"}, {"mlx5_core"}, {"ens*"}, {"ether"}, {"0000:0c:00.*"}},
                     {Mode::kShared, Mode::kSharedMulti, Mode::kHca},
                     {{Mode::kShared, 100}, {Mode::kSharedMulti, 63}, {Mode::kHca, 2}},
                     "rails",
                     "rdma-init.io/rails",
                     {.handles = 2147483646, .objects = 4096},
                     false,
                     {{"NCCL_IB_TC", "106"}},
                     8}};
  expected.networks = {{"rails", {"rails", Mode::kShared, "ipvlan", "roce"}},
                       {"bare", {"bare", std::nullopt, "macvlan", std::nullopt}}};
  expected.ipam_allowed = {"whereabouts"};
  expected.rails = {{"mlx5_1", {.pattern = "mlx5_1", .port = {}}, 0}, {"mlx5_0", {.pattern = "mlx5_0", .port = {}}, 1}};
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

TEST(HookConfig, EmptyFileHasDefaults) {
  EXPECT_EQ(parse_config({}).config, Config());
  EXPECT_EQ(parse_config({{"c", "{}"}}).config, Config());
  const auto pool = parse_config({{"c", R"({"pools": [{"name": "p"}]})"}});
  ASSERT_EQ(problems_of(pool), "");
  EXPECT_EQ(pool.config.pools.at(0).modes,
            (std::vector{Mode::kHca, Mode::kExclusive, Mode::kShared, Mode::kSharedMulti}));
}

TEST(HookConfig, ReadsMemlock) {
  const auto memlock = [](const std::string& value) {
    const auto parsed = parse_config({{"c", "{\"memlock\": " + value + "}"}});
    EXPECT_TRUE(parsed.ok()) << problems_of(parsed);
    return parsed.config.memlock;
  };
  EXPECT_EQ(memlock("null"), std::nullopt);
  EXPECT_EQ(memlock("\"unlimited\""), UINT64_MAX);
  EXPECT_EQ(memlock("1"), 1U);
  EXPECT_EQ(memlock("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(memlock("\"8 GiB\""), std::uint64_t{8} << 30);
  EXPECT_EQ(memlock("\"16777215TiB\""), std::uint64_t{16777215} << 40);
}

TEST(HookConfig, LaterFileOverrides) {
  const auto parsed = parse_config({
      {"config.json", R"({"pools": [{"name": "a"}, {"name": "b", "network": "n"}],
                          "networks": {"n": {"child": "ipvlan", "mode": "shared"}, "kept": {}},
                          "rails": ["mlx5_0"], "nodes": {"uid": 5, "gid": 6}, "memlock": null, "ipc_lock": false,
                          "annotations_may_request": ["x"]})"},
      {"10-a.json", R"({"pools": [{"name": "c", "network": "n"}], "networks": {"n": {"pool": "c", "mode": "exclusive"}},
                        "rails": [], "nodes": {"uid": 7}, "annotations_may_request": ["y"]})"},
      {"20-b.json", "{}"},
  });
  ASSERT_EQ(problems_of(parsed), "");
  ASSERT_EQ(parsed.config.pools.size(), 1U);
  EXPECT_EQ(parsed.config.pools[0].name, "c");
  EXPECT_EQ(parsed.config.networks.at("n"), (hook::Network{"n", Mode::kExclusive, "macvlan", "c"}));
  EXPECT_TRUE(parsed.config.networks.contains("kept"));
  EXPECT_TRUE(parsed.config.rails.empty());
  EXPECT_EQ(parsed.config.nodes.uid, 7U);
  EXPECT_EQ(parsed.config.nodes.gid, 6U);
  EXPECT_EQ(parsed.config.memlock, std::nullopt);
  EXPECT_FALSE(parsed.config.ipc_lock);
  EXPECT_EQ(parsed.config.annotations_may_request, std::vector<std::string>{"y"});
}

TEST(HookConfig, ReportsUnknownNamesAtTheirLine) {
  const auto parsed = parse_config({{"a.json", "{\"networks\": {\"n\": {},\n\"m\": {\"pool\": \"q\"}}}"},
                                    {"b.json", "{\"pools\": [{\"name\": \"p\",\n\n\"network\": \"none\"}]}"}});
  EXPECT_EQ(
      problems_of(parsed),
      "b.json:3: error: `pools[0].network`: network `none` does not exist; add it to \"networks\" or correct the name\n"
      "a.json:2: error: `networks.m.pool`: pool `q` does not exist; add it to \"pools\" or correct the name\n");
}

TEST(HookConfig, ReportsAllProblemsWithLines) {
  const auto parsed = parse_config({{"c.json",
                                     "{\n\"poolz\": [],\n\"rails\": [\"ok\",\n\"a/b\",\n3],\n\"nodes\":\n{"
                                     "\"umad\": true,\n\"issm\": true}\n}"}});
  EXPECT_FALSE(parsed.ok());
  EXPECT_EQ(problems_of(parsed),
            "c.json:2: error: `poolz`: unknown key; did you mean `pools`?\n"
            "c.json:4: error: `rails[1]`: `a/b` selects no HCA; write a name as `rdma link` prints it, "
            "\"pci:ADDRESS\", \"guid:GUID\" or \"pf:NAME\"\n"
            "c.json:5: error: `rails[2]`: expected a text, found a number; write it in quotes\n"
            "c.json:7: warning: `nodes.umad`: every container with an HCA can send management datagrams to the "
            "fabric; remove it unless containers run fabric tools such as ibstat or ibnetdiscover\n"
            "c.json:8: warning: `nodes.issm`: every container with an HCA can be a subnet manager of the fabric; "
            "remove it unless a subnet manager runs in a container\n");
}

// Valid settings that are probably mistakes.
TEST(HookConfig, WarnsAboutProbableMistakes) {
  const std::string plugin =
      "c:1: warning: `pools[0].rdmaHcaMax`: limits only containers of mode shared, but containers without a mode get "
      "mode hca; add \"modes\": "
      "[\"shared\"] to the pool\n";
  const std::string no_netdev =
      "c:1: warning: `pools[0].network`: containers without a mode get hca, which has no netdev; add a \"mode\" to the "
      "network, or begin the pool's \"modes\" with another mode\n";
  for (const auto& [text, expected] : std::vector<std::pair<const char*, std::string>>{
           {R"({"pools":[{"name":"p","rdmaHcaMax":4}]})", plugin},
           {R"({"pools":[{"name":"p","rdmaHcaMax":4,"limits":{"hca":4}}]})", ""},
           {R"({"pools":[{"name":"p","rdmaHcaMax":4,"modes":["shared"]}]})", ""},
           {R"({"pools":[{"name":"p","network":"n"}],"networks":{"n":{}}})", no_netdev},
           {R"({"pools":[{"name":"p","network":"n","modes":["shared"]}],"networks":{"n":{"mode":"shared"}}})", ""},
           {R"({"pools":[{"name":"p","network":"n","modes":["shared","hca"]}],"networks":{"n":{"mode":"hca"}}})",
            no_netdev},
           {R"({"pools":[{"name":"p","network":"n","modes":["shared","hca"]}],"networks":{"n":{}}})", ""},
           {R"({"pools":[{"name":"p","selectors":{"ifNames":["ens?f0","ens*f0"]}}]})",
            "c:1: warning: `pools[0].selectors.ifNames[0]`: only * is a wildcard: `ens?f0` matches literally; write * "
            "instead, or one entry per netdev\n"},
           {R"({"nodes":{"umad":false,"issm":false}})", ""},
           {R"({"pools":[{"name":"p","limits":{"hca_objects":5},"modes":["exclusive"]}]})",
            "c:1: warning: `pools[0].limits.hca_objects`: the pool allows only mode exclusive, where RDMA limits have "
            "no "
            "effect; remove it or add a mode to \"modes\"\n"},
           {R"({"pools":[{"name":"p","limits":{"shared":4},"modes":["exclusive"]}],
               "annotations_may_request":["*"],"env_may_request":true})",
            "c:1: warning: `pools[0].limits.shared`: the pool does not allow mode shared; remove the limit or add the "
            "mode "
            "to \"modes\"\n"},
           // A pool that allows no shared mode makes no child netdevs, whatever the network calls them.
           {R"({"pools":[{"name":"p","network":"n","modes":["exclusive"],"selectors":{"linkTypes":["infiniband"]}}],
               "networks":{"n":{}}})",
            ""},
           {R"({"pools":[{"name":"p","network":"n","modes":["exclusive"],"selectors":{"linkTypes":["ether"]}}],
               "networks":{"n":{"child":"ipoib"}}})",
            ""},
           {R"({"pools":[{"name":"p","modes":["exclusive"],"selectors":{"linkTypes":["infiniband"]}}],
               "networks":{"n":{"pool":"p"}}})",
            ""}}) {
    EXPECT_TRUE(parse_config({{"c", text}}).ok()) << text;
    EXPECT_EQ(problems_of(text), expected);
  }
}

TEST(HookConfig, KeepsWarningsIfLaterFileIsInvalid) {
  EXPECT_EQ(problems_of(parse_config({{"a", R"({"nodes":{"umad":true}})"}, {"b", R"({"nodes":{"umad":"no"}})"}})),
            "a:1: warning: `nodes.umad`: every container with an HCA can send management datagrams to the fabric; "
            "remove it unless containers run fabric tools such as ibstat or ibnetdiscover\n"
            "b:1: error: `nodes.umad`: expected true or false, found a text; write true or false, without quotes\n");
}

// One row per error of config.json.

// The text of config.json, and "MESSAGE; REMEDY" of the one problem.
using ProblemRows = std::vector<std::pair<std::string, std::string>>;

void expect_errors(const ProblemRows& rows) {
  for (const auto& [text, expected] : rows) {
    EXPECT_FALSE(parse_config({{"c", text}}).ok()) << text;
    EXPECT_EQ(problems_of(text), "c:1: error: " + expected + "\n") << text;
  }
}

std::string pool(const std::string& members) {
  return R"({"pools":[{"name":"p",)" + members + "}]}";
}

constexpr const char* kNameRemedy = "write 1 to 63 of the characters A-Z a-z 0-9 _ . -";

TEST(HookConfigProblems, RefusesInvalidJson) {
  const std::string remedy = "remove comments, trailing commas and duplicate keys; an empty configuration is {}";
  expect_errors(
      {{"",
        "invalid JSON in column 1: syntax error while parsing value - unexpected end of input; expected '[', '{', or "
        "a literal; " +
            remedy},
       {R"({"rails":[],"rails":[]})", "invalid JSON: the key `rails` occurs twice; " + remedy},
       {"[]", "expected an object, found a list; begin with { and end with }"}});
  std::string deep;
  for (int i = 0; i < 17; ++i)
    deep += "{\"a\":\n";
  EXPECT_EQ(problems_of(deep), "c:17: error: invalid JSON: nested deeper than 16 levels; " + remedy + "\n");
  EXPECT_EQ(problems_of(std::string((std::size_t{1} << 20) + 1, ' ')),
            "c: error: invalid JSON: longer than 1048576 bytes; " + remedy + "\n");
}

TEST(HookConfigProblems, RefusesUnknownKeys) {
  expect_errors(
      {{R"({"":1})",
        "`\"\"`: unknown key; write one of: pools, networks, rails, node_index, nodes, runtime, nri, device_plugin, "
        "memlock, ipc_lock, sysfs_view, ipam_allowed, lend_from, topology_file, netdev_names, annotations_may_request, "
        "env_may_request, "
        "trusted_annotations, default_devices, namespacesInclude, "
        "namespacesExclude"},
       {R"({"Pools":[]})", "`Pools`: unknown key; did you mean `pools`?"},
       {R"({"netdev-names":"net%d"})", "`netdev-names`: unknown key; did you mean `netdev_names`?"},
       {R"({"nodes":{"x":1}})", "`nodes.x`: unknown key; write one of: rdma_cm, umad, issm, mode, uid, gid"},
       {"{\"\x1b[2J\":1, \"$comment\":1}",
        "invalid JSON in column 3: syntax error while parsing object key - invalid string: control character U+001B "
        "(ESC) must be escaped to \\u001B; last read: '\\x22\\x3cU+001B\\x3e'; expected string literal; remove "
        "comments, trailing commas and duplicate keys; an empty configuration is {}"},
       {R"({"nodes":{"\u001b":1}})", "`nodes.?`: unknown key; write one of: rdma_cm, umad, issm, mode, uid, gid"},
       {R"({"pools":[{"name":"p","vendors":["15b3"]}]})",
        "`pools[0].vendors`: belongs in \"selectors\"; move it to \"selectors\": { ... }"},
       {R"({"pools":[{"name":"p","selectors":{"vendor":["15b3"]}}]})",
        "`pools[0].selectors.vendor`: unknown key; did you mean `vendors`?"}});
}

TEST(HookConfigProblems, RefusesWrongTypes) {
  const std::string boolean = "; write true or false, without quotes";
  const std::string number = "; write a whole number from 0 to 4294967294, without quotes";
  expect_errors({{R"({"pools":{}})", "`pools`: expected a list, found an object; write it in brackets: [ ... ]"},
                 {R"({"networks":[]})", "`networks`: expected an object, found a list; write it in braces: { ... }"},
                 {R"({"pools":["p"]})", "`pools[0]`: expected an object, found a text; write it in braces: { ... }"},
                 {R"({"ipc_lock":"true"})", "`ipc_lock`: expected true or false, found a text" + boolean},
                 {R"({"sysfs_view":1})", "`sysfs_view`: expected true or false, found a number" + boolean},
                 {R"({"env_may_request":null})", "`env_may_request`: expected true or false, found null" + boolean},
                 {R"({"nodes":{"rdma_cm":[]}})", "`nodes.rdma_cm`: expected true or false, found a list" + boolean},
                 {R"({"netdev_names":5})", "`netdev_names`: expected a text, found a number; write it in quotes"},
                 {R"({"annotations_may_request":"*"})",
                  "`annotations_may_request`: expected a list, found a text; write it in brackets: [ ... ]"},
                 {R"({"default_devices":4})", "`default_devices`: expected a text, found a number; write it in quotes"},
                 {R"({"default_devices":""})",
                  "`default_devices`: expected a text, found an empty text; write a value or remove the key"},
                 {R"({"nodes":{"uid":"0"}})", "`nodes.uid`: expected a number, found a text" + number},
                 {R"({"nodes":{"gid":-1}})", "`nodes.gid`: -1 is not a valid number here" + number}});
}

TEST(HookConfigProblems, RefusesWrongPools) {
  const std::string limit = "; write a whole number from 1 to 65535, without quotes";
  const std::string pci_id = " is not a PCI id; write four hexadecimal digits as `lspci -n` prints them, e.g. \"15b3\"";
  const std::string twice = ": limits.shared is set twice; remove either rdmaHcaMax or limits.shared";
  expect_errors(
      {{R"({"pools":[]})", "`pools`: an empty list; remove the key for one pool of all HCAs"},
       {R"({"pools":[{}]})", "`pools[0]`: has no name; add \"name\": \"...\""},
       {R"({"pools":[{"name":"a b"}]})", std::string("`pools[0].name`: `a b` is not a valid name; ") + kNameRemedy},
       {R"({"pools":[{"name":"p"},{"name":"p"}]})",
        "`pools[1]`: an earlier pool has the name `p` too; write a different name for each pool"},
       {pool(R"("modes":["exlusive"])"), "`pools[0].modes[0]`: `exlusive` is unknown; did you mean `exclusive`?"},
       {pool(R"("modes":["sriov"])"),
        "`pools[0].modes[0]`: `sriov` is unknown; write one of: exclusive, shared, "
        "shared-multi, hca, host"},
       {pool(R"("modes":[])"),
        "`pools[0].modes`: an empty list allows no mode; add a mode, or remove \"modes\" to allow all"},
       {pool(R"("limits":{"shared":0})"), "`pools[0].limits.shared`: 0 is not a valid number here" + limit},
       {pool(R"("limits":{"shared":1.5})"), "`pools[0].limits.shared`: 1.5 is not a valid number here" + limit},
       {pool(R"("rdmaHcaMax":0)"), "`pools[0].rdmaHcaMax`: 0 is not a valid number here" + limit},
       {pool(R"("rdmaHcaMax":5,"modes":["shared"],"limits":{"shared":5})"), "`pools[0].limits.shared`" + twice},
       {pool(R"("limits":{"shared":5},"rdmaHcaMax":5,"modes":["shared"])"), "`pools[0].rdmaHcaMax`" + twice},
       {pool(R"("limits":{"hca":65536})"), "`pools[0].limits.hca`: 65536 is not a valid number here" + limit},
       {pool(R"("limits":{"hca_objects":0})"),
        "`pools[0].limits.hca_objects`: 0 is not a valid number here; write a whole number from 1 to 2147483646, "
        "without "
        "quotes"},
       {pool(R"("limits":{"hca_handles":"many"})"),
        "`pools[0].limits.hca_handles`: expected a number, found a text; write a whole number from 1 to 2147483646, "
        "without quotes"},
       {pool(R"("selectors":{"drivers":["mlx5/core"]})"),
        "`pools[0].selectors.drivers[0]`: `mlx5/core` is not the name of a driver; write a kernel module's name, e.g. "
        "\"mlx5_core\""},
       {pool(R"("selectors":{"deviceIDs":["102"]})"), "`pools[0].selectors.deviceIDs[0]`: `102`" + pci_id},
       {pool(R"("network":"a b")"), std::string("`pools[0].network`: `a b` is not a valid name; ") + kNameRemedy},
       {pool(R"("limits":{"exclusive":1})"),
        "`pools[0].limits.exclusive`: an exclusive HCA always has one owner; remove it"},
       {pool(R"("selectors":{"vendors":["mellanox"]})"), "`pools[0].selectors.vendors[0]`: `mellanox`" + pci_id},
       {pool(R"("selectors":{"vendors":["15b3","0x15B3"]})"),
        "`pools[0].selectors.vendors[1]`: duplicate entry `15b3`; remove one of them"},
       {pool(R"("selectors":{"linkTypes":["roce"]})"),
        "`pools[0].selectors.linkTypes[0]`: `roce` is unknown; write one of: ether, infiniband"},
       {pool(R"("selectors":{"pciAddresses":["0c:00"," "]})"),
        "`pools[0].selectors.pciAddresses[1]`: ` ` is not a PCI address; write it as `lspci -D` prints it, or with *: "
        "\"0000:0c:00.*\""},
       {pool(R"("pciAddresses":["0000:0c:00.0"])"),
        "`pools[0].pciAddresses`: belongs in \"selectors\"; move it to \"selectors\": { ... }"},
       {pool(R"("expect":0)"),
        "`pools[0].expect`: 0 is not a valid number here; write a whole number from 1 to 4096, without quotes"},
       {pool(R"("selectors":{"ifNames":["a/b"]})"),
        "`pools[0].selectors.ifNames[0]`: `a/b` is not the name of a netdev; write a name as `ip link` prints it, or a "
        "glob: \"ens*f0np0\""}});
}

TEST(HookConfigProblems, RefusesWrongResources) {
  const std::string uncounted = "`pools[0].resource`: no limit of containers per HCA in mode ";
  ProblemRows rows = {
      {pool(R"("resource":"a.io/b")"), uncounted + R"(hca; add "limits": {"hca": ...} or "modes": ["exclusive"])"},
      {pool(R"("resource":"a.io/b","modes":["shared","hca"],"limits":{"hca":4})"),
       uncounted + R"(shared; add "limits": {"shared": ...} or "modes": ["exclusive"])"}};
  for (const char* name : {"rails", "/rails", "a.io/", "a.io/b/c", "A.io/b", "a..io/b", "-a.io/b", "a.io/-b", "a.io/b.",
                           "kubernetes.io/b", "x.kubernetes.io/b", "requests.a.io/b", "a_b.io/b", "a/b c"}) {
    rows.emplace_back(
        pool(fmt::format(R"("modes":["exclusive"],"resource":"{}")", name)),
        fmt::format(
            "`pools[0].resource`: `{}` is not a resource name; write a domain and a name, e.g. \"rdma-init.io/rails\"",
            name));
  }
  expect_errors(rows);
  for (const char* name :
       {"a/b", "vke.volcengine.com/rdma", "spidernet.io/shared_cx5_gpu1", "rdma/hca", "a-b.c/D.e_f"}) {
    const auto parsed = parse_config({{"c", pool(fmt::format(R"("modes":["exclusive"],"resource":"{}")", name))}});
    EXPECT_TRUE(parsed.problems.empty()) << name;
    EXPECT_EQ(parsed.config.pools[0].resource, name);
  }
}

TEST(HookConfigProblems, RefusesPoolsAndNetworksThatDoNotFit) {
  const auto both = [](const std::string& pool, const std::string& network) {
    return R"({"pools":[{"name":"p",)" + pool + R"(},{"name":"q"}],"networks":{"n":{)" + network + "}}}";
  };
  const std::string at_pool = "`pools[0].network`: network `n` ";
  expect_errors({
      {both(R"("network":"n")", R"("pool":"q")"),
       at_pool + "uses only HCAs of pool `q`; write another network in the pool, or remove the network's \"pool\""},
      {both(R"("network":"n","modes":["hca"])", R"("mode":"shared")"),
       at_pool + "has mode shared, which pool `p` does not allow; add it to the pool's \"modes\" or change the "
                 "network's \"mode\""},
      {both(R"("modes":["hca"])", R"("mode":"shared","pool":"p")"),
       "`networks.n.pool`: network `n` has mode shared, which pool `p` does not allow; add it to the pool's \"modes\" "
       "or change the network's \"mode\""},
      {both(R"("network":"n","selectors":{"linkTypes":["infiniband"]})", ""),
       at_pool + "has macvlan children, which InfiniBand does not support; write \"child\": \"ipoib\" in the network"},
      {both(R"("network":"n","selectors":{"linkTypes":["ether"]})", R"("child":"ipoib")"),
       at_pool + "has ipoib children, which only InfiniBand supports; write \"child\": \"macvlan\" or \"ipvlan\" in "
                 "the network"},
      {R"({"networks":{"n":{"mode":"multi"}}})",
       "`networks.n.mode`: `multi` is unknown; write one of: exclusive, shared, shared-multi, hca, host"},
      {R"({"networks":{"n":{"pool":"a b"}}})",
       std::string("`networks.n.pool`: `a b` is not a valid name; ") + kNameRemedy},
      {R"({"networks":{"7":{"chld":"ipoib"}}})", "`networks.7.chld`: unknown key; did you mean `child`?"},
      {R"({"networks":{"n":{"child":"veth"}}})",
       "`networks.n.child`: `veth` is unknown; write one of: macvlan, ipvlan, ipoib"},
      {R"({"networks":{"a/b":{}}})", std::string("`networks.a/b`: `a/b` is not a valid name; ") + kNameRemedy},
  });
}

TEST(HookConfigProblems, RefusesWrongValues) {
  const std::string octal = "; write an octal text up to 0777, in quotes: \"0666\"";
  const std::string memlock =
      " is not a limit; write \"unlimited\", bytes (67108864 or \"64MiB\"), or null for the container's own limit";
  const std::string netdev = "; write a short prefix and %d: \"net%d\"";
  const std::string space =
      " is not a Kubernetes namespace; write a namespace or a glob of lower-case letters, digits, - "
      "and *: \"team-a\", \"train-*\"";
  expect_errors({
      {R"({"nodes":{"mode":666}})", "`nodes.mode`: is a decimal number" + octal},
      {R"({"nodes":{"mode":"1777"}})", "`nodes.mode`: `1777` is not a set of permissions" + octal},
      {R"({"nodes":{"mode":"0668"}})", "`nodes.mode`: `0668` is not a set of permissions" + octal},
      {R"({"memlock":-1})", "`memlock`: `-1`" + memlock},
      {R"({"memlock":0})", "`memlock`: `0`" + memlock},
      {R"({"memlock":"64MB"})", "`memlock`: `\"64MB\"`" + memlock},
      {R"({"memlock":"16777216TiB"})", "`memlock`: `\"16777216TiB\"`" + memlock},
      {R"({"netdev_names":"net"})", "`netdev_names`: `net` has no %d for the number" + netdev},
      {R"({"netdev_names":"n%s%d"})", "`netdev_names`: `n%s%d` has no %d for the number" + netdev},
      {R"({"netdev_names":"n%d%d"})", "`netdev_names`: `n%d%d` has more than one %" + netdev},
      {R"({"netdev_names":"a/%d"})",
       "`netdev_names`: `a/%d` has a blank, '/', ':' or another character that is invalid in a netdev's name" + netdev},
      {R"({"netdev_names":"thirteenchars%d"})",
       "`netdev_names`: `thirteenchars%d` makes names of 16 bytes; the maximum is 15" + netdev},
      {R"({"annotations_may_request":["Team A"]})", "`annotations_may_request[0]`: `Team A`" + space},
      {R"({"namespacesInclude":[""]})",
       "`namespacesInclude[0]`: expected a text, found an empty text; write a value or remove the key"},
      {R"({"memlock":18446744073709551616})", "`memlock`: `1.8446744073709552e+19`" + memlock},
      {R"({"memlock":"0MiB"})", "`memlock`: `\"0MiB\"`" + memlock},
      {R"({"namespacesExclude":["a_b"]})", "`namespacesExclude[0]`: `a_b`" + space},
      {R"({"trusted_annotations":["rdma-init"]})",
       "`trusted_annotations[0]`: `rdma-init` is unknown; did you mean `rdma-init.io`?"},
      {R"({"rails":["mlx5_0","mlx5_0"]})", "`rails[1]`: duplicate entry `mlx5_0`; remove one of them"},
      {R"({"default_devices":"0"})",
       "`default_devices`: default request: `0`: expected a count from 1 to 1024; write all, "
       "none, a count, or a list of HCAs: mlx5_0, netdev:NAME, pci:ADDRESS, rail:N, gpu"},
  });
  EXPECT_TRUE(parse_config({{"c", R"({"netdev_names":"twelve-chars%d"})"}}).ok());
}

}  // namespace
