#include "fabric/snapshot.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "support/inventories.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace {

namespace fs = std::filesystem;

using namespace fabric;
using test_support::TempDir;

// Every key of the format, with values that differ from all defaults.
constexpr const char* kEveryKey = R"json({
 "schema": 1, "about": {"z": 1, "a": [1.5, "\u00e4"]}, "rdma_cm": false, "unknown": {"ignored": true},
 "devices": [{"name": "mlx5_0", "node_guid": "a088:c203:0010:f0a0", "node_type": "1: CA", "pci": "0000:0c:00.0",
  "numa_node": 1, "driver": "mlx5_core", "vendor": "0x15b3", "device_id": "0x1021", "pci_class": "0x020700",
  "physfn": "0000:0c:00.1", "fw_ver": "28.39.1002", "parent": "bond0", "uverbs": 33, "uverbs_dev": "511:1", "accessible": false,
  "access_error": "EPERM", "abi_version": 6,
  "provider": {"path": "/usr/lib64/libibverbs/libmlx5-rdmav34.so", "min": 0, "max": 2147483647}, "pci_path": ["0000:00:01.0", "0000:01:00.0"],
  "ports": [{"port": 2, "state": "1: DOWN", "phys_state": "3: Disabled", "link_layer": "InfiniBand",
   "rate": "2.5 Gb/sec (1X SDR)", "lid": "0x12", "sm_lid": "0x1", "gid_tbl_len": 128,
   "gids": [{"index": 0, "gid": "fe80:0000:0000:0000:a288:c203:0010:f0a0", "type": "IB/RoCE v1", "ndev": "eth0"},
            {"index": 5, "gid": "0000:0000:0000:0000:0000:ffff:0a00:0001", "type": {"errno": "EINVAL"},
             "ndev": {"errno": "EINVAL"}},
            {"index": 7, "gid": "fd00:0000:0000:0000:0000:0000:0000:0001", "ndev": null}]},
   {"port": 1, "state": {"errno": "ENODEV"}, "phys_state": {"errno": "E2000"}, "link_layer": "Unspecified",
    "rate": {"errno": "EINVAL"}, "gids": []}]},
  {"name": "siw0", "pci": null, "uverbs": null, "node_guid": "", "node_type": "", "ports": []}],
 "netdevs": [{"name": "eth0", "mac": "02:00:00:00:00:01", "carrier": 0, "operstate": "down", "dev_id": "0x1",
   "dev_port": 1, "mtu": 9000, "type": 32, "addresses": ["10.0.0.2/24", "fe80::1/64", "fd00::2"],
   "address_attributes": {"10.0.0.2/24": "peer 10.9.0.1 deprecated label net 0", "fe80::1/64": "tentative dadfailed"},
   "in_this_netns": false, "pci": "0000:0c:00.0", "master": "bond0", "slaves": ["a", "b"]},
  {"name": "down0", "carrier": {"errno": "EINVAL"}, "dev_id": null, "addresses": [], "slaves": []}],
 "gpus": [{"pci": "0000:1a:00.0", "numa_node": -1, "pci_path": []},
          {"pci": "0000:1b:00.0", "uuid": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"}],
 "routes": [{"dst": "default", "dev": "eth0", "table": 254}, {"dst": "10.0.0.0/8", "dev": "eth1", "table": 4294967295}],
 "netns_mode": "exclusive",
 "limits": {"memlock_soft": 65536, "memlock_hard": "unlimited", "cap_eff": "000001ffffffffff", "uid": 1000,
  "initial_userns": false},
 "conf": {"/etc/nccl.conf": "NCCL_IB_HCA==mlx5_0\n# \u00e4\r\n"},
 "env": {"NCCL_DEBUG": "INFO", "NCCL_EMPTY": ""}})json";

