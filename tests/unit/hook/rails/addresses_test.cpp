// Addresses of grants, and MAC addresses and GUIDs of virtual functions: allocation, release, and owners that keep
// them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>

#include "hook/config/node_slice.hpp"
#include "hook/config/read_config.hpp"
#include "hook/ledger/changes.hpp"
#include "hook/ledger/files.hpp"
#include "hook/rails/address/ipam.hpp"
#include "hook/rails/address/node_ranges.hpp"
#include "hook/rails/address/pool.hpp"
#include "hook/rails/addresses.hpp"
#include "hook/rails/node_rails.hpp"
#include "hook/rails/record/store.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using namespace fabric;
using namespace test_support;
using Clock = std::chrono::steady_clock;
using Strings = std::vector<std::string>;

constexpr const char* kUsedUp =
    "network `lab`: cannot allocate an address of 10.9.0.5-10.9.0.5 for rail 0: no address is free (1 in use)";

// One network with one address.
class RailAddresses : public testing::Test {
 protected:
  RailAddresses() {
    Network network;
    network.name = "lab";
    network.ranges = {{std::nullopt, address("10.9.0.0"), 24, address("10.9.0.5"), address("10.9.0.5"), std::nullopt}};
    config_.networks["lab"] = network;
    write_file(temp_ / "netns/pod", "");
    pod_ = netns_owner(identify_netns(temp_ / "netns/pod").value());
  }

  NetworkRecord record_of(const std::string& key, RailKind kind = RailKind::kMacvlan) const {
    RailRecord rail;
    rail.rail.hca = "mlx5_0";
    rail.rail.host = rail.host.name = "no-such-eth7";
    rail.rail.name = "net1";
    rail.rail.kind = kind;
    rail.network = "lab";
    rail.host.bus_address = "0000:1a:00.0";
    return {key, pod_.netns.value(), 1, {rail}};
  }
  // Returns the allocated address, or the error.
  std::string take(const std::string& key) const {
    NetworkRecord record = record_of(key);
    const auto taken = take_addresses(config_, ledger_, path_, nullptr, record);
    return taken ? to_string(record.rails[0].rail.addresses.at(0).address) : taken.error().message;
  }
  void write(const NetworkRecord& record) const {
    const auto store = NetworkRecordStore::open(path_);
    ASSERT_TRUE(store && store->write(record));
  }
  // A pod with HCA, rail and address; it lives as long as its namespace.
  void book_pod(RailKind kind = RailKind::kMacvlan) const {
    const GrantUser user{"c-1", "c-1", dead_process()};
    ASSERT_OK(test_support::book(ledger_, pod_, {kAlone}, user));
    ASSERT_TRUE(ledger_.settle(pod_.key));
    write(record_of(pod_.key, kind));
    ASSERT_EQ(take(pod_.key), "10.9.0.5");
  }
  void end_pod() const { ASSERT_EQ(::unlink(pod_.netns->path.c_str()), 0); }
  std::set<std::string> owners() const { return address_owners(path_).value(); }
  std::string grants() const { return entries(path_ + "/grants"); }
  Strings recover() const {
    const auto recovered = rails_->recover(ledger_, from_now(std::chrono::milliseconds(100)));
    return recovered ? *recovered : Strings{recovered.error().message};
  }

  TempDir temp_;
  std::string path_ = temp_ / "ledger";
  std::shared_ptr<NodeRails> rails_ = std::make_shared<NodeRails>(path_, nullptr);
  Ledger ledger_ = Ledger::open(path_, rails_).value();
  Config config_;
  Owner pod_;
};

TEST_F(RailAddresses, AllocatesAddressOfEndedPod) {
  book_pod();
  EXPECT_EQ(take("other"), kUsedUp) << "the pod is alive";
  end_pod();
  EXPECT_EQ(take("other"), "10.9.0.5");
  EXPECT_EQ(grants(), "") << "the whole grant is released";
  EXPECT_EQ(take("third"), "10.9.0.5") << "key `other` has no grant and no record";
}

