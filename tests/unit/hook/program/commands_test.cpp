#include "hook/program/devices.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "fabric/snapshot.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/program/commands.hpp"
#include "support/arguments.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace hook {
namespace {

// The output of `rdma-hook devices`; its text does not grow with the number of owners.

Grant grant_of(unsigned number, const std::vector<std::string>& hcas) {
  Grant grant;
  grant.owner = {Owner::Kind::kContainer, fmt::format("key-{}", number), fmt::format("container c{}", number), {}};
  for (const std::string& name : hcas)
    grant.hcas.push_back({.name = name, .mode = Mode::kSharedMulti, .units = 2, .limit = std::nullopt});
  grant.users.push_back({grant.owner.key, fmt::format("c{}", number), std::nullopt});
  return grant;
}

NetworkRecord record_of(const Grant& grant) {
  RailRecord rail;
  rail.rail.name = "net1";
  rail.rail.hca = grant.hcas.front().name;
  rail.rail.host = "rail_0";
  rail.gid_index = 5;
  return {grant.owner.key, {4, 17, "/var/run/netns/cni-1"}, 0, {rail}};
}

DeviceOwners owners_of(unsigned grants, bool all) {
  DeviceOwners owners(all);
  for (unsigned number = 0; number < grants; ++number) {
    Grant grant = grant_of(number, {"mlx5_0", "mlx5_9"});
    grant.stale = number % 2 == 1;
    owners.add(grant, owners.shows(grant) ? std::optional(record_of(grant)) : std::nullopt);
  }
  return owners;
}

std::string text_of(const DeviceOwners& owners) {
  std::string all;
  write_devices_text(test_support::rails(2, 4), {}, owners, [&](const std::string& text) { all += text; });
  return all;
}

std::string json_of(const DeviceOwners& owners, unsigned hcas) {
  std::string all;
  write_devices_json(test_support::rails(hcas, 4), {}, owners, [&](const std::string& text) { all += text; });
  return all;
}

TEST(Devices, WritesOneJsonDocumentInPieces) {
  for (const unsigned grants : {0U, 1U, 12U}) {
    for (const unsigned hcas : {0U, 2U}) {
      const std::string text = json_of(owners_of(grants, true), hcas);
      const Json document = Json::parse(text);
      EXPECT_EQ(document.dump(2) + "\n", text);
      EXPECT_EQ(document["grants"], grants);
      EXPECT_EQ(document["hcas"].size(), hcas + (grants == 0 ? 0
                                                 : hcas == 0 ? 2
                                                             : 1))
          << "with HCAs in containers' namespaces";
      for (const Json& hca : document["hcas"])
        EXPECT_EQ(hca["holders"].size(), hca["name"] == "mlx5_1" ? 0 : grants);
    }
  }
}

TEST(Devices, DescribesOwner) {
  const Json document = Json::parse(json_of(owners_of(1, true), 1));
  EXPECT_EQ(document["hcas"][0]["holders"][0], Json::parse(R"({
    "grant": "key-0", "holder": "container c0", "mode": "shared-multi", "units": 2, "containers": ["c0"],
    "since": "1970-01-01T00:00:00Z", "netns": "/var/run/netns/cni-1",
    "rails": [{"name": "net1", "rail": 0, "kind": "macvlan", "host": "rail_0", "addresses": [], "gid_index": 5}],
    "gone": false})"));
  EXPECT_EQ(document["hcas"][1]["away"], true);
  EXPECT_EQ(document["hcas"][1]["holders"][0]["rails"], Json::array());
}

TEST(Devices, MasksTheTokenOfAGrant) {
  const std::string token(32, 'a');
  for (const bool all : {false, true}) {
    DeviceOwners owners(all);
    Grant grant = grant_of(0, {"mlx5_0"});
    grant.owner = token_owner(token);
    owners.add(grant, std::nullopt);
    EXPECT_EQ((all ? json_of(owners, 1) : text_of(owners)).find(token), std::string::npos);
    if (!all) continue;
    EXPECT_EQ(Json::parse(json_of(owners, 1))["hcas"][0]["holders"][0]["grant"], shown_key("token-" + token));
  }
}

TEST(Devices, SumsUpManyOwnersInText) {
  const std::string few = text_of(owners_of(8, false));
  EXPECT_NE(few.find("  held by container c7 since 1970-01-01T00:00:00Z, shared-multi x2; it has\n"
                     "      ended: `rdma-hook recover` releases it\n"
                     "    net1 (macvlan of rail_0) at GID index 5\nmlx5_1 "),
            std::string::npos)
      << few;
  EXPECT_EQ(few.find("more"), std::string::npos);
  const std::string many = text_of(owners_of(1000, false));
  const std::string more =
      "  held by 992 more, shared-multi x1984; 496 have ended: `rdma-hook recover`\n"
      "      releases them; --json lists them\n";
  EXPECT_NE(many.find(more + "mlx5_1 "), std::string::npos) << many;
  EXPECT_LE(many.size(), few.size() + 2 * more.size());
  EXPECT_TRUE(many.ends_with(more)) << "also for HCAs in containers' namespaces";
}

TEST(Devices, FitsLongNamesIn80Columns) {
  fabric::Inventory node = test_support::rails(3, 4);
  node.hcas[0].name = "mlx5_bond_of_the_second_rail";
  node.hcas[1].name = std::string(63, 'h');
  node.hcas[1].ports.push_back(node.hcas[1].ports.front());
  node.hcas[2].name = std::string(100, 'H');
  for (fabric::Hca& hca : node.hcas)
    hca.ports[0].rate = "400 Gb/sec (4X NDR)";
  DeviceOwners owners(false);
  for (unsigned number = 0; number < 3; ++number) {
    Grant grant = grant_of(number, {node.hcas[number].name, std::string(63, 'a') + std::to_string(number)});
    grant.owner.label = fmt::format("pod {}/{}", std::string(63, 'n'), std::string(200, 'p'));
    NetworkRecord record = record_of(grant);
    for (const char* address : {"2001:db8:ffff:ffff:ffff:ffff:ffff:fff1", "2001:db8:ffff:ffff:ffff:ffff:ffff:fff2"})
      record.rails[0].rail.addresses.push_back({test_support::address(address), 64, {}});
    owners.add(grant, std::move(record));
  }
  std::string text;
  write_devices_text(node, {}, owners, [&](const std::string& part) { text += part; });
  for (const std::string_view line : base::split(text, '\n')) {
    EXPECT_LE(line.size(), 80U) << text;
    EXPECT_FALSE(line.ends_with(' ')) << text;
  }
  EXPECT_NE(text.find(node.hcas[0].name + " "), std::string::npos) << text;
  EXPECT_NE(text.find(node.hcas[1].name + " 0000:11:00.0 all\n    rail1 "), std::string::npos) << text;
  EXPECT_NE(text.find("\n" + std::string(73, 'H') + "...\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" 1:ACTIVE Ethernet 400 Gb/sec\n"), std::string::npos) << text;
  std::string json;
  write_devices_json(node, {}, owners, [&](const std::string& part) { json += part; });
  EXPECT_NE(json.find(node.hcas[2].name), std::string::npos);
  EXPECT_NE(json.find("400 Gb/sec (4X NDR)"), std::string::npos);
}

TEST(Devices, KeepsOnlyPrintedOwners) {
  EXPECT_EQ(owners_of(1000, false).owners().size(), 8U);
  EXPECT_EQ(owners_of(1000, true).owners().size(), 1000U);
  const DeviceOwners owners = owners_of(100, false);
  EXPECT_FALSE(owners.shows(grant_of(0, {"mlx5_0", "mlx5_9"})));
  EXPECT_TRUE(owners.shows(grant_of(0, {"mlx5_0", "mlx5_1"})));
}

// `rdma-hook plan` of a snapshot: its output equals the state after a start.

struct PlanCommand {
  fabric::Inventory node = test_support::rails(2);
  Json container = {{"process", {{"args", {"trainer"}}}},
                    {"root", {{"path", "rootfs"}}},
                    {"annotations", {{"rdma-init.io/devices", "1"}}},
                    {"linux", {{"namespaces", {{{"type", "network"}}}}}}};
  Json config = Json::object();
  bool has_bundle = true;
  test_support::TempDir directory = {};
  std::string errors = {};  // on the standard error output

  std::string run(int expected_code, std::vector<std::string> arguments = {}) {
    test_support::write_file(directory / "config.json", container.dump());
    test_support::write_file(directory / "admin.json", config.dump());
    test_support::write_file(directory / "node.json", fabric::write_snapshot(node));
    arguments.insert(arguments.begin(), "plan");
    if (has_bundle) arguments.insert(arguments.end(), {"--bundle", directory.path()});
    arguments.insert(arguments.end(), {"--config", directory / "admin.json", "--snapshot", directory / "node.json",
                                       "--ledger", directory / "ledger"});
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_command(parse_options(test_support::pointers_to(arguments)).value()), expected_code);
    errors = testing::internal::GetCapturedStderr();
    return testing::internal::GetCapturedStdout();
  }
  Json json(int expected_code = 0) { return Json::parse(run(expected_code, {"--json"})); }
};

TEST(PlanCommand, PrintsWarningsWithRefusal) {
  PlanCommand command;
  command.container["annotations"]["rdma-init.io/devices"] = "gpu";
  command.container["process"]["env"] = {"NVIDIA_VISIBLE_DEVICES=" + std::string(131072, 'x')};
  const std::string warning = "variable NVIDIA_VISIBLE_DEVICES: 131072 bytes; the maximum is 65536; it is ignored";
  const Json refused = command.json(1);
  EXPECT_EQ(refused["error"], "annotation rdma-init.io/devices: no GPU of the container is known");
  EXPECT_NE(refused["hint"].get<std::string>().find("\"env_may_request\""), std::string::npos);
  EXPECT_NE(refused["hint"].get<std::string>().find("MIG"), std::string::npos);
  EXPECT_EQ(refused["warnings"], Json::array({warning}));
  EXPECT_EQ(command.run(1), "");
  EXPECT_LT(command.errors.find("warning: " + warning), command.errors.find("error: ")) << command.errors;
}

TEST(PlanCommand, DoesNotCheckRailsOfSnapshotWithoutNetdevs) {
  PlanCommand command;
  command.node.netdevs.clear();
  command.config = {{"networks", {{"a", {{"mode", "shared"}, {"addresses", {{{"subnet", "10.9.0.0/16"}}}}}}}},
                    {"pools", {{{"name", "p"}, {"modes", {"shared"}}, {"network", "a"}}}}};
  const Json plan = command.json();
  EXPECT_EQ(plan["warnings"], Json::array({"the rails were not checked: the snapshot has no netdevs"}));
  EXPECT_EQ(plan["netdevs"], Json::parse(R"([{"host":null,"name":"net1","mode":"shared","hca":"mlx5_0","rail":0}])"));
  EXPECT_EQ(plan["rails"], Json::array());
  command.config["pools"][0]["modes"] = {"exclusive"};
  command.config["networks"]["a"] = {{"mode", "exclusive"}};
  EXPECT_EQ(command.json()["env"], (Json{{"RDMA_INIT_REQUIRE", "1"}}));
  EXPECT_NE(command.run(0).find("netdev      net1  exclusive of ? (mlx5_0, rail 0)\n"), std::string::npos);
}

TEST(PlanCommand, PrintsFinalMemlock) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const struct {
    const char* name;
    Json wanted;
    std::uint64_t soft, hard;
    Json expected;
    bool warns;
  } rows[] = {{"unlimited is listed", kMiB, UINT64_MAX, UINT64_MAX, "unlimited", false},
              {"more is listed", kMiB, 8 * kMiB, 8 * kMiB, 8 * kMiB, false},
              {"the hard limit is higher", kMiB, 65536, 8 * kMiB, 65536, true},
              {"less is listed", "unlimited", 65536, 65536, 65536, true}};
  PlanCommand command;
  command.container["process"]["env"] = {"RDMA_INIT_REQUIRE=1"};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    command.config["memlock"] = row.wanted;
    command.container["process"]["rlimits"] =
        Json::array({Json{{"type", "RLIMIT_MEMLOCK"}, {"soft", row.soft}, {"hard", row.hard}}});
    const Json plan = command.json();
    EXPECT_EQ(plan["memlock"], row.expected);
    EXPECT_EQ(plan["warnings"].size(), row.warns ? 1U : 0U) << plan["warnings"];
  }
  EXPECT_EQ(command.json()["warnings"][0],
            "RLIMIT_MEMLOCK is unlimited with crun, rdma-runtime or rdma-nri; otherwise: cannot set RLIMIT_MEMLOCK to "
            "unlimited at createRuntime: the runtime sets 65536 bytes from config.json after this hook; remove the "
            "limit from the engine's options, raise it (process.rlimits of config.json), or use rdma-runtime");
}

