// The node's HCAs as CDI devices, and the file they are written to.
#include "hook/apply/cdi_spec.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "fabric/snapshot.hpp"
#include "hook/base/json/json.hpp"
#include "hook/base/process/identity.hpp"
#include "hook/program/commands.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace hook {
namespace {

using test_support::rails;
using test_support::TempDir;

struct Made {
  Json spec;
  std::vector<std::string> warnings;
};

Made made(const fabric::Inventory& inventory, const Config& config = {}) {
  Made result;
  auto spec = cdi_spec(inventory, config, {.kind = kCdiKind, .hook = "/usr/bin/rdma-hook", .engine = Engine::kDocker},
                       result.warnings);
  EXPECT_TRUE(spec) << spec.error().message;
  if (spec) result.spec = std::move(spec).value();
  return result;
}

std::string said(const fabric::Result<void>& result) {
  return result ? "" : result.error().message;
}

// "mlx5_0: /dev/infiniband/uverbs0", a line per device.
std::string devices_of(const Json& spec) {
  std::string text;
  for (const Json& device : spec["devices"]) {
    text += device["name"].get<std::string>() + ":";
    for (const Json& node : device["containerEdits"]["deviceNodes"])
      text += " " + node["path"].get<std::string>();
    text += "\n";
  }
  return text;
}

TEST(CdiSpec, OneDeviceForEachHcaAndOneForAll) {
  const Json spec = made(rails(2)).spec;
  EXPECT_EQ(spec["cdiVersion"], "0.3.0");
  EXPECT_EQ(spec["kind"], "rdma-init.io/hca");
  EXPECT_EQ(devices_of(spec),
            "mlx5_0: /dev/infiniband/uverbs0\n"
            "mlx5_1: /dev/infiniband/uverbs1\n"
            "all: /dev/infiniband/uverbs0 /dev/infiniband/uverbs1\n");
  EXPECT_EQ(spec["devices"][0]["containerEdits"]["deviceNodes"][0].dump(),
            R"({"path":"/dev/infiniband/uverbs0","type":"c","fileMode":438,"permissions":"rw","uid":0,"gid":0})");
  const Json& common = spec["containerEdits"];
  ASSERT_EQ(common["deviceNodes"].size(), 1U);
  EXPECT_EQ(common["deviceNodes"][0]["path"], "/dev/infiniband/rdma_cm");
  EXPECT_EQ(common["hooks"][0].dump(), R"({"hookName":"createRuntime","path":"/usr/bin/rdma-hook",)"
                                       R"("args":["rdma-hook","createRuntime","--engine","docker"]})");
  EXPECT_EQ(common["hooks"][1]["hookName"], "poststop");
}

TEST(CdiSpec, OnlyWhatAPoolHas) {
  Config config;
  Pool rails_pool;
  rails_pool.name = "rails";
  rails_pool.selectors.if_names = {"rail1"};
  rails_pool.modes = {Mode::kShared};
  config.pools.push_back(rails_pool);
  EXPECT_EQ(devices_of(made(rails(3), config).spec), "mlx5_1: /dev/infiniband/uverbs1\nall: /dev/infiniband/uverbs1\n");
}

TEST(CdiSpec, NodesAsTheConfigurationSays) {
  Config config;
  config.nodes.rdma_cm = false;
  config.nodes.mode = 0660;
  config.nodes.gid = 44;
  config.nodes.umad = true;
  auto inventory = rails(1);
  inventory.hcas[0].mad_nodes = {{"umad0", "231:0", 1, ""}, {"issm0", "231:64", 1, ""}};
  const Json spec = made(inventory, config).spec;
  EXPECT_EQ(devices_of(spec),
            "mlx5_0: /dev/infiniband/uverbs0 /dev/infiniband/umad0\n"
            "all: /dev/infiniband/uverbs0 /dev/infiniband/umad0\n");
  EXPECT_FALSE(spec["containerEdits"].contains("deviceNodes"));
  EXPECT_EQ(spec["devices"][0]["containerEdits"]["deviceNodes"][1]["fileMode"], 0660);
  EXPECT_EQ(spec["devices"][0]["containerEdits"]["deviceNodes"][1]["gid"], 44);
}

TEST(CdiSpec, WhatIsLeftOutIsSaid) {
  auto inventory = rails(3);
  inventory.hcas[0].uverbs.reset();
  inventory.hcas[1].name = "mlx5 1";
  const Made spec = made(inventory);
  EXPECT_EQ(devices_of(spec.spec), "mlx5_2: /dev/infiniband/uverbs2\nall: /dev/infiniband/uverbs2\n");
  EXPECT_EQ(spec.warnings, (std::vector<std::string>{"`mlx5_0` has no uverbs node: left out",
                                                     "`mlx5 1` is no name that CDI allows: left out"}));
}

TEST(CdiSpec, NothingToOfferIsAnError) {
  std::vector<std::string> warnings;
  const auto spec = cdi_spec({}, {}, {.kind = kCdiKind, .hook = "/h", .engine = Engine::kPodman}, warnings);
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().message, "this node has no HCA to offer");
}