// The helper may release leases of an older configuration, but not allocate by it.
TEST_F(RailAddresses, ListsPluginsOfConfigurationAndRecords) {
  config_.networks["cni"].name = "cni";
  config_.networks["cni"].ipam = R"({"type":"now"})";
  config_.networks["cni"].ipam_plugin = "now";
  config_.networks["cni"].ipam_dir = "/opt/now";
  config_.networks["lab"].ipam_dir = "/opt/lab";
  NetworkRecord record = record_of("netns-4-7");
  record.rails[0].lease = IpamLease{"then", "lab", R"({"type":"then"})", "net1"};
  write(record);
  const auto programs = ipam_programs(&config_, path_);
  ASSERT_EQ(programs.size(), 2U);
  EXPECT_EQ(programs[0].plugin + programs[0].network + programs[0].ipam.dump(), R"(nowcni{"type":"now"})");
  EXPECT_TRUE(programs[0].may_allocate);
  EXPECT_EQ(programs[1].plugin + programs[1].network + programs[1].ipam.dump(), R"(thenlab{"type":"then"})");
  EXPECT_FALSE(programs[1].may_allocate);
  EXPECT_EQ(programs[0].directories, Strings{"/opt/now"});
  EXPECT_EQ(programs[1].directories, (Strings{"/opt/lab", "/opt/now", "/opt/cni/bin", "/usr/lib/cni"}));
  const auto without = ipam_programs(nullptr, path_);
  ASSERT_EQ(without.size(), 1U);
  EXPECT_EQ(without[0].directories, (Strings{"/opt/cni/bin", "/usr/lib/cni"})) << "a record adds no directory";
}

// A cluster-wide plugin. Another process releases the lease, and knows the pod only by the record.
TEST_F(RailAddresses, PassesPodToPluginOnAllocationAndRelease) {
  const std::string leases = temp_ / "leases";
  fs::create_directory(leases);
  Network& lab = config_.networks["lab"];
  lab.ranges.clear();
  lab.ipam = fmt::format(R"({{"type":"ipam-for-pods","dataDir":"{}","second":6}})", leases);
  lab.ipam_plugin = "ipam-for-pods";
  lab.ipam_dir = temp_ / "plugins";
  fs::create_directory(lab.ipam_dir);
  fs::copy(SUPPORT "/ipam-for-pods", lab.ipam_dir);
  fs::permissions(lab.ipam_dir + "/ipam-for-pods", fs::perms(0755));
  const auto take = [&](const std::string& args) {
    NetworkRecord record = record_of(pod_.key);
    note_leases(config_, args, record);
    write(record);
    auto helper = IpamHelper::start(ipam_programs(&config_, path_)).value();
    const auto taken = take_addresses(config_, ledger_, path_, &helper, record);
    return taken ? to_string(record.rails[0].rail.addresses.at(0).address) : taken.error().message;
  };
  const std::string refused =
      "cannot get an address for `net1` by IPAM plugin `ipam-for-pods`: ADD: CNI_ARGS name no pod (CNI error 100)";
  EXPECT_EQ(take(""), refused);
  const std::string args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=train;K8S_POD_UID=u-1";
  EXPECT_EQ(take(args), "10.7.7.1");
  EXPECT_EQ(entries(leases), "team-a.train.net1");
  config_.networks["lab"].ipam.reset();
  NetworkRecord record = NetworkRecordStore::open(path_)->read(pod_.key)->value();
  auto helper = IpamHelper::start(ipam_programs(&config_, path_)).value();
  EXPECT_OK(release_rail_addresses(path_, &helper, record, record.rails, Deadline::max()));
  EXPECT_EQ(entries(leases), "");
}