TEST(PlanCommand, PlansEmptyContainerWithAnnotations) {
  PlanCommand command;
  command.container["annotations"] = {{"rdma-init.io/devices", "mlx5_1"}, {"rdma-init.io/mode", "hca"}};
  command.container["mounts"] = {{{"destination", "/sys"}, {"type", "sysfs"}, {"source", "sysfs"}}};
  const Json by_bundle = command.json();
  EXPECT_EQ(by_bundle["hcas"], Json::array({"mlx5_1"}));
  EXPECT_FALSE(by_bundle["mounts"].empty());
  command.has_bundle = false;
  command.container = Json::object();
  const std::vector<std::string> annotations = {"--json", "--annotation", "rdma-init.io/devices=mlx5_1",
                                                "--annotation=rdma-init.io/mode=hca"};
  Json plan = Json::parse(command.run(0, annotations));
  EXPECT_EQ(plan["engine"], (Json{{"name", "runc"}, {"by", "the default without a bundle"}}));
  plan["engine"] = by_bundle["engine"];
  EXPECT_EQ(plan, by_bundle);
}

TEST(PlanCommand, AppliesNamespaceOfAnnotationsMayRequest) {
  PlanCommand command;
  command.has_bundle = false;
  command.config["annotations_may_request"] = {"ml"};
  const auto hcas = [&](const std::string& name_space, const std::string& engine) {
    return Json::parse(command.run(0, {"--json", "--annotation=rdma-init.io/devices=all", "--namespace", name_space,
                                       "--engine=" + engine}))["hcas"];
  };
  for (const char* engine : {"containerd", "crio"}) {
    EXPECT_EQ(hcas("ml", engine).size(), 2U) << engine;
    EXPECT_EQ(hcas("web", engine).size(), 0U) << engine;
  }
  const Json plan =
      Json::parse(command.run(0, {"--json", "--annotation=rdma-init.io/devices=all", "--namespace", "ml"}));
  EXPECT_EQ(plan["engine"], (Json{{"name", "containerd"}, {"by", "the default with --namespace"}}));
  EXPECT_EQ(plan["hcas"].size(), 2U);
}

