// One row for each thing that can be wrong in config.json.
#include <gtest/gtest.h>

#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"

namespace {

struct ProblemRow {
  std::string text;
  std::string expected;  // "MESSAGE; REMEDY" of the one problem
};

void expect_errors(const std::vector<ProblemRow>& rows) {
  for (const ProblemRow& row : rows) {
    SCOPED_TRACE(row.text);
    const auto parsed = hook::parse_config({{"c", row.text}});
    EXPECT_FALSE(parsed.ok());
    ASSERT_EQ(parsed.problems.size(), 1U);
    EXPECT_EQ(to_string(parsed.problems[0]), "c:1: error: " + row.expected);
  }
}

constexpr const char* kNameRemedy = "1 to 63 of the characters A-Z a-z 0-9 _ . -";

TEST(HookConfigProblems, Json) {
  const std::string remedy = "JSON has no comments, no trailing commas and each key once; an empty configuration is {}";
  expect_errors({
      {"",
       "no JSON that can be read: syntax error while parsing value - unexpected end of input; expected '[', '{', or "
       "a literal; " +
           remedy},
      {R"({"rails":[],"rails":[]})", "no JSON that can be read: `rails` is there twice; " + remedy},
      {"[]", "expected an object, this is a list; begin with { and end with }"},
  });
  std::string deep;
  for (int i = 0; i < 17; ++i)
    deep += "{\"a\":\n";
  const auto nested = hook::parse_config({{"c", deep}});
  ASSERT_EQ(nested.problems.size(), 1U);
  EXPECT_EQ(to_string(nested.problems[0]),
            "c:17: error: no JSON that can be read: nested deeper than 16 levels; " + remedy);
  const auto large = hook::parse_config({{"c", std::string((std::size_t{1} << 20) + 1, ' ')}});
  ASSERT_EQ(large.problems.size(), 1U);
  EXPECT_EQ(to_string(large.problems[0]), "c: error: no JSON that can be read: longer than 1048576 bytes; " + remedy);
}

TEST(HookConfigProblems, UnknownKeys) {
  expect_errors({
      {R"({"":1})",
       "`\"\"`: unknown key; known here: pools, networks, rails, node_index, nodes, runtime, nri, device_plugin, "
       "memlock, ipc_lock, sysfs_view, "
       "netdev_names, "
       "annotations_may_request, env_may_request, trusted_annotations, default_devices, namespacesInclude, "
       "namespacesExclude"},
      {R"({"Pools":[]})", "`Pools`: unknown key; did you mean `pools`?"},
      {R"({"netdev-names":"net%d"})", "`netdev-names`: unknown key; did you mean `netdev_names`?"},
      {R"({"nodes":{"x":1}})", "`nodes.x`: unknown key; known here: rdma_cm, umad, issm, mode, uid, gid"},
      {"{\"\x1b[2J\":1, \"$comment\":1}",
       "no JSON that can be read: syntax error while parsing object key - invalid string: control character U+001B "
       "(ESC) must be escaped to \\u001B; last read: '\\x22\\x3cU+001B\\x3e'; expected string literal; JSON has no "
       "comments, no "
       "trailing commas and each key once; an empty configuration is {}"},
      {R"({"nodes":{"\u001b":1}})", "`nodes.?`: unknown key; known here: rdma_cm, umad, issm, mode, uid, gid"},
      {R"({"pools":[{"name":"p","vendors":["15b3"]}]})",
       "`pools[0].vendors`: belongs into \"selectors\"; write \"selectors\": { ... } around it"},
      {R"({"pools":[{"name":"p","selectors":{"vendor":["15b3"]}}]})",
       "`pools[0].selectors.vendor`: unknown key; did you mean `vendors`?"},
  });
}

TEST(HookConfigProblems, Types) {
  expect_errors({
      {R"({"pools":{}})", "`pools`: expected a list, this is an object; write it in brackets: [ ... ]"},
      {R"({"networks":[]})", "`networks`: expected an object, this is a list; write it in braces: { ... }"},
      {R"({"pools":["p"]})", "`pools[0]`: expected an object, this is a text; write it in braces: { ... }"},
      {R"({"ipc_lock":"true"})",
       "`ipc_lock`: expected true or false, this is a text; write true or false, without "
       "quotes"},
      {R"({"sysfs_view":1})",
       "`sysfs_view`: expected true or false, this is a number; write true or false, without quotes"},
      {R"({"env_may_request":null})",
       "`env_may_request`: expected true or false, this is null; write true or false, without quotes"},
      {R"({"nodes":{"rdma_cm":[]}})",
       "`nodes.rdma_cm`: expected true or false, this is a list; write true or false, without quotes"},
      {R"({"netdev_names":5})", "`netdev_names`: expected a text, this is a number; write it in quotes"},
      {R"({"annotations_may_request":"*"})",
       "`annotations_may_request`: expected a list, this is a text; write it in brackets: [ ... ]"},
      {R"({"default_devices":4})", "`default_devices`: expected a text, this is a number; write it in quotes"},
      {R"({"default_devices":""})",
       "`default_devices`: expected a text, this is an empty text; write a value, or leave the key out"},
      {R"({"nodes":{"uid":"0"}})",
       "`nodes.uid`: expected a number, this is a text; write a whole number from 0 to 4294967294, without quotes"},
      {R"({"nodes":{"gid":-1}})",
       "`nodes.gid`: -1 is not possible here; write a whole number from 0 to 4294967294, without quotes"},
  });
}

TEST(HookConfigProblems, Pools) {
  const std::string limit = "; write a whole number from 1 to 65535, without quotes";
  const auto pool = [](const std::string& members) { return R"({"pools":[{"name":"p",)" + members + "}]}"; };
  expect_errors({
      {R"({"pools":[{}]})", "`pools[0]`: has no name; add \"name\": \"...\""},
      {R"({"pools":[{"name":"a b"}]})", std::string("`pools[0].name`: `a b` is no name; ") + kNameRemedy},
      {R"({"pools":[{"name":"p"},{"name":"p"}]})",
       "`pools[1]`: a pool above is called `p` too; give each pool its own name"},
      {pool(R"("modes":["exlusive"])"), "`pools[0].modes[0]`: `exlusive` is unknown; did you mean `exclusive`?"},
      {pool(R"("modes":["sriov"])"),
       "`pools[0].modes[0]`: `sriov` is unknown; known here: exclusive, shared, "
       "shared-multi, hca, host"},
      {pool(R"("modes":[])"),
       "`pools[0].modes`: an empty list allows nothing; name a mode, or leave \"modes\" out to "
       "allow all"},
      {pool(R"("limits":{"shared":0})"), "`pools[0].limits.shared`: 0 is not possible here" + limit},
      {pool(R"("limits":{"shared":1.5})"), "`pools[0].limits.shared`: 1.5 is not possible here" + limit},
      {pool(R"("rdmaHcaMax":0)"), "`pools[0].rdmaHcaMax`: 0 is not possible here" + limit},
      {pool(R"("rdmaHcaMax":5,"modes":["shared"],"limits":{"shared":5})"),
       "`pools[0].limits.shared`: the limit of shared is there twice; remove either rdmaHcaMax or limits.shared"},
      {pool(R"("limits":{"shared":5},"rdmaHcaMax":5,"modes":["shared"])"),
       "`pools[0].rdmaHcaMax`: the limit of shared is there twice; remove either rdmaHcaMax or limits.shared"},
      {pool(R"("limits":{"hca":65536})"), "`pools[0].limits.hca`: 65536 is not possible here" + limit},
      {pool(R"("limits":{"hca_objects":0})"),
       "`pools[0].limits.hca_objects`: 0 is not possible here; write a whole number from 1 to 2147483646, without "
       "quotes"},
      {pool(R"("limits":{"hca_handles":"many"})"),
       "`pools[0].limits.hca_handles`: expected a number, this is a text; write a whole number from 1 to 2147483646, "
       "without quotes"},
      {pool(R"("selectors":{"drivers":["mlx5/core"]})"),
       "`pools[0].selectors.drivers[0]`: `mlx5/core` is no driver; write a kernel module's name, e.g. \"mlx5_core\""},
      {pool(R"("selectors":{"deviceIDs":["102"]})"),
       "`pools[0].selectors.deviceIDs[0]`: `102` is no PCI id; write four hexadecimal digits as `lspci -n` shows them, "
       "e.g. \"15b3\""},
      {pool(R"("network":"a b")"), std::string("`pools[0].network`: `a b` is no name; ") + kNameRemedy},
      {pool(R"("limits":{"exclusive":1})"),
       "`pools[0].limits.exclusive`: an exclusive HCA has one holder, which is no "
       "limit to choose; remove it"},
      {pool(R"("selectors":{"vendors":["mellanox"]})"),
       "`pools[0].selectors.vendors[0]`: `mellanox` is no PCI id; write four hexadecimal digits as `lspci -n` shows "
       "them, e.g. \"15b3\""},
      {pool(R"("selectors":{"vendors":["15b3","0x15B3"]})"),
       "`pools[0].selectors.vendors[1]`: `15b3` is there twice; remove one of them"},
      {pool(R"("selectors":{"linkTypes":["roce"]})"),
       "`pools[0].selectors.linkTypes[0]`: `roce` is unknown; known here: ether, infiniband"},
      {pool(R"("selectors":{"ifNames":["a/b"]})"),
       "`pools[0].selectors.ifNames[0]`: `a/b` is no name of a netdev; write a name as `ip link` shows it, or a glob: "
       "\"ens*f0np0\""},
  });
}

TEST(HookConfigProblems, Resources) {
  const auto pool = [](const std::string& members) { return R"({"pools":[{"name":"p",)" + members + "}]}"; };
  const std::string uncounted = "`pools[0].resource`: nothing says how many containers may share an HCA in mode ";
  std::vector<ProblemRow> rows = {
      {pool(R"("resource":"a.io/b")"),
       uncounted + R"(hca; write "limits": {"hca": ...} beside it, or "modes": ["exclusive"])"},
      {pool(R"("resource":"a.io/b","modes":["shared","hca"],"limits":{"hca":4})"),
       uncounted + R"(shared; write "limits": {"shared": ...} beside it, or "modes": ["exclusive"])"},
  };
  for (const char* name : {"rails", "/rails", "a.io/", "a.io/b/c", "A.io/b", "a..io/b", "-a.io/b", "a.io/-b", "a.io/b.",
                           "kubernetes.io/b", "x.kubernetes.io/b", "requests.a.io/b", "a_b.io/b", "a/b c"}) {
    rows.push_back({pool(R"("modes":["exclusive"],"resource":")" + std::string(name) + "\""),
                    "`pools[0].resource`: `" + std::string(name) +
                        "` is no resource; write a domain and a name, e.g. " + "\"rdma-init.io/rails\""});
  }
  expect_errors(rows);
  for (const char* name :
       {"a/b", "vke.volcengine.com/rdma", "spidernet.io/shared_cx5_gpu1", "rdma/hca", "a-b.c/D.e_f"}) {
    const auto parsed =
        hook::parse_config({{"c", pool(R"("modes":["exclusive"],"resource":")" + std::string(name) + "\"")}});
    EXPECT_TRUE(parsed.problems.empty()) << name;
    EXPECT_EQ(parsed.config.pools[0].resource, name);
  }
}