TEST(CdiKind, VendorAndClass) {
  for (const char* good : {"rdma-init.io/hca", "nvidia.com/net-rdma", "a/b", "Vendor_1.x/c_d-e"})
    EXPECT_TRUE(check_cdi_kind(good)) << good;
  for (const char* bad : {"", "hca", "/hca", "v/", "1v/c", "v/1c", "v-/c", "v/c.d", "v/c/d", "v c/d"})
    EXPECT_FALSE(check_cdi_kind(bad)) << bad;
  EXPECT_EQ(check_cdi_kind("a b").error().message, "`a b` is no kind of CDI devices");
}

TEST(GenerateCdi, WritesWholeAndOnlyWhatChanged) {
  const TempDir temp;
  Options options;
  options.command = Command::kCdiGenerate;
  options.node.config = {"", "", false};
  options.hook = "/usr/bin/rdma-hook";
  options.node.snapshot = temp / "node.json";
  options.out = temp / "cdi.json";
  test_support::write_file(*options.node.snapshot, fabric::write_snapshot(rails(1)));
  ASSERT_EQ(said(generate_cdi(options, Log())), "");
  const std::string text = test_support::read_file(*options.out);
  EXPECT_EQ(parse_json(text, "it")->at("devices").size(), 2U);
  struct stat first {};
  ASSERT_EQ(::stat(options.out->c_str(), &first), 0);
  EXPECT_EQ(first.st_mode & 07777U, 0644U);

  ASSERT_EQ(said(generate_cdi(options, Log())), "");
  struct stat again {};
  ASSERT_EQ(::stat(options.out->c_str(), &again), 0);
  EXPECT_EQ(again.st_ino, first.st_ino) << "the same text is not written again";

  test_support::write_file(*options.node.snapshot, "{}");
  EXPECT_NE(said(generate_cdi(options, Log())), "");
  EXPECT_EQ(test_support::read_file(*options.out), text) << "an error changes nothing";

  test_support::write_file(*options.node.snapshot, fabric::write_snapshot(rails(2)));
  ASSERT_EQ(said(generate_cdi(options, Log())), "");
  EXPECT_EQ(parse_json(test_support::read_file(*options.out), "it")->at("devices").size(), 3U);

  options.out = temp / "missing/cdi.json";
  const auto missing = generate_cdi(options, Log());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().hint, "make its directory: engines read /etc/cdi and /var/run/cdi");
}

TEST(CdiFile, WhatAKilledProcessWasWritingIsSwept) {
  const TempDir directory;
  struct stat space {};
  ASSERT_EQ(::stat("/proc/self/ns/pid", &space), 0);
  const auto self = identify(::getpid()).value();
  const auto other = identify(::getppid()).value();
  const std::string dead = fmt::format("{}.{}.{}.tmp", space.st_ino, ::getpid(), self.start_time - 1);
  const std::string left = "a.json.rdma-hook-" + dead;
  const std::string kept[] = {
      fmt::format("a.json.rdma-hook-{}.{}.{}.tmp", space.st_ino, other.pid, other.start_time),
      fmt::format("a.json.rdma-hook-{}.{}.{}.tmp", space.st_ino + 1, self.pid, self.start_time - 1),
      "a.json." + dead,
      "a.json.rdma-hook-" + dead + "x",
      "a.json.rdma-hook-.tmp",
      "a.json.rdma-hook-1.tmp",
      "a.json.123.tmp",
  };
  test_support::write_file(directory / left, "{");
  for (const std::string& name : kept)
    test_support::write_file(directory / name, "{");

  Options options;
  options.command = Command::kCdiGenerate;
  test_support::lay_out(rails(1), directory / "node");
  options.node.root = directory / "node";
  options.node.config = {"", "", false};
  options.out = directory / "a.json";
  const auto generated = generate_cdi(options, Log());
  ASSERT_TRUE(generated) << generated.error().message;
  EXPECT_FALSE(std::filesystem::exists(directory / left));
  for (const std::string& name : kept)
    EXPECT_TRUE(std::filesystem::exists(directory / name)) << name;
}

}  // namespace
}  // namespace hook