TEST_F(RailAddresses, RecoversAddressWithoutLivingOwner) {
  ASSERT_EQ(take("netns-4-7"), "10.9.0.5");
  EXPECT_EQ(recover(), Strings{"addresses of netns-4-7"});
  EXPECT_EQ(owners(), std::set<std::string>());
  EXPECT_EQ(recover(), Strings());
  book_pod();
  EXPECT_EQ(recover(), Strings()) << "the pod is alive";
  end_pod();
  EXPECT_EQ(recover(), Strings{"rails of " + pod_.key});
  EXPECT_EQ(owners(), std::set<std::string>());
  EXPECT_EQ(rails_->take_warnings(), Strings());
}

TEST_F(RailAddresses, KeepsAddressWhileARecordHasItsKey) {
  ASSERT_EQ(take("netns-4-7"), "10.9.0.5");
  write({"netns-4-7", {}, 1, {}});
  write_file(path_ + "/network/netns-4-7.json", "{");
  EXPECT_EQ(take("other"), kUsedUp);
  EXPECT_EQ(recover(), Strings());
  EXPECT_EQ(rails_->take_warnings().size(), 1U);
  ASSERT_EQ(::unlink((path_ + "/network/netns-4-7.json").c_str()), 0);
  EXPECT_EQ(take("other"), "10.9.0.5");
}

TEST_F(RailAddresses, KeepsAddressWhileAProcessWorksOnItsKey) {
  ASSERT_EQ(take("netns-4-7"), "10.9.0.5");
  const auto files = LedgerFiles::open(path_).value();
  {
    const auto lock = KeyLock::take(*files, {"netns-4-7"});
    ASSERT_TRUE(lock);
    EXPECT_EQ(take("other"), kUsedUp);
    EXPECT_EQ(recover(), Strings());
    const Strings warnings = rails_->take_warnings();
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_TRUE(warnings[0].starts_with("addresses of `netns-4-7`: cannot lock grant `netns-4-7`")) << warnings[0];
  }
  const std::string marker = marker_name("netns-4-7", {myself(), 1});
  ASSERT_TRUE(make_empty_file(files->pending, marker));
  EXPECT_EQ(take("other"), kUsedUp);
  EXPECT_EQ(recover(), Strings());
  ASSERT_TRUE(remove_file(files->pending, marker));
  ASSERT_TRUE(make_empty_file(files->pending, marker_name("netns-4-7", {dead_process(), 1})));
  EXPECT_EQ(take("other"), "10.9.0.5");
}

TEST_F(RailAddresses, RecoversAddressAfterAFailedRelease) {
  book_pod();
  end_pod();
  {
    const UniqueFd place(::open((path_ + "/addresses/lab/all").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_EQ(::flock(place.get(), LOCK_EX), 0);
    rails_->wait_until(Deadline());
    ASSERT_TRUE(ledger_.release_grant(pod_.key));
    EXPECT_EQ(rails_->take_warnings(), Strings{"cannot lock `" + path_ +
                                               "/addresses/lab/all` within 1000 ms: another process holds it; "
                                               "remedy: run `rdma-hook recover`"});
  }
  EXPECT_EQ(grants(), "");
  EXPECT_EQ(owners(), std::set<std::string>{pod_.key}) << "the claim stays";
  EXPECT_EQ(recover(), Strings{"addresses of " + pod_.key});
  EXPECT_EQ(owners(), std::set<std::string>());
}

// Hardware that has not returned: one deadline for all grants.
TEST_F(RailAddresses, ReportsMissingNetdevBeforeTheDeadline) {
  book_pod(RailKind::kMove);
  end_pod();
  const auto begin = Clock::now();
  EXPECT_EQ(take("other"), kUsedUp) << "does not wait for the hardware";
  const auto recovered = ledger_.recover(from_now(std::chrono::milliseconds(100)));
  const std::string stuck = "netdev `no-such-eth7` (0000:1a:00.0) has not returned to the node";
  EXPECT_EQ(error_message(recovered), "`" + pod_.key + "`: " + stuck);
  EXPECT_EQ(recover(), Strings());
  EXPECT_EQ(rails_->take_warnings(), Strings{"rails of `" + pod_.key + "`: " + stuck});
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2)) << "5 s without a deadline";
  EXPECT_EQ(owners(), std::set<std::string>{pod_.key});
}