TEST(HookConfigProblems, PoolsAndNetworksThatDoNotFit) {
  const auto both = [](const std::string& pool, const std::string& network) {
    return R"({"pools":[{"name":"p",)" + pool + R"(},{"name":"q"}],"networks":{"n":{)" + network + "}}}";
  };
  const std::string at_pool = "`pools[0].network`: network `n` ";
  expect_errors({
      {both(R"("network":"n")", R"("pool":"q")"), at_pool + "takes HCAs of pool `q` only; give the pool a network of "
                                                            "its own, or remove the network's \"pool\""},
      {both(R"("network":"n","modes":["hca"])", R"("mode":"shared")"),
       at_pool + "has mode shared, which pool `p` does not allow; add it to the pool's \"modes\", or change the "
                 "network's \"mode\""},
      {both(R"("modes":["hca"])", R"("mode":"shared","pool":"p")"),
       "`networks.n.pool`: network `n` has mode shared, which pool `p` does not allow; add it to the pool's \"modes\", "
       "or change the network's \"mode\""},
      {both(R"("network":"n","selectors":{"linkTypes":["infiniband"]})", ""),
       at_pool + "makes macvlan children, which InfiniBand does not carry; write \"child\": \"ipoib\" in the network"},
      {both(R"("network":"n","selectors":{"linkTypes":["ether"]})", R"("child":"ipoib")"),
       at_pool + "makes ipoib children, which only InfiniBand carries; write \"child\": \"macvlan\" or \"ipvlan\" in "
                 "the network"},
      {R"({"networks":{"n":{"mode":"multi"}}})",
       "`networks.n.mode`: `multi` is unknown; known here: exclusive, shared, shared-multi, hca, host"},
      {R"({"networks":{"n":{"pool":"a b"}}})", std::string("`networks.n.pool`: `a b` is no name; ") + kNameRemedy},
      {R"({"networks":{"7":{"chld":"ipoib"}}})", "`networks.7.chld`: unknown key; did you mean `child`?"},
      {R"({"networks":{"n":{"child":"veth"}}})",
       "`networks.n.child`: `veth` is unknown; known here: macvlan, ipvlan, ipoib"},
      {R"({"networks":{"a/b":{}}})", std::string("`networks.a/b`: `a/b` is no name; ") + kNameRemedy},
  });
}

