// The parts of a claim that the driver reads, and the claims that it refuses.
#include "shim/dra/claims.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/json/json.hpp"
#include "base/text.hpp"

namespace shim {
namespace {

using base::Json;

// A claim with a GPU and two HCAs, as the API server of Kubernetes 1.36 returns it.
constexpr const char* kClaim = R"({
  "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
  "metadata": {"name": "train-0-rails", "namespace": "team-a", "uid": "7b1c6f0e-58f4-4b0d-9f55-0a8d6a6a1111", "resourceVersion": "77"},
  "spec": {"devices": {"requests": [{"name": "gpu"}, {"name": "hca"}]}},
  "status": {
    "allocation": {
      "devices": {
        "results": [
          {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"},
          {"request": "hca", "driver": "rdma-init.io", "pool": "n1", "device": "pci-0000-3b-00-0",
           "shareID": "5b1c6f0e-58f4-4b0d-9f55-0a8d6a6a2222", "consumedCapacity": {"shares": "1"}},
          {"request": "any/first", "driver": "rdma-init.io", "pool": "n1", "device": "pci-0000-81-00-0", "adminAccess": null}],
        "config": []}},
    "reservedFor": [
      {"resource": "pods", "name": "train-0", "uid": "c0ffee"},
      {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": "d"}]}})";

// Returns kClaim with a value in place of that of the pointer.
std::string changed(const std::string& pointer, const std::string& value) {
  Json claim = Json::parse(kClaim);
  claim[Json::json_pointer(pointer)] = Json::parse(value);
  return claim.dump();
}

// Returns the message without the name of the claim, with which those about devices begin.
std::string without_name(const std::string& message) {
  constexpr std::string_view kName = "claim team-a/train-0-rails: ";
  return message.starts_with(kName) ? message.substr(kName.size()) : message;
}

std::string refusal(const std::string& text) {
  const auto claim = parse_claim(text);
  return claim ? "accepted" : without_name(claim.error().message);
}

// Returns the parameters of the device "pci-0000-3b-00-0" as "MODE NETWORK", or the error.
std::string parameters(const std::string& config) {
  const auto claim = parse_claim(changed("/status/allocation/devices/config", config));
  if (!claim) return without_name(claim.error().message);
  const hook::ClaimDevice& own = claim->devices.at(0);
  return fmt::format("{} {}", own.mode ? to_string(*own.mode) : "-", own.network.value_or("-"));
}

std::string config_entry(const std::string& source, const std::string& members, const std::string& requests = "[]",
                         const std::string& driver = "rdma-init.io") {
  return fmt::format(R"({{"source": "{}", "requests": {}, "opaque": {{"driver": "{}", "parameters":
    {{"apiVersion": "rdma-init.io/v1alpha1", "kind": "HcaParameters"{}{}}}}}}})",
                     source, requests, driver, members.empty() ? "" : ", ", members);
}

TEST(DraClaim, HasTheDevicesOfThisDriver) {
  const auto claim = parse_claim(kClaim);
  ASSERT_TRUE(claim) << claim.error().message;
  EXPECT_TRUE(check_key(*claim, {"team-a", "train-0-rails", "7b1c6f0e-58f4-4b0d-9f55-0a8d6a6a1111"}));
  const std::vector<hook::ClaimDevice> expected{
      {.request = "hca", .name = "pci-0000-3b-00-0", .share_id = "5b1c6f0e-58f4-4b0d-9f55-0a8d6a6a2222", .pool = "n1"},
      {.request = "any", .name = "pci-0000-81-00-0", .pool = "n1"}};
  EXPECT_EQ(claim->devices, expected);
  EXPECT_EQ(claim->pods, (std::vector<std::string>{"c0ffee"})) << "a PodGroup is no pod";
}

TEST(DraClaim, IgnoresClaimsOfOtherDrivers) {
  const auto claim = parse_claim(changed("/status/allocation/devices/results", R"([{"driver": "x", "request": 7}])"));
  ASSERT_TRUE(claim) << claim.error().message;
  EXPECT_TRUE(claim->devices.empty());
}

TEST(DraClaim, ReadsUnitsAndAdminAccess) {
  const struct {
    const char* value;
    unsigned units;  // 0: refused
  } rows[] = {{R"("1")", 1},       {R"("14")", 14}, {R"("1k")", 1000}, {R"("65535")", 65535},
              {R"("65k")", 65000}, {R"("66k")", 0}, {R"("65536")", 0}, {R"("0")", 0},
              {R"("-1")", 0},      {R"("1.5")", 0}, {R"("500m")", 0},  {R"("")", 0},
              {R"("k")", 0},       {"1", 0}};
  for (const auto& row : rows) {
    const auto claim = parse_claim(changed("/status/allocation/devices/results/1/consumedCapacity/shares", row.value));
    EXPECT_EQ(claim ? claim->devices.at(0).units : 0, row.units) << row.value;
  }
  const auto claim = parse_claim(changed("/status/allocation/devices/results/1/adminAccess", "true"));
  ASSERT_TRUE(claim);
  EXPECT_TRUE(claim->devices.at(0).is_admin);
  EXPECT_FALSE(claim->devices.at(1).is_admin);
}

TEST(DraClaim, TakesParametersOfTheClaimBeforeThoseOfTheClass) {
  const std::string of_class = config_entry("FromClass", R"("mode": "shared", "network": "storage")");
  EXPECT_EQ(parameters("[]"), "- -");
  EXPECT_EQ(parameters("[" + of_class + "]"), "shared storage");
  EXPECT_EQ(parameters("[" + config_entry("FromClaim", R"("mode": "hca")") + ", " + of_class + "]"), "hca storage");
  EXPECT_EQ(parameters("[" + of_class + ", " + config_entry("FromClaim", "") + "]"), "shared storage");
  EXPECT_EQ(parameters("[" + config_entry("FromClaim", R"("mode": "hca")", R"(["hca"])") + "]"), "hca -");
  EXPECT_EQ(parameters("[" + config_entry("FromClaim", R"("mode": "hca")", R"(["gpu", "any"])") + "]"), "- -");
  EXPECT_EQ(parameters("[" + config_entry("FromClaim", R"("mode": "hca")", "[]", "gpu.nvidia.com") + "]"), "- -");
  EXPECT_EQ(parameters(R"([{"source": "FromClaim", "requests": [], "other": {}}])"), "- -");
  const auto claim = parse_claim(changed("/status/allocation/devices/config",
                                         "[" + config_entry("FromClass", R"("mode": "hca")", R"(["any/first"])") + "," +
                                             config_entry("FromClaim", R"("network": "n")", R"(["any"])") + "]"));
  ASSERT_TRUE(claim) << claim.error().message;
  EXPECT_EQ(claim->devices.at(1).mode, hook::Mode::kHca) << "of a subrequest";
  EXPECT_EQ(claim->devices.at(1).network, "n");
  EXPECT_FALSE(claim->devices.at(0).mode || claim->devices.at(0).network);
}

TEST(DraClaim, TakesTheLowerLimitOfClaimAndClass) {
  const std::string of_class = config_entry("FromClass", R"("limits": {"hca_objects": 100, "hca_handles": 8})");
  const std::string of_claim = config_entry("FromClaim", R"("limits": {"hca_objects": 5000, "hca_handles": 2})");
  const auto claim = parse_claim(changed("/status/allocation/devices/config", "[" + of_class + ", " + of_claim + "]"));
  ASSERT_TRUE(claim) << claim.error().message;
  EXPECT_EQ(claim->devices.at(0).limits, (hook::RdmaLimits{2, 100}));
}

TEST(DraClaim, RefusesWrongParameters) {
  const struct {
    const char* members;
    const char* message;
  } rows[] = {
      {R"("mode": "all")", "opaque.parameters.mode is `all`: expected exclusive, shared, shared-multi or hca"},
      {R"("mode": 1)", "opaque.parameters.mode is `1`: expected exclusive, shared, shared-multi or hca"},
      {R"("network": "../../etc")",
       "opaque.parameters.network is `../../etc`: expected the name of a network of config.json"},
      {R"("network": [])", "opaque.parameters.network is `[]`: expected the name of a network of config.json"},
      {R"("moed": "hca")", "opaque.parameters.moed is no parameter: expected mode, network or limits"},
      {R"("limits": 7)", "opaque.parameters.limits is `7`: expected an object"},
      {R"("limits": {"hca": 1})", "opaque.parameters.limits.hca is no limit: expected hca_objects or hca_handles"},
      {R"("limits": {"hca_objects": 0})",
       "opaque.parameters.limits.hca_objects is `0`: expected a number from 1 to 2147483646"},
      {R"("limits": {"hca_handles": 2147483647})",
       "opaque.parameters.limits.hca_handles is `2147483647`: expected a number from 1 to 2147483646"},
      {R"("limits": {"hca_handles": -1})",
       "opaque.parameters.limits.hca_handles is `-1`: expected a number from 1 to 2147483646"},
      {R"("limits": {"hca_handles": "8"})",
       "opaque.parameters.limits.hca_handles is `8`: expected a number from 1 to 2147483646"}};
  for (const auto& row : rows)
    EXPECT_EQ(parameters("[" + config_entry("FromClaim", row.members) + "]"),
              "status.allocation.devices.config[0]." + std::string(row.message));
  const std::string start = R"([{"source": "FromClaim", "opaque": {"driver": "rdma-init.io")";
  EXPECT_EQ(parameters(start + "}}]"),
            "status.allocation.devices.config[0].opaque.parameters is missing: expected an object");
  EXPECT_EQ(parameters(start + R"(, "parameters": {"apiVersion": "v2"}}}])"),
            "status.allocation.devices.config[0].opaque.parameters.apiVersion is `v2`: expected rdma-init.io/v1alpha1");
  EXPECT_EQ(parameters(start + R"(, "parameters": "x"}}])"),
            "status.allocation.devices.config[0].opaque.parameters is `x`: expected an object");
}

TEST(DraClaim, NamesTheClaimAndTheRemedyOfWrongParameters) {
  for (const char* source : {"FromClass", "FromClaim"}) {
    for (const char* members : {R"("mode": "exclusiv")", R"("limitss": {})"}) {
      const auto claim =
          parse_claim(changed("/status/allocation/devices/config", "[" + config_entry(source, members) + "]"));
      ASSERT_FALSE(claim);
      EXPECT_TRUE(claim.error().message.starts_with("claim team-a/train-0-rails: ")) << claim.error().message;
      EXPECT_EQ(claim.error().reason, base::FailureReason::kRefused);
      EXPECT_EQ(claim.error().hint, "correct the ResourceClaimTemplate or its DeviceClass, and delete the pod");
    }
  }
}

TEST(DraClaim, RefusesWhatIsNoClaim) {
  const struct {
    const char* pointer;
    const char* value;
    const char* message;
  } rows[] = {
      {"/apiVersion", R"("resource.k8s.io/v1beta1")", "it is no ResourceClaim of resource.k8s.io/v1"},
      {"/kind", R"("Pod")", "it is no ResourceClaim of resource.k8s.io/v1"},
      {"/metadata", "[]", "metadata is `[]`: expected an object"},
      {"/metadata/uid", R"("../x")", "metadata.uid is `../x`: expected a UID"},
      {"/metadata/uid", R"("")", "metadata.uid is ``: expected a UID"},
      {"/metadata/namespace", R"("A")", "metadata.namespace is `A`: expected the name of a namespace"},
      {"/metadata/name", "null", "metadata.name is `null`: expected a DNS name"},
      {"/status/allocation", "null",
       "claim team-a/train-0-rails is not allocated: the scheduler has assigned no devices to it"},
      {"/status/allocation/devices/results", "{}", "status.allocation.devices.results is `{}`: expected a list"},
      {"/status/allocation/devices/results/1/device", R"("mlx5_0")",
       "status.allocation.devices.results[1].device is `mlx5_0`: expected a DNS label"},
      {"/status/allocation/devices/results/1/pool", R"("a b")",
       "status.allocation.devices.results[1].pool is `a b`: expected the name of a node"},
      {"/status/allocation/devices/results/1/request", R"("a/b/c")",
       "status.allocation.devices.results[1].request is `a/b/c`: expected the name of a request"},
      {"/status/allocation/devices/results/1/shareID", "7",
       "status.allocation.devices.results[1].shareID is `7`: expected a UID"},
      {"/status/allocation/devices/results/1/adminAccess", R"("yes")",
       "status.allocation.devices.results[1].adminAccess is `yes`: expected true or false"},
      {"/status/reservedFor/0/uid", R"("a/b")", "status.reservedFor[0].uid is `a/b`: expected a UID"}};
  for (const auto& row : rows)
    EXPECT_EQ(refusal(changed(row.pointer, row.value)), row.message) << row.pointer;
  EXPECT_EQ(refusal("[]"), "it is no ResourceClaim of resource.k8s.io/v1");
  EXPECT_NE(refusal("{"), "accepted");
  EXPECT_NE(refusal(R"({"kind": "ResourceClaim", "kind": "b"})").find("kind"), std::string::npos);
  const auto escaped = refusal(changed("/metadata/uid", R"x("\u001b[31m$(x)")x"));
  EXPECT_EQ(escaped.find('\x1b'), std::string::npos) << escaped;
  EXPECT_LT(refusal(changed("/metadata/uid", "\"" + std::string(100000, 'X') + "\"")).size(), 200U);
}

TEST(DraClaim, RefusesMoreThanTheApiAllows) {
  Json claim = Json::parse(kClaim);
  Json& results = claim["status"]["allocation"]["devices"]["results"];
  while (results.size() < 33)
    results.push_back(results[0]);
  EXPECT_EQ(refusal(claim.dump()), "status.allocation.devices.results has 33 entries: expected at most 32");
  results.erase(32);
  EXPECT_EQ(refusal(claim.dump()), "accepted");
  claim["status"]["reservedFor"] = Json(std::vector<Json>(257, Json::object()));
  EXPECT_EQ(refusal(claim.dump()), "status.reservedFor has 257 entries: expected at most 256");
}

TEST(DraClaim, RefusesAShareTwice) {
  Json claim = Json::parse(kClaim);
  Json& results = claim["status"]["allocation"]["devices"]["results"];
  results.push_back(results[1]);
  EXPECT_EQ(refusal(claim.dump()),
            "status.allocation.devices.results[3] repeats an earlier entry: device pci-0000-3b-00-0 of n1");
  results[3]["shareID"] = "another";
  EXPECT_EQ(refusal(claim.dump()), "accepted") << "two requests can have shares of one HCA";
}

TEST(DraClaim, IsTheOneThatTheKubeletMeans) {
  const auto claim = parse_claim(kClaim);
  ASSERT_TRUE(claim);
  ClaimKey key{claim->space, claim->name, claim->uid};
  EXPECT_TRUE(check_key(*claim, key));
  key.uid = "old";
  const auto other = check_key(*claim, key);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("with the UID old, which was deleted"), std::string::npos);
}

TEST(DraClaim, FindsHcasByTheNamesOfTheirDevices) {
  auto claim = parse_claim(kClaim);
  ASSERT_TRUE(claim);
  DeviceNames names{{"mlx5_0", "pci-0000-81-00-0"}, {"mlx5_1", "pci-0000-3b-00-0"}};
  ASSERT_TRUE(find_hcas(*claim, names, "n1"));
  EXPECT_EQ(claim->devices.at(0).hca, "mlx5_1");
  EXPECT_EQ(claim->devices.at(1).hca, "mlx5_0");
  const auto elsewhere = find_hcas(*claim, names, "n2");
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().message, "device pci-0000-3b-00-0 of the claim is on node n1: this is node n2");
  names.erase("mlx5_0");
  const auto absent = find_hcas(*claim, names, "n1");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().message, "this node has no device pci-0000-81-00-0 now");
}

}  // namespace
}  // namespace shim
