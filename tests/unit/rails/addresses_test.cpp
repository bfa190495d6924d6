// Addresses of grants that are gone: who may take them back, and what keeps them.
#include "hook/rails/addresses.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>

#include "hook/ledger/files.hpp"
#include "hook/ledger/steps.hpp"
#include "hook/rails/address/ipam.hpp"
#include "hook/rails/address/pool.hpp"
#include "hook/rails/record/store.hpp"
#include "hook/rails/undo.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "unit/ledger/scene.hpp"

namespace hook {
namespace {

using fabric::UniqueFd;
using Clock = std::chrono::steady_clock;
using Strings = std::vector<std::string>;
using test_support::address;

constexpr const char* kUsedUp =
    "network `lab`: cannot give rail 0 an address of 10.9.0.5-10.9.0.5: all that may be given are in use (1)";

// One network of one address.
class RailAddresses : public testing::Test {
 protected:
  RailAddresses() {
    Network network;
    network.name = "lab";
    network.ranges = {{std::nullopt, address("10.9.0.0"), 24, address("10.9.0.5"), address("10.9.0.5"), std::nullopt}};
    config_.networks["lab"] = network;
    test_support::write_file(temp_ / "netns/pod", "");
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
  // The address, or the error.
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
  void give_pod(RailKind kind = RailKind::kMacvlan) const {
    const GrantUser user{"c-1", "c-1", test_support::dead_process()};
    const auto booked = test_support::book(ledger_, pod_, {test_support::kAlone}, user);
    ASSERT_TRUE(booked) << booked.error().message;
    ASSERT_TRUE(ledger_.settle(pod_.key));
    write(record_of(pod_.key, kind));
    ASSERT_EQ(take(pod_.key), "10.9.0.5");
  }
  void end_pod() const { ASSERT_EQ(::unlink(pod_.netns->path.c_str()), 0); }
  std::set<std::string> owners() const { return address_owners(path_).value(); }
  std::string grants() const { return test_support::entries(path_ + "/grants"); }
  Strings recover() const {
    const auto recovered = rails_->recover(ledger_, from_now(std::chrono::milliseconds(100)));
    return recovered ? *recovered : Strings{recovered.error().message};
  }

  test_support::TempDir temp_;
  std::string path_ = temp_ / "ledger";
  std::shared_ptr<NodeRails> rails_ = std::make_shared<NodeRails>(path_, nullptr);
  Ledger ledger_ = Ledger::open(path_, rails_).value();
  Config config_;
  Owner pod_;
};

TEST_F(RailAddresses, OfAPodThatIsGoneGoToWhoAsks) {
  give_pod();
  EXPECT_EQ(take("other"), kUsedUp) << "it lives";
  end_pod();
  EXPECT_EQ(take("other"), "10.9.0.5");
  EXPECT_EQ(grants(), "") << "with all that it had";
  EXPECT_EQ(take("third"), "10.9.0.5") << "nobody has a grant or record for the other";
}

// What a helper may run: leases of an older configuration are given back, and only that.
TEST_F(RailAddresses, PluginsAreThoseOfTheConfigurationAndOfRecords) {
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
  EXPECT_TRUE(programs[0].may_give);
  EXPECT_EQ(programs[1].plugin + programs[1].network + programs[1].ipam.dump(), R"(thenlab{"type":"then"})");
  EXPECT_FALSE(programs[1].may_give);
  EXPECT_EQ(programs[0].directories, Strings{"/opt/now"});
  EXPECT_EQ(programs[1].directories, (Strings{"/opt/lab", "/opt/now", "/opt/cni/bin", "/usr/lib/cni"}));
  const auto without = ipam_programs(nullptr, path_);
  ASSERT_EQ(without.size(), 1U);
  EXPECT_EQ(without[0].directories, (Strings{"/opt/cni/bin", "/usr/lib/cni"})) << "none of a record's";
}

// A plugin for a whole cluster: who gives back is another process, and knows the pod by the record alone.
TEST_F(RailAddresses, APluginIsToldThePodWhenItGivesAndWhenItTakesBack) {
  const std::string leases = temp_ / "leases";
  std::filesystem::create_directory(leases);
  Network& lab = config_.networks["lab"];
  lab.ranges.clear();
  lab.ipam = fmt::format(R"({{"type":"ipam-for-pods","dataDir":"{}","second":6}})", leases);
  lab.ipam_plugin = "ipam-for-pods";
  lab.ipam_dir = temp_ / "plugins";
  std::filesystem::create_directory(lab.ipam_dir);
  std::filesystem::copy(SUPPORT "/ipam-for-pods", lab.ipam_dir);
  std::filesystem::permissions(lab.ipam_dir + "/ipam-for-pods", std::filesystem::perms(0755));
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
  EXPECT_EQ(test_support::entries(leases), "team-a.train.net1");
  config_.networks["lab"].ipam.reset();
  NetworkRecord record = NetworkRecordStore::open(path_)->read(pod_.key)->value();
  auto helper = IpamHelper::start(ipam_programs(&config_, path_)).value();
  const auto given = return_addresses(path_, &helper, pod_.key, *pod_.netns, record.rails, Deadline::max());
  EXPECT_TRUE(given) << given.error().message;
  EXPECT_EQ(test_support::entries(leases), "");
}

TEST_F(RailAddresses, OfNobodyAreRecovered) {
  ASSERT_EQ(take("netns-4-7"), "10.9.0.5");
  EXPECT_EQ(recover(), Strings{"addresses of netns-4-7"});
  EXPECT_EQ(owners(), std::set<std::string>());
  EXPECT_EQ(recover(), Strings());
  give_pod();
  EXPECT_EQ(recover(), Strings()) << "it lives";
  end_pod();
  EXPECT_EQ(recover(), Strings{"rails of " + pod_.key});
  EXPECT_EQ(owners(), std::set<std::string>());
  EXPECT_EQ(rails_->take_warnings(), Strings());
}

TEST_F(RailAddresses, AreHeldWhileARecordNamesTheirKey) {
  ASSERT_EQ(take("netns-4-7"), "10.9.0.5");
  write({"netns-4-7", {}, 1, {}});
  test_support::write_file(path_ + "/network/netns-4-7.json", "{");
  EXPECT_EQ(take("other"), kUsedUp);
  EXPECT_EQ(recover(), Strings());
  EXPECT_EQ(rails_->take_warnings().size(), 1U);
  ASSERT_EQ(::unlink((path_ + "/network/netns-4-7.json").c_str()), 0);
  EXPECT_EQ(take("other"), "10.9.0.5");
}

TEST_F(RailAddresses, AreHeldWhileAProcessWorksOnTheirKey) {
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
  const std::string marker = marker_name("netns-4-7", {test_support::myself(), 1});
  ASSERT_TRUE(make_empty_file(files->pending, marker));
  EXPECT_EQ(take("other"), kUsedUp);
  EXPECT_EQ(recover(), Strings());
  ASSERT_TRUE(remove_file(files->pending, marker));
  ASSERT_TRUE(make_empty_file(files->pending, marker_name("netns-4-7", {test_support::dead_process(), 1})));
  EXPECT_EQ(take("other"), "10.9.0.5");
}

TEST_F(RailAddresses, ThatCouldNotBeReturnedAreReturnedLater) {
  give_pod();
  end_pod();
  {
    const UniqueFd place(::open((path_ + "/addresses/lab/all").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_EQ(::flock(place.get(), LOCK_EX), 0);
    rails_->wait_until(Deadline());
    ASSERT_TRUE(ledger_.give_back(pod_.key));
    EXPECT_EQ(rails_->take_warnings(), Strings{"cannot lock `" + path_ +
                                               "/addresses/lab/all` within 1000 ms: another process holds it; "
                                               "`rdma-hook recover` tries again"});
  }
  EXPECT_EQ(grants(), "");
  EXPECT_EQ(owners(), std::set<std::string>{pod_.key}) << "on record still";
  EXPECT_EQ(recover(), Strings{"addresses of " + pod_.key});
  EXPECT_EQ(owners(), std::set<std::string>());
}

// Hardware that is not back: the deadline of all counts.
TEST_F(RailAddresses, WhatIsStuckIsNamedInTime) {
  give_pod(RailKind::kMove);
  end_pod();
  const auto begin = Clock::now();
  EXPECT_EQ(take("other"), kUsedUp) << "nobody waits for it";
  const auto recovered = ledger_.recover(from_now(std::chrono::milliseconds(100)));
  ASSERT_FALSE(recovered);
  const std::string stuck = "netdev `no-such-eth7` (0000:1a:00.0) has not come back to the node";
  EXPECT_EQ(recovered.error().message, "`" + pod_.key + "`: " + stuck);
  EXPECT_EQ(recover(), Strings());
  EXPECT_EQ(rails_->take_warnings(), Strings{"rails of `" + pod_.key + "`: " + stuck});
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2)) << "5 s without a deadline";
  EXPECT_EQ(owners(), std::set<std::string>{pod_.key});
}

}  // namespace
}  // namespace hook