// Returns how often a text occurs.
std::size_t count_of(std::string_view part, std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size())
    ++count;
  return count;
}

TEST(PlanCommand, PrintsEachWarningOnce) {
  PlanCommand command;
  const Json node{{"path", "/dev/infiniband/uverbs77"}, {"type", "c"}, {"major", 231}, {"minor", 269}};
  command.container["linux"]["devices"] = {node, node};
  command.container["annotations"] = Json::object();
  const std::string text = command.run(0) + command.errors;
  EXPECT_EQ(count_of("`/dev/infiniband/uverbs77` in linux.devices belongs to no HCA", text), 1U) << text;
  EXPECT_EQ(command.json()["warnings"].size(), 1U);
}

TEST(DevicesCommand, ReportsUnreadableNetdevsOfTwoPortsOnce) {
  fabric::Inventory node = test_support::rails(1, 4);
  node.hcas[0].ports.push_back(node.hcas[0].ports.front());
  node.hcas[0].ports[1].number = 2;
  const test_support::TempDir directory;
  const std::string root = directory / "node";
  test_support::lay_out(node, root, {.full = true});
  const std::string netdevs = root + "/sys/class/infiniband/mlx5_0/device/net";
  std::filesystem::remove_all(netdevs);
  std::filesystem::create_symlink(netdevs, netdevs);  // ELOOP: it exists and cannot be read
  std::vector<std::string> arguments = {"devices", "--root", root, "--ledger", directory / "ledger"};
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_command(parse_options(test_support::pointers_to(arguments)).value()), 0);
  testing::internal::GetCapturedStdout();
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of("warning: cannot read `" + netdevs + "`", errors), 1U) << errors;
}