ParsedConfig parse_vf(const std::string& vf, const std::string& more = "}") {
  return parse_config({{"c", R"({"networks": {"n": {"mode": "exclusive", "vf": {)" + vf + "}}" + more + "}"}});
}

// Returns the first problem of the configuration; "": none.
std::string vf_problem(const std::string& vf, const std::string& more = "}") {
  const auto parsed = parse_vf(vf, more);
  return parsed.problems.empty() ? "" : parsed.problems.front().message;
}

TEST(VfRanges, ReportsInvalidRanges) {
  // `expected` is "" for a valid configuration.
  const std::pair<const char*, const char*> rows[] = {
      {R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:ff"})", ""},
      {R"("guids": {"from": "00:00:00:00:00:00:00:01", "to": "ff:ff:ff:ff:ff:ff:ff:ff"}, "trust": true)", ""},
      {R"("macs": {"from": "03:00:00:00:00:00", "to": "03:00:00:00:00:ff"})", "contains group addresses"},
      {R"("macs": {"from": "02:00:00:00:00:00", "to": "04:00:00:00:00:00"})", "contains group addresses"},
      {R"("macs": {"from": "00:00:00:00:00:00", "to": "00:00:00:00:00:ff"})", "is not the MAC address of a netdev"},
      {R"("guids": {"from": "00:00:00:00:00:00:00:00", "to": "00:00:00:00:00:00:00:ff"})", "is not a GUID"},
      {R"("guids": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:ff"})", "is not a GUID"},
      {R"("macs": {"from": "02:00:00:00:00:02", "to": "02:00:00:00:00:01"})", "is empty"},
      {R"("macs": {"from": "02:00:00:00:00:02"})", "has no `to`"},
      {R"("macs": {"to": "02:00:00:00:00:02"})", "has no `from`"},
      {R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:01"}, "mac": "02:00:00:00:00:09")",
       "cannot be combined with"},
      {R"("guids": {"from": "02:00:00:00:00:00:00:00", "to": "02:00:00:00:00:00:00:01"}, "port_guid": "02:00:00:00:00:00:00:09")",
       "cannot be combined with"},
      {R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:01", "per_node": 3})",
       "is smaller than one slice of 3"},
      {R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:01", "per_node": 0})", "0"},
      {R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:01", "per_node": 1})",
       "\"node_index\" is missing"},
      {R"("macs": 7)", "object"}};
  for (const auto& [vf, expected] : rows) {
    const std::string problem = vf_problem(vf);
    EXPECT_EQ(problem.empty(), *expected == '\0') << vf << ": " << problem;
    EXPECT_TRUE(has_text(problem, expected)) << vf << ": " << problem;
  }
  const char* sliced = R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:01", "per_node": 1})";
  EXPECT_EQ(vf_problem(sliced, R"(}, "node_index": 1)").find("\"node_index\" is missing"), std::string::npos);
  EXPECT_TRUE(has_text(
      vf_problem(
          sliced,
          R"(, "m": {"vf": {"macs": {"from": "02:00:00:00:00:01", "to": "02:00:00:00:00:02"}}}}, "node_index": 1)"),
      "overlaps"));
  EXPECT_TRUE(has_text(vf_problem(sliced, R"(}, "node_index": "address")"), "does not identify a slice"));
}