TEST(SnapshotRead, ReadsEveryKey) {
  const auto parsed = test_support::must(parse_snapshot(kEveryKey));
  EXPECT_EQ(parsed.rdma_cm, false);
  const fabric::Hca& hca = parsed.hcas.at(0);
  EXPECT_EQ(hca.uverbs, 33U);
  EXPECT_EQ(hca.uverbs_dev, "511:1");
  EXPECT_EQ(hca.access_error, EPERM);
  EXPECT_EQ(hca.abi_version, 6U);
  EXPECT_EQ(hca.provider, (fabric::VerbsProvider{"/usr/lib64/libibverbs/libmlx5-rdmav34.so", 0, 2147483647}));
  EXPECT_FALSE(hca.is_rejected());
  EXPECT_EQ(hca.physfn, "0000:0c:00.1");
  EXPECT_EQ(hca.pci_path, (std::vector<std::string>{"0000:00:01.0", "0000:01:00.0"}));
  const fabric::Port& port = hca.ports.at(0);
  EXPECT_EQ(port.number, 2U);
  EXPECT_EQ(port.rate_gbps(), 2.5);
  EXPECT_EQ(port.gid_tbl_len, 128U);
  EXPECT_EQ(port.gids.at(1).type, base::Attr<std::string>(base::Unreadable{EINVAL}));
  EXPECT_FALSE(port.gids.at(2).type) << "absent: not read";
  EXPECT_EQ(hca.ports.at(1).phys_state, base::Attr<std::string>(base::Unreadable{2000}));
  EXPECT_FALSE(parsed.hcas.at(1).is_accessible()) << "no uverbs node";
  EXPECT_TRUE(parsed.netdevs.at(1).dev_id_null);
  EXPECT_FALSE(parsed.netdevs.at(0).addresses.at(2).prefix);
  const auto& addresses = parsed.netdevs.at(0).addresses;
  EXPECT_EQ(addresses[0].peer, parse_address("10.9.0.1"));
  EXPECT_EQ(addresses[0].label, "net 0");
  EXPECT_EQ(parsed.netdevs.at(0).socket_name(), "net 0");
  EXPECT_TRUE(addresses[0].deprecated && !addresses[0].tentative && !addresses[0].dad_failed);
  EXPECT_TRUE(!addresses[1].deprecated && addresses[1].tentative && addresses[1].dad_failed);
  EXPECT_TRUE(addresses[2].label.empty() && !addresses[2].peer);
  EXPECT_EQ(parsed.routes->at(1).table, 4294967295U);
  EXPECT_EQ(parsed.netns_mode, fabric::NetnsMode::kExclusive);
  EXPECT_EQ(parsed.limits->memlock_hard, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parsed.limits->cap_eff, 0x1ffffffffffULL);
  EXPECT_EQ(parsed.env->at("NCCL_EMPTY"), "");
}

TEST(SnapshotRead, UsesDefaultsForMissingKeys) {
  const auto parsed = test_support::must(
      parse_snapshot(R"({"devices": [{"name": "a", "uverbs": 0, "ports": [{}]}], "netdevs": [{"name": "b"}]})"));
  EXPECT_TRUE(parsed.hcas[0].is_accessible());
  EXPECT_TRUE(parsed.hcas[0].ports[0].is_active());
  EXPECT_EQ(parsed.hcas[0].ports[0].number, 1U);
  EXPECT_TRUE(parsed.netdevs[0].is_here());
  EXPECT_TRUE(parsed.netdevs[0].is_up());
  EXPECT_FALSE(parsed.gpus || parsed.routes || parsed.limits || parsed.conf || parsed.env || parsed.netns_mode);
  EXPECT_EQ(*parse_snapshot("{}"), Inventory{});
}

void expect_round_trip(const std::string& text) {
  const auto first = test_support::must(parse_snapshot(text));
  const std::string written = write_snapshot(first);
  const auto second = test_support::must(parse_snapshot(written));
  EXPECT_TRUE(second == first) << written;
  EXPECT_EQ(write_snapshot(second), written);
}

TEST(SnapshotRoundTrip, KeepsEveryMember) {
  expect_round_trip(kEveryKey);
  expect_round_trip("{}");
  expect_round_trip(R"({"limits": {}, "gpus": [], "routes": [], "conf": {}, "env": {}})");
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(FIXTURES)) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".json") || path.ends_with(".expect.json")) continue;
    SCOPED_TRACE(path);
    ++count;
    expect_round_trip(test_support::read_file(path));
  }
  EXPECT_GE(count, 18U);
  Inventory inventory;  // with the largest numbers
  inventory.limits = fabric::Limits{std::numeric_limits<std::uint64_t>::max() - 1, 0,
                                    std::numeric_limits<std::uint64_t>::max(), 4294967295U, true};
  inventory.routes = {{"::/0", "x", 4294967295U}};
  EXPECT_TRUE(test_support::must(parse_snapshot(write_snapshot(inventory))) == inventory);
}

TEST(SnapshotWrite, ReplacesInvalidUtf8) {
  Inventory inventory = test_support::rails(1);
  inventory.hcas[0].name = "mlx\xff";
  const std::string written = write_snapshot(inventory);
  EXPECT_NE(written.find("mlx\\ufffd"), std::string::npos);
  EXPECT_TRUE(parse_snapshot(written));
}