TEST(PlanCommand, KeepsRequireOfContainer) {
  PlanCommand command;
  command.container["annotations"]["rdma-init.io/devices"] = "all";
  const auto warnings_of = [&](const std::string& own) {
    command.container["process"]["env"] = {"RDMA_INIT_REQUIRE=" + own};
    const Json plan = command.json();
    EXPECT_EQ(plan["env"], (Json{{"RDMA_INIT_REQUIRE", own}}));
    return plan["warnings"];
  };
  for (const bool host_network : {false, true}) {
    SCOPED_TRACE(host_network);
    if (host_network) command.container["linux"]["namespaces"] = Json::array();
    for (const char* own : {"2", "0", "02", ""})
      EXPECT_EQ(warnings_of(own), Json::array()) << own << ": the variable is optional";
    const char* const no_number =
        "the container's RDMA_INIT_REQUIRE `{}` is not a number, so rdma-init will not start the trainer: correct it "
        "in the pod or remove it";
    for (const char* own : {"abc", "8 ", "-1", "99999999999"})
      EXPECT_EQ(warnings_of(own), Json::array({fmt::format(fmt::runtime(no_number), own)}));
  }
  const std::string start = "the container's RDMA_INIT_REQUIRE 3 is above the ";
  const std::string rest =
      " that it can use, so rdma-init will not start the trainer: lower it in the pod or request more HCAs";
  EXPECT_EQ(warnings_of("3"), Json::array({start + "2 HCAs" + rest}));
  command.node.hcas[0].ports[0].state = "1: DOWN";
  EXPECT_EQ(warnings_of("3").back(), start + "1 HCA" + rest + " (for the other HCAs: no port is ACTIVE)");
}

}  // namespace
}  // namespace hook