TEST(VfRanges, CutsSlicesAndChecksListsOfNodes) {
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
  auto parsed = parse_vf(R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:03", "per_node": 2})",
                         R"(}, "node_index": "/etc/rdma-init/node_index")");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(check_nodes("a 0\nb 1\n", parsed.config).problems, Strings());
  EXPECT_EQ(check_nodes("a 0\nb 2\n", parsed.config).problems,
            Strings{"line 2: `b`: network `n`: 02:00:00:00:00:00-02:00:00:00:00:03 has 2 slices of 2, "
                    "none with index 2"});
  EXPECT_EQ(check_nodes("a 1\nb 1\n", parsed.config).problems.size(), 1U) << "one slice for two";
  parsed = parse_vf(R"("macs": {"from": "02:00:00:00:00:00", "to": "02:00:00:00:00:03"})", "}");
  EXPECT_EQ(check_nodes("a 0\n", parsed.config).problems, Strings());
  EXPECT_EQ(check_nodes("a 0\nb 1\n", parsed.config).problems,
            Strings{"network `n`: 02:00:00:00:00:00-02:00:00:00:00:03 has no `per_node`: each node would allocate the "
                    "same values"});
}

// Two networks with the same ranges, and grants with functions of each.
class VfValues : public LedgerScene {
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
  // Returns the values of the function, or the error.
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

TEST_F(VfValues, AllocatesEachValueOfTheNodesSliceOnce) {
  NetworkRecord first = record_of("netns-1", "one", 0);
  EXPECT_EQ(take(first), kFirstValues);
  EXPECT_EQ(take(first), kFirstValues) << "set already";
  EXPECT_EQ(take("netns-1", "one", 0), kFirstValues) << "the same again after a kill";
  NetworkRecord second = record_of("netns-2", "two", 1);
  // A process that works on these keys holds their locks: no address is released.
  const auto files = LedgerFiles::open(path_).value();
  const auto lock = must(KeyLock::take(*files, {"netns-1", "netns-2"}));
  EXPECT_EQ(take(second), kSecondValues) << "of another network";
  EXPECT_EQ(
      take("netns-3", "one", 2),
      "network `one`: cannot allocate a MAC address of 02:00:00:00:00:06-02:00:00:00:00:07 for `mlx5_2`: no value of "
      "the range is free");
  ASSERT_OK(release_rail_addresses(path_, nullptr, second, second.rails, Deadline::max()));
  EXPECT_EQ(take("netns-3", "one", 2), kSecondValues);
}

TEST_F(VfValues, RecoversOrAllocatesValuesWithoutLivingOwner) {
  EXPECT_EQ(take("netns-1", "one", 0), kFirstValues);
  EXPECT_EQ(take("netns-2", "one", 0), kSecondValues);
  EXPECT_EQ(take("netns-3", "two", 0), kFirstValues) << "netns-1 has no grant and no record";
  EXPECT_EQ(address_owners(path_)->size(), 2U);
  const NodeRails rails(path_, nullptr);
  EXPECT_EQ(rails.recover(ledger_, Deadline())->size(), 2U);
  EXPECT_EQ(address_owners(path_)->size(), 0U);
}

TEST_F(VfValues, NeverAllocatesValueThatANetworkNames) {
  config_.networks["third"].vf.mac = MacAddress{2, 0, 0, 0, 0, 6};
  config_.networks["third"].vf.port_guid = 0x0211223300000006;
  EXPECT_EQ(take("netns-1", "one", 0), kSecondValues);
}

TEST_F(VfValues, FailsIfTheNodesIndexHasNoSlice) {
  config_.node_index->number = 128;
  EXPECT_EQ(
      take("netns-1", "one", 0),
      "network `one`: this node's index 128 does not fit 02:00:00:00:00:00-02:00:00:00:00:ff: it has 128 slices of 2");
}

TEST_F(VfValues, AllocatesNothingForChildren) {
  NetworkRecord record = record_of("netns-1", "one", 0);
  record.rails[0].rail.kind = RailKind::kMacvlan;
  ASSERT_TRUE(take_addresses(config_, ledger_, path_, nullptr, record));
  EXPECT_TRUE(record.rails[0].rail.vf.empty());
}

}  // namespace
}  // namespace hook