TEST(SnapshotRead, NamesThePlaceInErrors) {
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"no object", "[]", "expected a JSON object"},
      {"number", "1", "expected a JSON object"},
      {"schema", R"({"schema": 2})", "schema 2 is not known, this version reads schema 1"},
      {"schema type", R"({"schema": "1"})",
       "schema: expected an integer from -9223372036854775808 to 9223372036854775807"},
      {"devices type", R"({"devices": {}})", "devices: expected a list"},
      {"device type", R"({"devices": [1]})", "devices[0]: expected an object"},
      {"nameless", R"({"devices": [{"name": "a"}, {}]})", "devices[1].name: expected the device's name"},
      {"name type", R"({"devices": [{"name": 5}]})", "devices[0].name: expected a string"},
      {"rate type", R"({"devices": [{"name": "a", "ports": [{"rate": 400}]}]})",
       "devices[0].ports[0].rate: expected a string or {\"errno\": NAME}"},
      {"unknown errno", R"({"devices": [{"name": "a", "ports": [{"rate": {"errno": "EWHAT"}}]}]})",
       "devices[0].ports[0].rate: expected a string or {\"errno\": NAME}"},
      {"gid text", R"({"devices": [{"name": "a", "ports": [{"gids": [{"index": 0, "gid": "zz"}]}]}]})",
       "devices[0].ports[0].gids[0].gid: expected a GID"},
      {"negative index", R"({"devices": [{"name": "a", "ports": [{"gids": [{"index": -1, "gid": "fe80::1"}]}]}]})",
       "devices[0].ports[0].gids[0].index: expected an integer from 0 to 65535"},
      {"endless table", R"({"devices": [{"name": "a", "ports": [{"gid_tbl_len": 4294967295}]}]})",
       "devices[0].ports[0].gid_tbl_len: expected an integer from 0 to 65535"},
      {"fraction", R"({"devices": [{"name": "a", "uverbs": 1.5}]})",
       "devices[0].uverbs: expected an integer from 0 to 4294967295"},
      {"beyond 32 bits", R"({"devices": [{"name": "a", "uverbs": 4294967296}]})",
       "devices[0].uverbs: expected an integer from 0 to 4294967295"},
      {"beyond 64 bits", R"({"limits": {"memlock_soft": 18446744073709551616}})",
       "limits.memlock_soft: expected an integer from 0 to 18446744073709551615"},
      {"negative limit", R"({"limits": {"memlock_soft": -2}})",
       "limits.memlock_soft: expected an integer from 0 to 18446744073709551615"},
      {"limit word", R"({"limits": {"memlock_hard": "lots"}})", "limits.memlock_hard: expected bytes or \"unlimited\""},
      {"access error", R"({"devices": [{"name": "a", "access_error": "no"}]})",
       "devices[0].access_error: expected the name of an errno"},
      {"half a provider", R"({"devices": [{"name": "a", "provider": {"path": "/a", "min": 1}}]})",
       "devices[0].provider.max: expected an ABI version"},
      {"boolean", R"({"devices": [{"name": "a", "accessible": 1}]})", "devices[0].accessible: expected true or false"},
      {"path element", R"({"devices": [{"name": "a", "pci_path": ["x", 1]}]})",
       "devices[0].pci_path[1]: expected a string"},
      {"netdev address", R"({"netdevs": [{"name": "a", "addresses": ["10.0.0.1/24", "x"]}]})",
       "netdevs[0].addresses[1]: expected ADDRESS/PREFIX"},
      {"netdev prefix", R"({"netdevs": [{"name": "a", "addresses": ["10.0.0.1/x"]}]})",
       "netdevs[0].addresses[0]: expected ADDRESS/PREFIX"},
      {"carrier", R"({"netdevs": [{"name": "a", "carrier": "up"}]})",
       "netdevs[0].carrier: expected an integer from -2147483648 to 2147483647"},
      {"mode", R"({"netns_mode": "both"})", "netns_mode: expected \"shared\" or \"exclusive\""},
      {"limits type", R"({"limits": []})", "limits: expected an object"},
      {"env value", R"({"env": {"A\u001b": 1}})", "env.A?: expected a string"},
      {"conf type", R"({"conf": []})", "conf: expected an object of strings"},
      {"gpus type", R"({"gpus": 1})", "gpus: expected a list"}};
  for (const auto& [name, json, message] : rows) {
    SCOPED_TRACE(name);
    const auto parsed = parse_snapshot(json);
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().message, message);
  }
}

