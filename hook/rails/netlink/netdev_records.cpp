#include "base/result.hpp"
#include "base/words.hpp"
#include "hook/rails/netlink/records.hpp"

#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

namespace hook {
namespace {

using base::netlink::Attributes;
using base::netlink::Bytes;
using base::netlink::Message;
using fabric::Address;
using fabric::netlink::each_nexthop;
using fabric::netlink::to_address;

constexpr std::uint8_t kFamilies[] = {AF_INET, AF_INET6};

// kTake: the record moves with the netdev. kSkip: it cannot move (NetdevRecords::skipped). kLeave: it is not of this
// netdev, or the kernel makes it again.
enum class Verdict { kLeave, kTake, kSkip };
// Decides whether a message of a dump becomes a record.
// filtered: the kernel confirms that the dump contains only the requested netdev (NLM_F_DUMP_FILTERED).
using Judge = std::function<Verdict(const Message&, bool filtered)>;

// Returns true if the kernel refuses the dump because it was built without IPv6 or without policy rules. Such a kernel
// has no records that the dump could list.
bool is_missing_facility(int code) {
  return code == EOPNOTSUPP || code == EAFNOSUPPORT;
}

Result<NetdevRecords> collect(Netlink& route, const RequestBuilder& request, std::uint16_t type, std::string_view what,
                              const Judge& judge) {
  NetdevRecords found;
  const auto handler = [&](const Message& message) {
    if (message.type != type) return;
    NetRecord record{type, {}};
    const Verdict verdict = judge(message, (message.flags & NLM_F_DUMP_FILTERED) != 0);
    if (verdict == Verdict::kLeave) return;
    record.payload.assign(message.payload.begin(), message.payload.end());
    if (!is_well_formed(record)) return;
    if (verdict == Verdict::kSkip) found.skipped.push_back(to_string(record));
    if (verdict == Verdict::kTake) found.records.push_back(std::move(record));
  };
  auto done = route.dump(
      request, what, [&] { found = {}; }, handler);
  if (!done && !is_missing_facility(done.error().code)) return std::move(done).error();
  return found;
}

Verdict judge_address(const Message& message, unsigned family, int ifindex) {
  const auto* header = message.header<ifaddrmsg>();
  if (!header || header->ifa_family != family || static_cast<int>(header->ifa_index) != ifindex) return Verdict::kLeave;
  const Attributes attributes = message.attributes(sizeof *header);
  const auto address = to_address(family, attributes.get(IFA_ADDRESS));
  if (!address || address->is_link_local()) return Verdict::kLeave;
  const std::uint32_t flags = attributes.u32(IFA_FLAGS).value_or(header->ifa_flags);
  if ((flags & IFA_F_PERMANENT) != 0) return Verdict::kTake;
  // IPv6 addresses that expire come from router advertisements, which add them again, so they are left out.
  return family == AF_INET ? Verdict::kSkip : Verdict::kLeave;
}

bool has_nexthop_by(Bytes multipath, int ifindex) {
  bool found = false;
  each_nexthop(multipath, [&](const rtnexthop& hop, Bytes) { found |= hop.rtnh_ifindex == ifindex; });
  return found;
}

Verdict judge_route(const Message& message, unsigned family, int ifindex, bool filtered) {
  const auto* header = message.header<rtmsg>();
  if (!header || header->rtm_family != family || (header->rtm_flags & RTM_F_CLONED) != 0) return Verdict::kLeave;
  const Attributes attributes = message.attributes(sizeof *header);
  const auto from = header->rtm_protocol;
  // The kernel itself adds routes of these protocols again: together with an address, or after a message of a router.
  const bool own = from != RTPROT_KERNEL && from != RTPROT_REDIRECT && from != RTPROT_RA;
  if (!own || table_of(*header, attributes) == RT_TABLE_LOCAL) return Verdict::kLeave;
  const auto oif = attributes.u32(RTA_OIF);
  if (oif ? static_cast<int>(*oif) == ifindex : has_nexthop_by(attributes.get(RTA_MULTIPATH), ifindex)) {
    const auto cache = value_of<rta_cacheinfo>(attributes.get(RTA_CACHEINFO));
    const bool expires = cache && cache->rta_expires != 0;
    return attributes.has(RTA_NH_ID) || !oif || expires ? Verdict::kSkip : Verdict::kTake;
  }
  // With net.ipv4.nexthop_compat_mode=0 a route names no netdev, only the number of a nexthop object. In a filtered
  // dump such a route uses this netdev.
  return filtered && !oif && attributes.has(RTA_NH_ID) ? Verdict::kSkip : Verdict::kLeave;
}

bool is_one_of(unsigned family, Bytes address, unsigned prefix, const std::set<Address>& addresses) {
  const auto wanted = to_address(family, address);
  return wanted && prefix == address_bits(family) && addresses.contains(*wanted);
}

Verdict judge_rule(const Message& message, const std::string& name, const std::set<Address>& addresses) {
  const auto* header = message.header<fib_rule_hdr>();
  if (!header || (header->family != AF_INET && header->family != AF_INET6)) return Verdict::kLeave;
  const Attributes attributes = message.attributes(sizeof *header);
  bool ours = is_one_of(header->family, attributes.get(FRA_SRC), header->src_len, addresses) ||
              is_one_of(header->family, attributes.get(FRA_DST), header->dst_len, addresses);
  bool others = false;
  for (const unsigned type : {FRA_IIFNAME, FRA_OIFNAME}) {
    const auto netdev = attributes.text(type);
    ours |= netdev == name;
    // A rule that also names another netdev is skipped: it would have no effect in the container, because the other
    // netdev stays on the node.
    others |= netdev && netdev != name && netdev != "lo";
  }
  if (!ours) return Verdict::kLeave;
  return others ? Verdict::kSkip : Verdict::kTake;
}

Verdict judge_neighbour(const Message& message, unsigned family, int ifindex) {
  const auto* header = message.header<ndmsg>();
  const bool ours = header && header->ndm_family == family && header->ndm_ifindex == ifindex;
  const bool permanent = ours && (header->ndm_state & NUD_PERMANENT) != 0 && (header->ndm_flags & NTF_PROXY) == 0;
  return permanent ? Verdict::kTake : Verdict::kLeave;
}

Result<NetdevRecords> read_addresses(Netlink& route, std::uint8_t family, int ifindex) {
  ifaddrmsg header{};
  header.ifa_family = family;
  header.ifa_index = static_cast<std::uint32_t>(ifindex);  // ignored by kernels without strict checking
  const RequestBuilder request(RTM_GETADDR, NLM_F_DUMP, header);
  auto found = TRY(collect(route, request, RTM_NEWADDR, fmt::format("read the addresses of netdev {}", ifindex),
                           [&](const Message& message, bool) { return judge_address(message, family, ifindex); }));
  // Within one scope the kernel lists the newest IPv6 address first (ipv6_link_dev_addr()), but the oldest IPv4 address
  // first. The IPv6 addresses are reversed, so that both lists start with the oldest address.
  if (family == AF_INET6) std::ranges::reverse(found.records);
  return found;
}

Result<NetdevRecords> read_routes(Netlink& route, std::uint8_t family, int ifindex, const Judge& judge) {
  rtmsg header{};
  header.rtm_family = family;
  RequestBuilder request(RTM_GETROUTE, NLM_F_DUMP, header);
  request.put(RTA_OIF, ifindex);  // ignored by kernels without strict checking
  return collect(route, request, RTM_NEWROUTE, fmt::format("read the routes of netdev {}", ifindex), judge);
}

Result<NetdevRecords> read_rules(Netlink& route, const std::string& name, const std::set<Address>& addresses) {
  const RequestBuilder request(RTM_GETRULE, NLM_F_DUMP, fib_rule_hdr{});
  return collect(route, request, RTM_NEWRULE, "read the routing rules",
                 [&](const Message& message, bool) { return judge_rule(message, name, addresses); });
}

Result<NetdevRecords> read_neighbours(Netlink& route, std::uint8_t family, int ifindex) {
  ndmsg header{};
  header.ndm_family = family;
  RequestBuilder request(RTM_GETNEIGH, NLM_F_DUMP, header);
  request.put(NDA_IFINDEX, ifindex);
  return collect(route, request, RTM_NEWNEIGH, fmt::format("read the neighbours of netdev {}", ifindex),
                 [&](const Message& message, bool) { return judge_neighbour(message, family, ifindex); });
}

bool is_on_link(const NetRecord& record) {
  const Attributes attributes = message_of(record).attributes(sizeof(rtmsg));
  return !attributes.has(RTA_GATEWAY) && !attributes.has(RTA_VIA);
}

void add(NetdevRecords& into, NetdevRecords from) {
  std::ranges::move(from.records, std::back_inserter(into.records));
  std::ranges::move(from.skipped, std::back_inserter(into.skipped));
}

constexpr std::uint32_t kIpv6Metric = 1024;  // IP6_RT_PRIO_USER: the metric of an IPv6 route without one

// Returns the routes of one family that leave by this netdev and for which wanted() returns true. The netdev is checked
// here, because older kernels (without NETLINK_GET_STRICT_CHK) do not filter by ifindex.
Result<std::vector<NetRecord>> find_routes(Netlink& route, std::uint8_t family, int ifindex,
                                           const std::function<bool(const Message&)>& wanted) {
  auto found = TRY(read_routes(route, family, ifindex, [&](const Message& message, bool) {
    const auto* header = message.header<rtmsg>();
    return header && header->rtm_family == family && wanted(message) ? Verdict::kTake : Verdict::kLeave;
  }));
  return std::move(found.records);
}

constexpr Word<std::uint16_t> kRecordWords[] = {
    {"address", RTM_NEWADDR}, {"route", RTM_NEWROUTE}, {"rule", RTM_NEWRULE}, {"neighbour", RTM_NEWNEIGH}};

struct RouteKey {
  std::vector<std::uint8_t> destination;
  unsigned prefix, tos, table, metric;
  std::vector<std::uint8_t> gateway;
  std::uint32_t oif;
  friend bool operator==(const RouteKey&, const RouteKey&) = default;
};

RouteKey key_of(const Message& message) {
  const auto& header = *message.header<rtmsg>();
  const Attributes attributes = message.attributes(sizeof header);
  const auto copy = [&](unsigned type) {
    const Bytes bytes = attributes.get(type);
    return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
  };
  // The kernel gives an IPv6 route without a metric the metric kIpv6Metric, and reports it. A record without a metric
  // must equal the route that the kernel made of it.
  unsigned metric = attributes.u32(RTA_PRIORITY).value_or(0);
  if (header.rtm_family == AF_INET6 && metric == 0) metric = kIpv6Metric;
  return {.destination = header.rtm_dst_len == 0 ? std::vector<std::uint8_t>() : copy(RTA_DST),
          .prefix = header.rtm_dst_len,
          .tos = header.rtm_tos,
          .table = table_of(header, attributes),
          .metric = metric,
          .gateway = copy(RTA_GATEWAY),
          .oif = attributes.u32(RTA_OIF).value_or(0)};
}

// Returns true if exactly this route exists. The error EEXIST of the kernel means only that a route with the same
// destination, table and metric exists.
Result<bool> is_there(Netlink& route, const NetRecord& record) {
  const RouteKey wanted = key_of(message_of(record));
  const auto family = static_cast<std::uint8_t>(family_of(record.payload));
  const auto same = TRY(find_routes(route, family, static_cast<int>(wanted.oif),
                                    [&](const Message& message) { return key_of(message) == wanted; }));
  return !same.empty();
}

Result<void> check_record(const NetRecord& record, const char* verb) {
  if (is_well_formed(record)) return {};
  return Error{fmt::format("cannot {} a network record of type {}: it is malformed", verb, record.type), EINVAL};
}

Result<void> add_record(Netlink& route, const NetRecord& record) {
  TRY_VOID(check_record(record, "add"));
  // A permanent neighbour replaces a neighbour that the netdev has learned.
  const unsigned flags = NLM_F_CREATE | (record.type == RTM_NEWNEIGH ? NLM_F_REPLACE : NLM_F_EXCL);
  const std::string what = fmt::format("add {} `{}`", to_word(kRecordWords, record.type), to_string(record));
  auto added = route.change(RequestBuilder(record.type, flags, Bytes(record.payload)), what);
  if (added || added.error().code != EEXIST) return added;
  if (record.type != RTM_NEWROUTE || TRY(is_there(route, record))) return {};
  return Error{fmt::format("cannot {}: another route to the same destination is there", what), EEXIST,
               "find it with `ip route show table all` and use another subnet or routing table"};
}

Result<void> remove_record(Netlink& route, const NetRecord& record) {
  TRY_VOID(check_record(record, "remove"));
  // For each kind of record the number of RTM_DEL... is the number of RTM_NEW... plus 1.
  auto removed = route.change(RequestBuilder(record.type + 1U, 0, Bytes(record.payload)),
                              fmt::format("remove {} `{}`", to_word(kRecordWords, record.type), to_string(record)));
  if (removed) return removed;
  const int code = removed.error().code;
  // Four errors mean that the record is gone. ENOENT: rule or neighbour; ESRCH: route; EADDRNOTAVAIL: address; ENODEV:
  // netdev.
  const bool absent = code == ENOENT || code == ESRCH || code == EADDRNOTAVAIL || code == ENODEV;
  return absent ? Result<void>() : std::move(removed);
}

}  // namespace

Result<NetdevRecords> read_records(Netlink& route, int ifindex, std::string_view name) {
  NetdevRecords found;
  for (const std::uint8_t family : kFamilies)
    add(found, TRY(read_addresses(route, family, ifindex)));
  std::set<Address> addresses;
  for (const NetRecord& record : found.records)
    if (const auto address = address_of(record)) addresses.insert(*address);
  NetdevRecords routes;
  for (const std::uint8_t family : kFamilies) {
    add(routes, TRY(read_routes(route, family, ifindex, [&](const Message& message, bool filtered) {
          return judge_route(message, family, ifindex, filtered);
        })));
  }
  // On-link routes are added first, because the kernel accepts a gateway only if an on-link route leads to it.
  std::stable_partition(routes.records.begin(), routes.records.end(), is_on_link);
  add(found, std::move(routes));
  add(found, TRY(read_rules(route, std::string(name), addresses)));
  for (const std::uint8_t family : kFamilies)
    add(found, TRY(read_neighbours(route, family, ifindex)));
  return found;
}

Result<void> add_records(Netlink& route, const std::vector<NetRecord>& records) {
  for (const NetRecord& record : records)
    TRY_VOID(add_record(route, record));
  return {};
}

Result<void> remove_records(Netlink& route, const std::vector<NetRecord>& records) {
  Result<void> first;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    auto removed = remove_record(route, *record);
    if (!removed && first) first = std::move(removed);
  }
  return first;
}

}  // namespace hook
