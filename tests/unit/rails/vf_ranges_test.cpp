// MAC addresses and GUIDs of virtual functions, of ranges: what config.json may say, which slice is a node's, and that
// no two functions have the same.
#include "hook/rails/address/node_ranges.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "hook/config/node_slice.hpp"
#include "hook/config/read_config.hpp"
#include "hook/ledger/files.hpp"
#include "hook/ledger/steps.hpp"
#include "hook/rails/address/pool.hpp"
#include "hook/rails/addresses.hpp"
#include "hook/rails/record/store.hpp"
#include "hook/rails/undo.hpp"
#include "unit/ledger/scene.hpp"

namespace hook {
namespace {

using fabric::Result;

ParsedConfig parse_vf(const std::string& vf, const std::string& more = "}") {
  return parse_config({{"c", R"({"networks": {"n": {"mode": "exclusive", "vf": {)" + vf + "}}" + more + "}"}});
}

// The first problem; "": none.
std::string vf_problem(const std::string& vf, const std::string& more = "}") {
  const auto parsed = parse_vf(vf, more);
  return parsed.problems.empty() ? "" : parsed.problems.front().message;
}

struct VfRangeRow {
  const char* vf;
  const char* said;  // ""; nothing is wrong
};

TEST(VfRanges, WhatMayBeWritten) {
  const VfRangeRow rows[] = {
      {R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:ff"})", ""},
      {R"("guids": {"from": "00:00:00:00:00:00:00:01", "to": "ff:ff:ff:ff:ff:ff:ff:ff"}, "trust": true)", ""},
      {R"("macs": {"from": "03:00:00:00:00:00", "to": "03:00:00:00:00:ff"})", "are of no netdev alone"},
      {R"("macs": {"from": "02:00:00:00:00:00", "to": "04:00:00:00:00:00"})", "are of no netdev alone"},
      {R"("macs": {"from": "00:00:00:00:00:00", "to": "00:00:00:00:00:ff"})", "is no MAC address of one netdev"},
      {R"("guids": {"from": "00:00:00:00:00:00:00:00", "to": "00:00:00:00:00:00:00:ff"})", "is no GUID"},
      {R"("guids": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:ff"})", "is no GUID"},
      {R"("macs": {"from": "02:00:00:00:00:02", "to": "02:00:00:00:00:01"})", "nothing to give"},
      {R"("macs": {"from": "02:00:00:00:00:02"})", "has no `to`"},
      {R"("macs": {"to": "02:00:00:00:00:02"})", "has no `from`"},
      {R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:01"}, "mac": "02:00:00:00:00:09")",
       "its own already"},
      {R"("guids": {"from": "02:00:00:00:00:00:00:00", "to": "02:00:00:00:00:00:00:01"}, "port_guid": "02:00:00:00:00:00:00:09")",
       "its own already"},
      {R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:01", "per_node": 3})", "has no slice of 3"},
      {R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:01", "per_node": 0})", "0"},
      {R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:01", "per_node": 1})", "is not said"},
      {R"("macs": 7)", "object"},
  };
  for (const VfRangeRow& row : rows) {
    const std::string said = vf_problem(row.vf);
    EXPECT_EQ(said.empty(), *row.said == '\0') << row.vf << ": " << said;
    EXPECT_NE(said.find(row.said), std::string::npos) << row.vf << ": " << said;
  }
  const char* sliced = R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:01", "per_node": 1})";
  EXPECT_EQ(vf_problem(sliced, R"(}, "node_index": 1)").find("is not said"), std::string::npos);
  EXPECT_NE(
      vf_problem(
          sliced,
          R"(, "m": {"vf": {"macs": {"from": "02:00:00:00:00:01", "to": "02:00:00:00:00:02"}}}}, "node_index": 1)")
          .find("shares values with"),
      std::string::npos);
  EXPECT_NE(vf_problem(sliced, R"(}, "node_index": "address")").find("does not tell"), std::string::npos);
}

TEST(VfRanges, SlicesOfNodes) {
  const VfRange range{VfRange::Kind::kGuid, 0x10, 0x10 + 9, 4};  // two whole ones, and two more values
  EXPECT_EQ(slice_count(range), 2U);
  EXPECT_EQ(to_string(*slice_of(range, 1)), "00:00:00:00:00:00:00:14-00:00:00:00:00:00:00:17");
  EXPECT_FALSE(slice_of(range, 2));
  EXPECT_EQ(slice_of(range, 2).error().code, ERANGE);
  const VfRange all{VfRange::Kind::kGuid, 0, UINT64_MAX, 1};
  EXPECT_EQ(slice_count(all), UINT64_MAX);
  const VfRange halves{VfRange::Kind::kMac, 0x020000000000, 0x0200000001ff, 256};
  EXPECT_EQ(slice_count(halves), 2U);
  EXPECT_EQ(to_string(*slice_of(halves, 1)), "02:00:00:00:01:00-02:00:00:00:01:ff");
}

TEST(VfRanges, ListsOfNodes) {
  auto parsed = parse_vf(R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:03", "per_node": 2})",
                         R"(}, "node_index": 0)");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(check_nodes("a 0\nb 1\n", parsed.config.networks), std::vector<std::string>());
  EXPECT_EQ(check_nodes("a 0\nb 2\n", parsed.config.networks),
            std::vector<std::string>{"line 2: `b`: network `n`: 02:00:00:00:00:00-02:00:00:00:00:03 has 2 slices of 2, "
                                     "and none with the index 2"});
  EXPECT_EQ(check_nodes("a 1\nb 1\n", parsed.config.networks).size(), 1U) << "one slice for two";
  parsed = parse_vf(R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:03"})", "}");
  EXPECT_EQ(check_nodes("a 0\n", parsed.config.networks), std::vector<std::string>());
  EXPECT_EQ(check_nodes("a 0\nb 1\n", parsed.config.networks),
            std::vector<std::string>{
                "network `n`: 02:00:00:00:00:00-02:00:00:00:00:03 has no `per_node`: each node gives all of it"});
}

// Two networks that give of one range, and grants with functions of each.
class VfValues : public test_support::LedgerScene {
 protected:
  VfValues() {
    for (const char* name : {"one", "two"}) {
      Network& network = config_.networks[name];
      network.name = name;
      network.vf_macs = VfRange{VfRange::Kind::kMac, 0x020000000000, 0x0200000000ff, 2};
      network.vf_guids = VfRange{VfRange::Kind::kGuid, 0x0211223300000000, 0x02112233000000ff, 2};
    }
    config_.node_index = NodeIndex{NodeIndex::By::kNumber, 3};
  }
  static NetworkRecord record_of(const std::string& key, const char* network, unsigned rail) {
    RailRecord record;
    record.rail.rail = rail;
    record.rail.hca = fmt::format("mlx5_{}", rail);
    record.rail.kind = RailKind::kMove;
    record.network = network;
    record.host.pf = "eth0";
    return {key, {}, 1, {record}};
  }
  // What the function gets, or the error.
  std::string take(NetworkRecord& record) const {
    const auto taken = take_addresses(config_, ledger_, path_, nullptr, record);
    if (!taken) return taken.error().message;
    const VfAttributes& vf = record.rails[0].rail.vf;
    EXPECT_EQ(vf.node_guid, vf.port_guid);
    return fmt::format("{} {}", to_string(*vf.mac), to_string(VfRange::Kind::kGuid, *vf.node_guid));
  }
  std::string take(const std::string& key, const char* network, unsigned rail) const {
    NetworkRecord record = record_of(key, network, rail);
    return take(record);
  }
  Config config_;
};

constexpr const char* kFirstValues = "02:00:00:00:00:06 02:11:22:33:00:00:00:06";
constexpr const char* kSecondValues = "02:00:00:00:00:07 02:11:22:33:00:00:00:07";

TEST_F(VfValues, AreOfTheNodesSliceAndOfOneFunctionAlone) {
  NetworkRecord first = record_of("netns-1", "one", 0);
  EXPECT_EQ(take(first), kFirstValues);
  EXPECT_EQ(take(first), kFirstValues) << "filled in already";
  EXPECT_EQ(take("netns-1", "one", 0), kFirstValues) << "the same again for who was killed in between";
  NetworkRecord second = record_of("netns-2", "two", 1);
  // Held by a process that works on them: nobody's are taken back.
  const auto files = LedgerFiles::open(path_).value();
  const auto lock = KeyLock::take(*files, {"netns-1", "netns-2"});
  ASSERT_TRUE(lock);
  EXPECT_EQ(take(second), kSecondValues) << "of another network";
  EXPECT_EQ(take("netns-3", "one", 2),
            "network `one`: cannot give `mlx5_2` a MAC address of 02:00:00:00:00:06-02:00:00:00:00:07: all that may be "
            "given are in use");
  const auto returned = return_addresses(path_, nullptr, "netns-2", {}, second.rails, Deadline::max());
  ASSERT_TRUE(returned) << returned.error().message;
  EXPECT_EQ(take("netns-3", "one", 2), kSecondValues);
}

TEST_F(VfValues, OfNobodyAreRecoveredAndTakenByWhoAsks) {
  EXPECT_EQ(take("netns-1", "one", 0), kFirstValues);
  EXPECT_EQ(take("netns-2", "one", 0), kSecondValues);
  EXPECT_EQ(take("netns-3", "two", 0), kFirstValues) << "no grant and no record is netns-1's";
  EXPECT_EQ(address_owners(path_)->size(), 2U);
  const NodeRails rails(path_, nullptr);
  EXPECT_EQ(rails.recover(ledger_, Deadline())->size(), 2U);
  EXPECT_EQ(address_owners(path_)->size(), 0U);
}

TEST_F(VfValues, WhatANetworkNamesIsNotGiven) {
  config_.networks["third"].vf.mac = MacAddress{2, 0, 0, 0, 0, 6};
  config_.networks["third"].vf.port_guid = 0x0211223300000006;
  EXPECT_EQ(take("netns-1", "one", 0), kSecondValues);
}

TEST_F(VfValues, AnIndexThatDoesNotFitIsNobodyElsesSlice) {
  config_.node_index->number = 128;
  EXPECT_EQ(
      take("netns-1", "one", 0),
      "network `one`: this node's index 128 does not fit 02:00:00:00:00:00-02:00:00:00:00:ff: it has 128 slices of 2");
}

TEST_F(VfValues, ChildrenHaveNone) {
  NetworkRecord record = record_of("netns-1", "one", 0);
  record.rails[0].rail.kind = RailKind::kMacvlan;
  ASSERT_TRUE(take_addresses(config_, ledger_, path_, nullptr, record));
  EXPECT_TRUE(record.rails[0].rail.vf.empty());
}

}  // namespace
}  // namespace hook