TEST(SnapshotRead, RefusesBrokenJsonWithOneLine) {
  const std::string text = kEveryKey;
  std::size_t refused = 0;
  for (std::size_t size = 0; size < text.size(); size += 3) {
    const auto parsed = parse_snapshot(std::string_view(text).substr(0, size));
    ASSERT_FALSE(parsed) << "cut at " << size;
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
    EXPECT_TRUE(parsed.error().message.starts_with("not valid JSON: ")) << parsed.error().message;
    ++refused;
  }
  EXPECT_GT(refused, 100U);
  for (const char* bad : {"{\"a\": \"\x80\"}", "{\"a\": \"\x1b\"}", "{\"a\": 1e999}", "{} {}", "{\"a\": nan}", "\xff"})
    EXPECT_FALSE(parse_snapshot(bad)) << bad;
}

TEST(SnapshotRead, RefusesDeepNesting) {
  const auto nested = [](int depth) {
    return "{\"about\": " + std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']') + "}";
  };
  EXPECT_TRUE(parse_snapshot(nested(fabric::kMaxSnapshotDepth - 1)));
  EXPECT_EQ(parse_snapshot(nested(fabric::kMaxSnapshotDepth)).error().message, "nested deeper than 64 levels");
  EXPECT_FALSE(parse_snapshot(std::string(5000000, '[')));
  EXPECT_TRUE(parse_snapshot("{\"about\": \"[[[\\\"[[[" + std::string(100, '[') + "\"}")) << "brackets in a string";
}

TEST(SnapshotRead, SortsTheGidTableAndUsesTheLastOfTwoKeys) {
  const auto sorted = test_support::must(parse_snapshot(R"({"devices": [{"name": "a", "ports": [{"gids": [
    {"index": 5, "gid": "fe80::5"}, {"index": 1, "gid": "fe80::1"}]}]}]})"));
  EXPECT_EQ(sorted.hcas[0].ports[0].gids[0].index, 1U);
  const auto parsed = test_support::must(
      parse_snapshot(R"({"devices": 5, "env": {"A": "1", "A": "2"}, "devices": [{"name": "a", "name": "b"}]})"));
  EXPECT_EQ(parsed.hcas.at(0).name, "b");
  EXPECT_EQ(parsed.env->at("A"), "2");
}

TEST(SnapshotFile, NamesTheFileInErrors) {
  const TempDir dir;
  EXPECT_EQ(fabric::read_snapshot(dir / "missing\x1b.json").error().message,
            "open snapshot `" + dir.path() + "/missing?.json`: No such file or directory");
  EXPECT_NE(fabric::read_snapshot(dir / "missing").error().hint, "");
  EXPECT_EQ(fabric::read_snapshot(dir.path()).error().code, EISDIR);
  test_support::write_file(dir / "bad.json", "{\"schema\": 9}");
  EXPECT_EQ(fabric::read_snapshot(dir / "bad.json").error().message,
            "snapshot `" + dir.path() + "/bad.json`: schema 9 is not known, this version reads schema 1");
  test_support::write_file(dir / "good.json", "{}");
  EXPECT_TRUE(fabric::read_snapshot(dir / "good.json"));
}

// `... | rdma-init doctor --snapshot -`: the writer may start late and pause.
TEST(SnapshotFile, ReadsASlowPipeToItsEndAndTimesOutWithoutAWriter) {
  const TempDir dir;
  const std::string path = dir / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ::alarm(60);  // fail instead of hanging
  EXPECT_EQ(fabric::read_snapshot(path).error().code, ETIMEDOUT);
  ::alarm(0);
  const std::string text = write_snapshot(test_support::rails(64));
  const pid_t writer = fork();
  if (writer == 0) {
    FILE* pipe = std::fopen(path.c_str(), "we");
    usleep(50000);
    for (std::size_t at = 0; at < text.size(); at += text.size() / 3) {
      std::fwrite(text.data() + at, 1, std::min(text.size() / 3, text.size() - at), pipe);
      std::fflush(pipe);
      usleep(20000);
    }
    _exit(0);
  }
  const auto inventory = fabric::read_snapshot(path);
  waitpid(writer, nullptr, 0);
  ASSERT_TRUE(inventory) << inventory.error().message;
  EXPECT_EQ(inventory->hcas.size(), 64U);
}

}  // namespace