TEST(HookConfigProblems, Values) {
  const std::string octal = "; write an octal text up to 0777, in quotes: \"0666\"";
  const std::string memlock =
      " is no limit; write \"unlimited\", bytes (67108864 or \"64MiB\"), or null to leave the container's limit alone";
  const std::string netdev = "; write a short prefix and %d: \"net%d\"";
  const std::string space =
      " is no Kubernetes namespace; write a namespace or a glob of lower-case letters, digits, - "
      "and *: \"team-a\", \"train-*\"";
  expect_errors({
      {R"({"nodes":{"mode":666}})", "`nodes.mode`: a number, which would be read as decimal" + octal},
      {R"({"nodes":{"mode":"1777"}})", "`nodes.mode`: `1777` are no permissions" + octal},
      {R"({"nodes":{"mode":"0668"}})", "`nodes.mode`: `0668` are no permissions" + octal},
      {R"({"memlock":-1})", "`memlock`: `-1`" + memlock},
      {R"({"memlock":0})", "`memlock`: `0`" + memlock},
      {R"({"memlock":"64MB"})", "`memlock`: `\"64MB\"`" + memlock},
      {R"({"memlock":"16777216TiB"})", "`memlock`: `\"16777216TiB\"`" + memlock},
      {R"({"netdev_names":"net"})", "`netdev_names`: `net` has no %d for the number" + netdev},
      {R"({"netdev_names":"n%s%d"})", "`netdev_names`: `n%s%d` has no %d for the number" + netdev},
      {R"({"netdev_names":"n%d%d"})", "`netdev_names`: `n%d%d` has more than one %" + netdev},
      {R"({"netdev_names":"a/%d"})",
       "`netdev_names`: `a/%d` has a blank, '/', ':' or another character that no netdev's name may have" + netdev},
      {R"({"netdev_names":"thirteenchars%d"})",
       "`netdev_names`: `thirteenchars%d` makes names of 16 bytes, at most 15 fit" + netdev},
      {R"({"annotations_may_request":["Team A"]})", "`annotations_may_request[0]`: `Team A`" + space},
      {R"({"namespacesInclude":[""]})",
       "`namespacesInclude[0]`: expected a text, this is an empty text; write a value, or leave the key out"},
      {R"({"memlock":18446744073709551616})", "`memlock`: `1.8446744073709552e+19`" + memlock},
      {R"({"memlock":"0MiB"})", "`memlock`: `\"0MiB\"`" + memlock},
      {R"({"namespacesExclude":["a_b"]})", "`namespacesExclude[0]`: `a_b`" + space},
      {R"({"trusted_annotations":["rdma-init"]})",
       "`trusted_annotations[0]`: `rdma-init` is unknown; did you mean `rdma-init.io`?"},
      {R"({"rails":["mlx5_0","mlx5_0"]})", "`rails[1]`: `mlx5_0` is there twice; remove one of them"},
      {R"({"default_devices":"0"})",
       "`default_devices`: what a container gets by default: `0`: expected a count from 1 to 1024; all, none, a count, "
       "or a list of HCAs: mlx5_0, netdev:NAME, pci:ADDRESS, rail:N, gpu"},
  });
  EXPECT_TRUE(hook::parse_config({{"c", R"({"netdev_names":"twelve-chars%d"})"}}).ok());
}

}  // namespace
