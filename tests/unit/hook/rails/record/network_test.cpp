// Records of rails: written and read again, complete or with an error that names the wrong member.
#include <gtest/gtest.h>
#include <linux/rtnetlink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/json/json.hpp"
#include "hook/rails/record/store.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

using namespace test_support;
using Strings = std::vector<std::string>;
using Pointer = Json::json_pointer;

constexpr const char* kPath = "/run/rdma-hook/network/k.json";

VfAttributes all_attributes() {
  VfAttributes vf;
  vf.mac = MacAddress{2, 0, 0, 0, 0xab, 1};
  vf.vlan = 100;
  vf.qos = 3;
  vf.vlan_protocol = std::uint16_t{0x88a8};
  vf.trust = true;
  vf.spoofchk = false;
  vf.link_state = 2;
  vf.min_tx_rate = 10;
  vf.max_tx_rate = 4294967295U;
  vf.node_guid = 0xfedcba9876543210;
  vf.port_guid = UINT64_MAX;
  return vf;
}

RailRecord full_rail() {
  RailRecord record;
  record.rail = Rail{.rail = 7,
                     .hca = "mlx5_7",
                     .host = "eth7",
                     .name = "net8",
                     .kind = RailKind::kMove,
                     .macvlan_private = true,
                     .pkey = std::uint16_t{0x8001},
                     .mtu = 9000,
                     .addresses = {{address("10.1.7.2"), 24, address("10.1.7.1")},
                                   {address("fd00:7::2"), 64, address("fd00:7::1")},
                                   {address("fd00:7::3"), 128, std::nullopt}},
                     .table = 107,
                     .vf = all_attributes(),
                     .move_rdma = true,
                     .recreate = "rxe"};
  record.network = "storage \"a\"\n";
  record.host =
      HostNetdev{.ifindex = INT32_MAX,
                 .name = "eth7",
                 .kind = "",
                 .bus_address = "0000:1a:00.2",
                 .mac = {0, 0x0a, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
                 .permanent_mac = {2, 0, 0, 0, 0, 1},
                 .identity = UINT64_MAX,
                 .mtu = 4294967295U,
                 .tx_queue_length = 1000,
                 .up = true,
                 .records = {address_record(3, address("10.1.7.2"), 24), rule_record(address("fd00::7"), 1, 2)},
                 .settings = LinkSettings{.flags = 0x1100,
                                          .alias = "rack 7, \"left\"\n",
                                          .broadcast = {255, 255, 255, 255, 255, 255},
                                          .other_names = {"enp26s0f1", "rail7"},
                                          .numbers = {1, 0, 1, 65535, 65536, 65536, 65536, UINT32_MAX},
                                          .xdp = {7, 0, UINT32_MAX}},
                 .features = NetdevFeatures{{UINT32_MAX, 3}, {0, 1}, {7}},
                 .sysfs = SysfsSettings{{{"1"}, {"20000"}, {}, {"ff", "0"}, {"256", "0"}, {"1,00000000"}}},
                 .tcx = std::vector<std::uint32_t>{1, UINT32_MAX},
                 .rdma = RdmaDevice{UINT32_MAX, "mlx5_7", UINT64_MAX},
                 .vfs = {all_attributes(), {}},
                 .pf = "eth0",
                 .vf = 5,
                 .vf_attributes = all_attributes()};
  record.rule_priority = 31999;
  record.lease = IpamLease{"host-local", "storage", R"({"type":"host-local","x":[1,{"y":null}]})", "net8",
                           "IgnoreUnknown=1;K8S_POD_NAME=a"};
  record.gid_index = 3;
  record.device = "0000:11:00.0";
  record.child = INT32_MAX;
  return record;
}

NetworkRecord full() {
  RailRecord plain;
  plain.rail.kind = RailKind::kIpvlan;
  return {"container-web-0123",
          {UINT64_MAX, 4026531840, "/proc/7/ns/net"},
          UINT32_MAX,
          {full_rail(), plain},
          NetnsHandle{INT32_MAX, UINT64_MAX, UINT64_MAX}};
}

std::string problem(const Json& document) {
  const auto record = parse_network_record(document.dump(), kPath);
  return record ? "" : record.error().message;
}

TEST(NetworkRecord, ParsesItsOwnText) {
  NetworkRecord record = full();
  EXPECT_EQ(must(parse_network_record(network_record_text(record), kPath)), record) << "with everything set";
  EXPECT_EQ(must(parse_network_record(network_record_text({}), kPath)), NetworkRecord{}) << "with nothing set";
  for (const RailKind kind : {RailKind::kMove, RailKind::kMacvlan, RailKind::kIpvlan, RailKind::kIpoib}) {
    record.rails[0].rail.kind = kind;
    EXPECT_EQ(parse_network_record(network_record_text(record), kPath)->rails[0].rail.kind, kind) << to_string(kind);
  }
}

TEST(NetworkRecord, HasTextsOfRecordsAndRemediesOfErrors) {
  const Json document = Json::parse(network_record_text(full()));
  EXPECT_EQ(document.at(Pointer("/rails/0/host/records/0/what")), "10.1.7.2/24");
  EXPECT_EQ(document.at(Pointer("/rails/0/host/records/1/what")), "from fd00::7 lookup 1");
  EXPECT_EQ(document.at(Pointer("/rails/0/host/mac")), "000aff8000000000000000010203040506070809");
  for (const char* text : {"", "{", "[]", "{\"format\": 1}", "7"}) {
    const auto record = parse_network_record(text, kPath);
    EXPECT_TRUE(has_text(error_message(record), kPath));
    EXPECT_EQ(error_hint(record), "restore the netdevs by hand, remove the file and run `rdma-hook recover`");
  }
  EXPECT_FALSE(parse_network_record(std::string(2 << 20, ' ') + network_record_text(full()), kPath)) << "too large";
}

// Lists the paths of all members, at any depth.
void list_members(const Json& json, const std::string& path, Strings& members) {
  if (!json.is_structured()) return;
  for (const auto& [name, value] : json.items()) {
    const std::string inner = fmt::format("{}/{}", path, name);
    if (json.is_object()) members.push_back(inner);
    list_members(value, inner, members);
  }
}

// Returns a record with one rail, because the second rail of full() has no other members than the first.
Json document() {
  NetworkRecord record = full();
  record.rails.pop_back();
  return Json::parse(network_record_text(record));
}

Strings all_members() {
  Strings members;
  list_members(document(), "", members);
  return members;
}

bool may_be_missing(const std::string& member) {
  static const std::set<std::string> kOptional = {
      "cookie",   "gateway",       "gid_index", "lease",    "mtu",      "pkey",      "recreate",
      "identity", "permanent_mac", "tcx",       "settings", "features", "broadcast", "vfs",
      "table",    "what",          "rdma",      "args",     "sysfs",    "handle",    "child"};
  const std::string name = member.substr(member.rfind('/') + 1);
  const bool of_vf = member.find("/vfs/") != std::string::npos || member.find("/vf/") != std::string::npos ||
                     member.find("/vf_attributes/") != std::string::npos;
  const bool of_numbers = member.find("/numbers/") != std::string::npos;
  const bool of_sysfs = member.find("/host/sysfs/") != std::string::npos;
  const bool is_identity = member == "/rails/0/device";
  return of_vf || of_numbers || of_sysfs || is_identity || (kOptional.contains(name) && member != "/rails/0/host/mtu");
}

TEST(NetworkRecord, FailsForEveryMissingOrWrongMember) {
  const auto members = all_members();
  ASSERT_GT(members.size(), 60U);
  for (const std::string& member : members) {
    Json damaged = document();
    const auto at = member.rfind('/');
    damaged[Pointer(member.substr(0, at))].erase(member.substr(at + 1));
    EXPECT_EQ(problem(damaged).empty(), may_be_missing(member)) << member << ": " << problem(damaged);
  }
  const Json wrong[] = {
      nullptr, -1, 1.5, 5U, "\x7f", "", true, Json::array({1}), Json::array(), Json::object({{"a", 1}})};
  for (const std::string& member : all_members()) {
    if (member.ends_with("/what")) continue;
    const Json right = document()[Pointer(member)];
    for (const Json& value : wrong) {
      // A value of the right type can be valid.
      if (value.type() == right.type()) continue;
      Json damaged = document();
      damaged[Pointer(member)] = value;
      EXPECT_NE(problem(damaged), "") << member << " as " << value;
    }
  }
}

TEST(NetworkRecord, FailsForInvalidValues) {
  const std::tuple<const char*, Json, const char*> cases[] = {
      {"/format", 2, "format"},
      {"/group", 4294967296, "group"},
      {"/handle/number", 2147483648, "number"},
      {"/rails/0/gid_index", 4294967296, "gid_index"},
      {"/rails/0/rail/kind", "bridge", "kind"},
      {"/rails/0/rail/pkey", 65536, "pkey"},
      {"/rails/0/rail/addresses/0/address", "10.1.7.2/24", "address"},
      {"/rails/0/rail/addresses/0/prefix", 33, "prefix"},
      {"/rails/0/rail/addresses/1/prefix", 129, "prefix"},
      {"/rails/0/rail/addresses/0/gateway", "", "gateway"},
      // A record must not name the directory of a plugin.
      {"/rails/0/lease/plugin", "/opt/cni/bin/host-local", "plugin"},
      {"/rails/0/rail/vf/mac", "02:00:00:00:00", "mac"},
      {"/rails/0/rail/vf/vlan_protocol", 65536, "vlan_protocol"},
      {"/rails/0/host/ifindex", 2147483648, "ifindex"},
      {"/rails/0/host/mac", "0", "mac"},
      {"/rails/0/host/mac", "0g", "mac"},
      {"/rails/0/host/mac", "0A", "mac"},
      {"/rails/0/host/features/wanted", Json::array({4294967296}), "wanted"},
      {"/rails/0/host/features/changeable", Json::array({-1}), "changeable"},
      {"/rails/0/host/settings/broadcast", "0g", "broadcast"},
      {"/rails/0/host/sysfs/threaded", "1", "threaded"},
      {"/rails/0/host/sysfs/rps_cpus", Json::array({"../x"}), "rps_cpus"},
      {"/rails/0/host/sysfs/xps_cpus", Json::array({1}), "xps_cpus"},
      {"/rails/0/host/rdma/index", 4294967296, "index"},
      {"/rails/0/host/records/0/type", 65536, "type"},
      {"/rails/0/host/records/0/type", RTM_NEWLINK, "message"},
      {"/rails/0/host/records/0/message", "", "message"},
      {"/rails/0/host/records/0/message", "02", "message"},
      {"/rails/0/host/records/0/message", "021800000300000", "message"},
      {"/rails/0/host/records/0/message", "0218000003000000ff00ff00", "message"}};
  for (const auto& [member, value, named] : cases) {
    Json damaged = document();
    damaged[Pointer(member)] = value;
    EXPECT_EQ(problem(damaged), fmt::format("cannot read `{}`: `{}` is missing or wrong", kPath, named))
        << member << " as " << value;
  }
}

// --- the files ------------------------------------------------------------------------------------------------------

class NetworkRecordStoreTest : public testing::Test {
 protected:
  NetworkRecordStoreTest() : ledger_(Ledger::open(path_).value()), store_(NetworkRecordStore::open(path_).value()) {}
  std::string file(const std::string& key) const { return path_ + "/network/" + key + ".json"; }

  TempDir temp_;
  std::string path_ = temp_ / "ledger";
  Ledger ledger_;
  NetworkRecordStore store_;
};

TEST_F(NetworkRecordStoreTest, WritesReadsAndRemovesRecords) {
  NetworkRecord record = full();
  EXPECT_EQ(*NetworkRecordStore::read_presence(path_, record.key), Presence::kAbsent);
  EXPECT_EQ(*store_.read(record.key), std::nullopt);
  ASSERT_TRUE(store_.write(record));
  EXPECT_EQ(*NetworkRecordStore::read_presence(path_, record.key), Presence::kPresent);
  EXPECT_EQ(*store_.read(record.key), record);
  record.rails.pop_back();
  ASSERT_TRUE(store_.write(record));
  EXPECT_EQ(*NetworkRecordStore::open(path_)->read(record.key), record) << "another process reads it";
  struct stat info {};
  ASSERT_EQ(stat(file(record.key).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  ASSERT_TRUE(store_.remove(record.key));
  EXPECT_EQ(*NetworkRecordStore::read_presence(path_, record.key), Presence::kAbsent);
  EXPECT_EQ(*store_.read(record.key), std::nullopt);
  EXPECT_TRUE(store_.remove(record.key)) << "removed already";
}

// A record that cannot be read again must not be written, because its rails could not be restored.
TEST_F(NetworkRecordStoreTest, RefusesRecordThatIsTooLarge) {
  NetworkRecord record = full();
  ASSERT_TRUE(store_.write(record));
  const auto before = record;
  record.rails[0].host.records.assign(20000, address_record(3, address("10.1.7.2"), 24));
  EXPECT_TRUE(has_text(error_message(store_.write(record)), "eth7"));
  EXPECT_EQ(*store_.read(record.key), before) << "the old record stays";
}

TEST_F(NetworkRecordStoreTest, ReadsOnlyFilesOfItsDirectory) {
  EXPECT_EQ(*store_.keys(), Strings());
  for (const char* key : {"netns-4-7", "container-a.b", "token-1"})
    ASSERT_TRUE(store_.write(NetworkRecord{key, {}, 1, {}}));
  write_file(path_ + "/network/notes.txt", "");
  auto keys = *store_.keys();
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(keys, (Strings{"container-a.b", "netns-4-7", "token-1"}));
  write_file(path_ + "/outside.json", network_record_text(full()));
  EXPECT_EQ(*store_.read("../outside"), std::nullopt);
  EXPECT_EQ(*store_.read(""), std::nullopt);
}

TEST_F(NetworkRecordStoreTest, NamesFileThatIsNoRecord) {
  write_file(file("k"), "{\"format\": 1}");
  auto read = store_.read("k");
  ASSERT_FALSE(read);
  EXPECT_EQ(error_message(read), "cannot read `" + file("k") + "`: `key` is missing or wrong");
  // Under another key it would undo rails in a namespace that another container uses.
  write_file(file("k"), network_record_text(full()));
  read = store_.read("k");
  ASSERT_FALSE(read);
  EXPECT_EQ(error_message(read), "cannot read `" + file("k") + "`: it is the record of the grant `" + full().key + "`");
  EXPECT_FALSE(error_hint(read).empty());
  ASSERT_EQ(unlink(file("k").c_str()), 0);
  ASSERT_EQ(symlink("/etc/hostname", file("k").c_str()), 0);
  read = store_.read("k");
  ASSERT_FALSE(read);
  EXPECT_TRUE(has_text(error_message(read), file("k")));
  ASSERT_EQ(chmod((path_ + "/network").c_str(), 0777), 0);
  EXPECT_FALSE(NetworkRecordStore::open(path_)) << "other users can write there";
}

}  // namespace
}  // namespace hook
