#include <gtest/gtest.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "hook/rails/netlink/links.hpp"
#include "hook/rails/netlink/records.hpp"
#include "support/inventories.hpp"
#include "tests/unit/sanitized.hpp"
#include "unit/hook/rails/network_scene.hpp"

namespace hook {
namespace {

using namespace fabric::netlink;
using namespace test_support;
using Strings = std::vector<std::string>;

Strings record_texts(const std::vector<NetRecord>& records) {
  Strings all;
  for (const NetRecord& record : records)
    all.push_back(to_string(record));
  return all;
}

// Makes a record of a message as the kernel sends it, with attributes.
NetRecord record_of(std::uint16_t type, const RequestBuilder& request) {
  const Bytes payload = request.message().payload;
  return {type, {payload.begin(), payload.end()}};
}

template <typename Header>
Header header_of(const NetRecord& record) {
  return *Message{record.type, record.payload}.header<Header>();
}

template <typename Header>
Attributes attributes_of(const NetRecord& record) {
  return Message{record.type, record.payload}.attributes(sizeof(Header));
}

RouteSpec route_spec(int ifindex, const char* destination, unsigned prefix, const char* gateway = nullptr) {
  RouteSpec spec;
  spec.ifindex = ifindex;
  spec.prefix = prefix;
  if (destination) spec.destination = address(destination);
  if (gateway) spec.gateway = address(gateway);
  spec.ipv6 = std::string(destination ? destination : gateway ? gateway : "").find(':') != std::string::npos;
  return spec;
}

TEST(Records, ReadAsIpWritesThem) {
  EXPECT_EQ(to_string(address_record(3, address("10.1.0.2"), 24)), "10.1.0.2/24");
  EXPECT_EQ(to_string(address_record(3, address("fd00::2"), 64)), "fd00::2/64");
  EXPECT_EQ(to_string(route_record(route_spec(3, nullptr, 0, "10.1.0.1"))), "default via 10.1.0.1");
  RouteSpec spec = route_spec(3, nullptr, 0, "10.1.0.1");
  spec.table = 101;
  EXPECT_EQ(to_string(route_record(spec)), "default via 10.1.0.1 table 101");
  spec.source = address("10.1.0.2");
  spec.table = 1000;
  EXPECT_EQ(to_string(route_record(spec)), "default via 10.1.0.1 table 1000 src 10.1.0.2");
  EXPECT_EQ(to_string(route_record(route_spec(3, "10.1.0.77", 16))), "10.1.0.0/16 scope link") << "no host bits";
  EXPECT_EQ(to_string(route_record(route_spec(3, "10.1.0.77", 32))), "10.1.0.77 scope link");
  EXPECT_EQ(to_string(route_record(route_spec(3, "fd00:1::", 61, "fd00::1"))), "fd00:1::/61 via fd00::1");
  EXPECT_EQ(to_string(rule_record(address("10.1.0.2"), 101, 32765)), "from 10.1.0.2 lookup 101");
  EXPECT_EQ(to_string(rule_record(address("fd00::2"), 70000, 32765)), "from fd00::2 lookup 70000");
  EXPECT_EQ(to_string(NetRecord{}), "?");
  EXPECT_EQ(to_string(NetRecord{RTM_NEWROUTE, {AF_INET, 0, 0}}), "?");
  EXPECT_EQ(address_of(NetRecord{}), std::nullopt);
  EXPECT_EQ(address_of(rule_record(address("10.1.0.2"), 1, 1)), std::nullopt);
  EXPECT_EQ(address_of(address_record(3, address("10.1.0.2"), 24)), address("10.1.0.2"));
  EXPECT_EQ(address_of(address_record(3, address("fd00::2"), 24)), address("fd00::2"));
}

TEST(Records, SetAddressFlags) {
  const auto flags_of = [](const char* text, AddressFlags flags) {
    return attributes_of<ifaddrmsg>(address_record(3, address(text), 24, flags)).u32(IFA_FLAGS).value_or(99);
  };
  EXPECT_EQ(flags_of("10.1.0.2", {}), 0U);
  EXPECT_EQ(flags_of("fd00::1", {}), std::uint32_t{IFA_F_NODAD});
  EXPECT_EQ(flags_of("fd00::1", {.no_dad = false}), 0U);
  EXPECT_EQ(flags_of("10.1.0.2", {.no_prefix_route = true}), std::uint32_t{IFA_F_NOPREFIXROUTE});
  const auto scoped = address_record(3, address("10.1.0.2"), 24, {.host_scope = true});
  EXPECT_EQ(header_of<ifaddrmsg>(scoped).ifa_scope, RT_SCOPE_HOST);
}

// A dumped IPv4 address of `eth0` with attributes that only dumps have, and an unknown attribute.
NetRecord dumped_address(const char* label, std::uint32_t flags = IFA_F_PERMANENT | IFA_F_NOPREFIXROUTE) {
  ifaddrmsg header{};
  header.ifa_family = AF_INET;
  header.ifa_prefixlen = 24;
  header.ifa_index = 3;
  header.ifa_flags = static_cast<std::uint8_t>(flags);
  RequestBuilder request(RTM_NEWADDR, 0, header);
  const std::uint8_t bytes[] = {10, 1, 0, 2};
  request.put(IFA_ADDRESS, Bytes(bytes));
  request.put(IFA_LOCAL, Bytes(bytes));
  request.put(IFA_LABEL, std::string_view(label));
  request.put(IFA_FLAGS, flags);
  request.put(IFA_CACHEINFO, ifa_cacheinfo{0xffffffff, 0xffffffff, 1234, 5678});
  request.put(1000, std::uint16_t{0xabcd});
  const auto nest = request.begin(1001);
  request.put(1, std::uint8_t{5});
  request.end(nest);
  return record_of(RTM_NEWADDR, request);
}

TEST(ForNetdev, ChangesIndexOfAddresses) {
  const NetRecord made = for_netdev(dumped_address("eth0:1"), 9, "net1");
  EXPECT_EQ(to_string(made), "10.1.0.2/24");
  EXPECT_EQ(header_of<ifaddrmsg>(made).ifa_index, 9U);
  const Attributes attributes = attributes_of<ifaddrmsg>(made);
  EXPECT_EQ(attributes.text(IFA_LABEL), "net1:1");
  EXPECT_EQ(attributes.u32(IFA_FLAGS), std::uint32_t{IFA_F_PERMANENT | IFA_F_NOPREFIXROUTE});
  EXPECT_FALSE(attributes.has(IFA_CACHEINFO));
  EXPECT_EQ(attributes.get(1000).size(), 2U) << "an unknown attribute stays";
  EXPECT_EQ(Attributes(attributes.get(1001)).u8(1), 5);
  EXPECT_EQ(for_netdev(made, 9, "net1"), made);
  const auto label_of = [](const NetRecord& record) { return attributes_of<ifaddrmsg>(record).text(IFA_LABEL); };
  EXPECT_EQ(label_of(for_netdev(dumped_address("eth0"), 9, "net1")), std::nullopt);
  EXPECT_EQ(label_of(for_netdev(dumped_address("eth0:1"), 9, "fourteen-chars")), std::nullopt);
  EXPECT_EQ(label_of(for_netdev(dumped_address("eth0:1"), 9, "thirteen-char")), "thirteen-char:1");
  const NetRecord deprecated = for_netdev(dumped_address("eth0", IFA_F_PERMANENT | IFA_F_DEPRECATED), 9, "net1");
  const Bytes cache = attributes_of<ifaddrmsg>(deprecated).get(IFA_CACHEINFO);
  const std::vector<std::uint8_t> wanted = {0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(std::vector<std::uint8_t>(cache.begin(), cache.end()), wanted);
}

TEST(ForNetdev, SetsNodadOnIpv6Addresses) {
  AddressFlags flags;
  flags.no_dad = false;
  const NetRecord made = for_netdev(address_record(3, address("fd00::2"), 64, flags), 9, "net1");
  EXPECT_EQ(attributes_of<ifaddrmsg>(made).u32(IFA_FLAGS), std::uint32_t{IFA_F_NODAD});
  EXPECT_EQ(header_of<ifaddrmsg>(made).ifa_flags, IFA_F_NODAD);
}

TEST(ForNetdev, ChangesIndexOfRoutes) {
  rtmsg header{};
  header.rtm_family = AF_INET;
  header.rtm_dst_len = 8;
  header.rtm_table = RT_TABLE_MAIN;
  header.rtm_protocol = RTPROT_STATIC;
  header.rtm_type = RTN_UNICAST;
  header.rtm_flags = RTNH_F_ONLINK | RTNH_F_LINKDOWN | RTNH_F_DEAD;
  RequestBuilder request(RTM_NEWROUTE, 0, header);
  const std::uint8_t destination[] = {10, 0, 0, 0};
  request.put(RTA_DST, Bytes(destination));
  request.put(RTA_OIF, 3);
  request.put(RTA_CACHEINFO, rta_cacheinfo{});
  request.put(500, std::uint32_t{77});
  const NetRecord made = for_netdev(record_of(RTM_NEWROUTE, request), 9, "net1");
  EXPECT_EQ(to_string(made), "10.0.0.0/8 proto static onlink");
  EXPECT_EQ(header_of<rtmsg>(made).rtm_flags, std::uint32_t{RTNH_F_ONLINK});
  EXPECT_EQ(attributes_of<rtmsg>(made).u32(RTA_OIF), 9U);
  EXPECT_FALSE(attributes_of<rtmsg>(made).has(RTA_CACHEINFO));
  EXPECT_EQ(attributes_of<rtmsg>(made).u32(500), 77U);
}

TEST(ForNetdev, ChangesNameInRulesExceptTheLoopback) {
  fib_rule_hdr header{};
  header.family = AF_INET;
  header.table = 101;
  header.action = FR_ACT_TO_TBL;
  header.flags = FIB_RULE_INVERT | FIB_RULE_IIF_DETACHED;
  RequestBuilder request(RTM_NEWRULE, 0, header);
  request.put(FRA_IIFNAME, std::string_view("lo"));
  request.put(FRA_OIFNAME, std::string_view("eth0"));
  const NetRecord made = for_netdev(record_of(RTM_NEWRULE, request), 9, "net1");
  EXPECT_EQ(to_string(made), "not from all iif lo oif net1 lookup 101");
  EXPECT_EQ(header_of<fib_rule_hdr>(made).flags, std::uint32_t{FIB_RULE_INVERT});
}

TEST(ForNetdev, ChangesIndexOfNeighbours) {
  ndmsg header{};
  header.ndm_family = AF_INET;
  header.ndm_ifindex = 3;
  header.ndm_state = NUD_PERMANENT;
  RequestBuilder request(RTM_NEWNEIGH, 0, header);
  const std::uint8_t neighbour[] = {10, 1, 0, 9};
  const std::uint8_t mac[] = {2, 0, 0, 0, 0, 0xfe};
  request.put(NDA_DST, Bytes(neighbour));
  request.put(NDA_LLADDR, Bytes(mac));
  request.put(NDA_PROBES, std::uint32_t{4});
  request.put(NDA_CACHEINFO, nda_cacheinfo{});
  const NetRecord made = for_netdev(record_of(RTM_NEWNEIGH, request), 9, "net1");
  EXPECT_EQ(to_string(made), "10.1.0.9 lladdr 02:00:00:00:00:fe PERMANENT");
  EXPECT_EQ(header_of<ndmsg>(made).ndm_ifindex, 9);
  EXPECT_FALSE(attributes_of<ndmsg>(made).has(NDA_PROBES));
  EXPECT_FALSE(attributes_of<ndmsg>(made).has(NDA_CACHEINFO));
}

TEST(RecordHex, ParsesItsOwnText) {
  for (const NetRecord& record :
       {address_record(3, address("10.1.0.2"), 24), address_record(3, address("fd00::2"), 64),
        route_record(route_spec(3, nullptr, 0, "10.1.0.1")), rule_record(address("fd00::2"), 101, 7)}) {
    const std::string hex = to_hex(record);
    EXPECT_EQ(hex.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_EQ(record_from_hex(record.type, hex), record);
  }
  EXPECT_EQ(to_hex(NetRecord{RTM_NEWADDR, {0x00, 0xff, 0xa5}}), "00ffa5");
}

TEST(RecordHex, RefusesMalformedText) {
  const std::string hex = to_hex(address_record(3, address("10.1.0.2"), 24));
  EXPECT_TRUE(record_from_hex(RTM_NEWADDR, hex.substr(0, 16))) << "a header without attributes is valid";
  EXPECT_FALSE(record_from_hex(RTM_NEWADDR, ""));
  EXPECT_FALSE(record_from_hex(RTM_NEWADDR, hex + "0")) << "half a byte";
  EXPECT_FALSE(record_from_hex(RTM_NEWADDR, hex + "00")) << "half an attribute";
  EXPECT_FALSE(record_from_hex(RTM_NEWADDR, hex.substr(0, 15) + "g" + hex.substr(16)));
  EXPECT_FALSE(record_from_hex(RTM_NEWADDR, "0A" + hex.substr(2))) << "upper case";
  EXPECT_FALSE(record_from_hex(RTM_NEWADDR, std::string("0\0", 2) + hex.substr(2)));
  EXPECT_FALSE(record_from_hex(RTM_NEWADDR, "07" + hex.substr(2))) << "an unknown family";
  EXPECT_FALSE(record_from_hex(RTM_DELADDR, hex));
  EXPECT_FALSE(record_from_hex(RTM_NEWLINK, hex));
  EXPECT_FALSE(record_from_hex(RTM_NEWADDR, hex + std::string(1 << 17, '0')));
  for (const char* length : {"00", "03", "09", "ff"})
    EXPECT_FALSE(record_from_hex(RTM_NEWADDR, hex.substr(0, 16) + length + hex.substr(18))) << length;
}

// For the sanitizers: no function reads beyond the end of any bytes.
TEST(RecordHex, ReadsAnyBytesWithoutOverrun) {
  unsigned state = 1;
  const auto next = [&] { return state = state * 1103515245 + 12345, static_cast<std::uint8_t>(state >> 16); };
  unsigned accepted = 0;
  constexpr unsigned kAttempts = kIsSanitized ? 2000 : 20000;
  for (unsigned round = 0; round < kAttempts; ++round) {
    for (const std::uint16_t type : {RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWRULE, RTM_NEWNEIGH}) {
      NetRecord record{type, {}};
      record.payload.assign(type == RTM_NEWADDR ? 8 : 12, 0);
      for (std::uint8_t& byte : record.payload)
        byte = next();
      record.payload[0] = next() % 2 == 0 ? AF_INET : AF_INET6;
      for (int attribute = next() % 6; attribute > 0; --attribute) {
        const auto value = static_cast<std::uint8_t>(next() % 24);
        const std::uint8_t header[] = {static_cast<std::uint8_t>(value + 4), 0, static_cast<std::uint8_t>(next() % 32),
                                       0};
        record.payload.insert(record.payload.end(), header, header + 4);
        for (int i = 0; i < (value + 3) / 4 * 4; ++i)
          record.payload.push_back(next());
      }
      if (next() % 4 == 0) record.payload.resize(next() % (record.payload.size() + 1));
      const auto read = record_from_hex(type, to_hex(record));
      const NetRecord& looked_at = read ? *read : record;
      accepted += read ? 1 : 0;
      EXPECT_FALSE(to_string(looked_at).empty());
      if (!read) {
        EXPECT_EQ(to_string(looked_at), "?");
      }
      address_of(looked_at);
      EXPECT_EQ(record_from_hex(type, to_hex(for_netdev(looked_at, 9, "net1"))).has_value(), read.has_value());
    }
  }
  EXPECT_GT(accepted, kAttempts / 2);
}

// ---- with the kernel

// In a network namespace with a veth pair v0 and v1, both up.
class Veth : public NetnsTest {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    if (std::system("ip -V > /dev/null 2>&1") != 0) GTEST_SKIP() << "no iproute2";
    if (!is_allowed_) return;
    ASSERT_EQ(std::system("ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up"), 0);
    v0_ = must(must(find_link(route_, "v0"))).ifindex;
  }
  int v0_ = 0;
};
class ReadRecords : public Veth {};
class AddRecords : public Veth {};

void ip(const std::string& arguments) {
  EXPECT_EQ(std::system(("ip " + arguments).c_str()), 0) << "ip " << arguments;
}

std::string ip_output(const std::string& arguments) {
  std::string text;
  FILE* pipe = ::popen(("ip " + arguments).c_str(), "r");
  char buffer[4096];
  while (pipe && std::fgets(buffer, sizeof buffer, pipe))
    text += buffer;
  if (pipe) ::pclose(pipe);
  return text;
}

NetdevRecords read_all(Netlink& route, int ifindex, const char* name) {
  return must(read_records(route, ifindex, name));
}

TEST_F(ReadRecords, FindsNothingOnNewNetdevAndFailsWithoutNetdev) {
  const NetdevRecords found = read_all(route_, v0_, "v0");
  EXPECT_EQ(record_texts(found.records), Strings{}) << "link-local addresses and kernel routes are not configuration";
  EXPECT_EQ(found.skipped, Strings{});
  EXPECT_EQ(error_code(read_records(route_, 9999, "v9")), ENODEV);
}

void configure_v0() {
  for (const char* arguments : {
           "addr add 10.1.0.2/24 dev v0",
           "addr add 10.1.0.3/24 dev v0 label v0:1 noprefixroute",
           "addr add 10.9.0.2 peer 10.9.0.9/32 dev v0",
           "addr add 10.1.0.4/24 dev v0 valid_lft 1000 preferred_lft 1000",
           "addr add fd00::2/64 dev v0 nodad",
           "addr add fd00::3/64 dev v0 nodad",
           "addr add 10.2.0.2/24 dev v1",
           "route add 10.8.0.0/16 via 10.1.0.1 dev v0 table 101 metric 5 mtu 1400",
           "route add 10.7.0.0/16 dev v0 src 10.1.0.2 proto static",
           "route add 10.6.0.0/16 nexthop via 10.1.0.7 dev v0 nexthop via 10.1.0.8 dev v0",
           "route add 10.5.0.0/16 via 10.2.0.1 dev v1",
           "nexthop add id 5 via 10.1.0.7 dev v0",
           "route add 10.4.0.0/16 nhid 5",
           "-6 route add fd01::/64 via fd00::9 dev v0",
           "-6 route add fd02::/64 dev v0 table 500",
           "-6 route add fd03::/64 dev v0 expires 1000",
           "rule add from 10.1.0.2 lookup 101",
           "rule add from 10.1.0.0/24 lookup 102",
           "rule add to 10.1.0.3 lookup 103 pref 7",
           "rule add iif v0 fwmark 5 lookup 104",
           "rule add iif v1 oif v0 lookup 105",
           "rule add iif v1 lookup 106",
           "-6 rule add from fd00::2 lookup 500",
           "neigh add 10.1.0.9 lladdr 02:00:00:00:00:01 dev v0 nud permanent",
           "neigh add 10.1.0.10 lladdr 02:00:00:00:00:01 dev v0 nud stale",
           "neigh add 10.2.0.9 lladdr 02:00:00:00:00:01 dev v1 nud permanent",
           "-6 neigh add fd00::9 lladdr 02:00:00:00:00:01 dev v0 nud permanent",
       })
    ip(arguments);
}

const Strings kOfV0 = {"10.1.0.2/24",
                       "10.9.0.2 peer 10.9.0.9/32",
                       "10.1.0.3/24",
                       "fd00::2/64",
                       "fd00::3/64",
                       "10.7.0.0/16 proto static scope link src 10.1.0.2",
                       "fd02::/64 table 500 metric 1024",
                       "10.8.0.0/16 via 10.1.0.1 table 101 metric 5",
                       "fd01::/64 via fd00::9 metric 1024",
                       "from all fwmark 0x5 iif v0 lookup 104",
                       "from all to 10.1.0.3 lookup 103",
                       "from 10.1.0.2 lookup 101",
                       "from fd00::2 lookup 500",
                       "10.1.0.9 lladdr 02:00:00:00:00:01 PERMANENT",
                       "fd00::9 lladdr 02:00:00:00:00:01 PERMANENT"};

TEST_F(ReadRecords, ReadsRecordsThatCanMove) {
  configure_v0();
  const NetdevRecords found = read_all(route_, v0_, "v0");
  EXPECT_EQ(record_texts(found.records), kOfV0);
  const Strings skipped = {"10.1.0.4/24", "10.4.0.0/16 nhid 5 via 10.1.0.7",
                           "10.6.0.0/16 nexthop via 10.1.0.7 weight 1 nexthop via 10.1.0.8 weight 1",
                           "fd03::/64 metric 1024", "from all iif v1 oif v0 lookup 105"};
  EXPECT_EQ(found.skipped, skipped);
}

TEST_F(ReadRecords, WorksWithoutStrictChecking) {
  configure_v0();
  const int off = 0;
  ASSERT_EQ(::setsockopt(route_.fd(), SOL_NETLINK, NETLINK_GET_STRICT_CHK, &off, sizeof off), 0);
  EXPECT_EQ(record_texts(read_all(route_, v0_, "v0").records), kOfV0);
}

TEST_F(ReadRecords, SkipsNexthopObjectsWithoutNetdev) {
  ip("addr add 10.1.0.2/24 dev v0");
  ip("nexthop add id 5 via 10.1.0.7 dev v0");
  ip("route add 10.4.0.0/16 nhid 5");
  ASSERT_EQ(std::system("echo 0 > /proc/sys/net/ipv4/nexthop_compat_mode"), 0);
  EXPECT_EQ(read_all(route_, v0_, "v0").skipped, Strings{"10.4.0.0/16 nhid 5"});
  EXPECT_EQ(read_all(route_, must(must(find_link(route_, "v1"))).ifindex, "v1").skipped, Strings{});
}

TEST_F(ReadRecords, MovesRecordsToAnotherNetdev) {
  configure_v0();
  const NetdevRecords found = read_all(route_, v0_, "v0");
  ASSERT_OK(remove_records(route_, found.records));
  EXPECT_EQ(record_texts(read_all(route_, v0_, "v0").records), Strings{});
  ip("link del v0");
  ip("link add x type veth peer name eth7");
  ip("link set x up");
  ip("link set eth7 up");
  const int eth7 = must(must(find_link(route_, "eth7"))).ifindex;
  std::vector<NetRecord> records;
  for (const NetRecord& record : found.records)
    records.push_back(for_netdev(record, eth7, "eth7"));
  for (int time = 0; time < 2; ++time)  // the second time all records are there
    ASSERT_OK(add_records(route_, records));
  NetdevRecords again = read_all(route_, eth7, "eth7");
  Strings wanted = kOfV0;
  *std::find(wanted.begin(), wanted.end(), "from all fwmark 0x5 iif v0 lookup 104") =
      "from all fwmark 0x5 iif eth7 lookup 104";
  EXPECT_EQ(record_texts(again.records), wanted) << "in the same order";
  EXPECT_TRUE(has_text(ip_output("addr show dev eth7"), "eth7:1"));
  EXPECT_TRUE(has_text(ip_output("route show table 101"), "mtu 1400"));
  for (NetRecord& record : again.records)
    record = for_netdev(record, eth7, "eth7");
  EXPECT_EQ(again.records.size(), records.size());
  for (int time = 0; time < 2; ++time)  // the second time no record is there
    ASSERT_OK(remove_records(route_, records));
  EXPECT_EQ(record_texts(read_all(route_, eth7, "eth7").records), Strings{});
  ip("link del x");
  EXPECT_TRUE(remove_records(route_, records)) << "the netdev is gone too";
}

TEST_F(AddRecords, AddsAndRemovesMadeRecords) {
  RouteSpec gateway = route_spec(v0_, nullptr, 0, "10.1.0.1");
  gateway.table = 1001;
  gateway.source = address("10.1.0.2");
  RouteSpec on_link = route_spec(v0_, "10.1.0.2", 24);
  on_link.table = 1001;
  RouteSpec gateway6 = route_spec(v0_, nullptr, 0, "fd00::1");
  gateway6.table = 1001;
  const std::vector<NetRecord> records = {
      address_record(v0_, address("10.1.0.2"), 24, {.no_prefix_route = true, .host_scope = true}),
      address_record(v0_, address("fd00::2"), 64),
      route_record(on_link),
      route_record(gateway),
      route_record(gateway6),
      rule_record(address("10.1.0.2"), 1001, 5000),
      rule_record(address("fd00::2"), 1001, 5000)};
  for (int time = 0; time < 2; ++time)
    ASSERT_OK(add_records(route_, records));
  EXPECT_TRUE(has_text(ip_output("addr show dev v0"), "10.1.0.2/24 scope host noprefixroute"));
  EXPECT_EQ(ip_output("-6 addr show dev v0 scope global tentative"), "");
  EXPECT_EQ(ip_output("route show table 1001"),
            "default via 10.1.0.1 dev v0 src 10.1.0.2 \n10.1.0.0/24 dev v0 scope link \n");
  EXPECT_EQ(ip_output("-6 route show table 1001"), "default via fd00::1 dev v0 metric 1024 pref medium\n");
  EXPECT_EQ(ip_output("rule show pref 5000"), "5000:\tfrom 10.1.0.2 lookup 1001\n");
  EXPECT_TRUE(remove_records(route_, records));
  EXPECT_EQ(ip_output("rule show pref 5000") + ip_output("-6 rule show pref 5000"), "");
  EXPECT_EQ(record_texts(read_all(route_, v0_, "v0").records), Strings{});
}

TEST_F(AddRecords, KeepsExistingRoutes) {
  ip("addr add 10.1.0.2/24 dev v0");
  ip("addr add 10.2.0.2/24 dev v1");
  ip("-6 addr add fd00::2/64 dev v0 nodad");
  ip("route add 10.5.0.0/16 via 10.2.0.1");
  ip("-6 route add fd05::/64 via fd00::1 dev v0");
  ip("-6 route add fd06::/64 dev v1");
  const std::string before = ip_output("route") + ip_output("-6 route");
  for (const RouteSpec& spec : {route_spec(v0_, "10.5.0.0", 16), route_spec(v0_, "10.5.0.0", 16, "10.1.0.1"),
                                route_spec(v0_, "fd05::", 64, "fd00::5"), route_spec(v0_, "fd06::", 64, "fd00::5")}) {
    const auto added = add_records(route_, {route_record(spec)});
    EXPECT_EQ(error_code(added), EEXIST);
    EXPECT_EQ(error_message(added), fmt::format("cannot add route `{}`: another route to the same destination is there",
                                                to_string(route_record(spec))));
    EXPECT_FALSE(error_hint(added).empty());
  }
  EXPECT_TRUE(add_records(route_, {route_record(route_spec(v0_, "10.1.0.0", 24))})) << "the kernel's own";
  EXPECT_TRUE(add_records(route_, {route_record(route_spec(v0_, "fd05::", 64, "fd00::1"))}));
  EXPECT_EQ(ip_output("route") + ip_output("-6 route"), before);
}

TEST_F(AddRecords, ReplacesLearnedNeighbours) {
  ip("addr add 10.1.0.2/24 dev v0");
  ip("neigh add 10.1.0.9 lladdr 02:00:00:00:00:01 dev v0 nud permanent");
  const NetdevRecords found = read_all(route_, v0_, "v0");
  ip("neigh change 10.1.0.9 lladdr 02:00:00:00:00:05 dev v0 nud stale");
  EXPECT_TRUE(add_records(route_, found.records));
  EXPECT_EQ(ip_output("neigh show 10.1.0.9"), "10.1.0.9 dev v0 lladdr 02:00:00:00:00:01 PERMANENT \n");
}

TEST_F(AddRecords, NamesRecordThatTheKernelRefuses) {
  const auto unreachable = add_records(
      route_, {address_record(v0_, address("10.1.0.2"), 24), route_record(route_spec(v0_, nullptr, 0, "10.77.0.1"))});
  EXPECT_EQ(error_code(unreachable), ENETUNREACH);
  EXPECT_EQ(error_message(unreachable),
            "cannot add route `default via 10.77.0.1`: Network is unreachable (Nexthop has invalid gateway)");
  EXPECT_EQ(error_code(add_records(route_, {address_record(9999, address("10.1.0.2"), 24)})), ENODEV);
  EXPECT_EQ(error_code(add_records(route_, {NetRecord{RTM_NEWLINK, {}}})), EINVAL);
  EXPECT_FALSE(remove_records(route_, {NetRecord{RTM_NEWADDR, {2}}}));
}

}  // namespace
}  // namespace hook
