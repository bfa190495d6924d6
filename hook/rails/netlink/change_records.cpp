// Adding and removing records.
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "hook/rails/netlink/record_parts.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::netlink::Attributes;
using fabric::netlink::Bytes;
using fabric::netlink::Message;

constexpr std::uint32_t kIpv6Metric = 1024;  // IP6_RT_PRIO_USER: what a route without one gets

const char* kind_of(const NetRecord& record) {
  switch (record.type) {
    case RTM_NEWADDR:
      return "address";
    case RTM_NEWROUTE:
      return "route";
    case RTM_NEWRULE:
      return "rule";
    default:
      return "neighbour";
  }
}

struct RouteKey {
  Payload destination;
  unsigned prefix, tos, table, metric;
  Payload gateway;
  std::uint32_t oif;
  friend bool operator==(const RouteKey&, const RouteKey&) = default;
};

RouteKey key_of(const Message& message) {
  const auto& header = *message.header<rtmsg>();
  const Attributes attributes = message.attributes(sizeof header);
  const auto copy = [&](unsigned type) {
    const Bytes bytes = attributes.get(type);
    return Payload(bytes.begin(), bytes.end());
  };
  unsigned metric = attributes.u32(RTA_PRIORITY).value_or(0);
  if (header.rtm_family == AF_INET6 && metric == 0) metric = kIpv6Metric;
  return {.destination = header.rtm_dst_len == 0 ? Payload() : copy(RTA_DST),
          .prefix = header.rtm_dst_len,
          .tos = header.rtm_tos,
          .table = table_of(header, attributes),
          .metric = metric,
          .gateway = copy(RTA_GATEWAY),
          .oif = attributes.u32(RTA_OIF).value_or(0)};
}

// The kernel says EEXIST for any route of the same destination, table and metric.
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
  // A neighbour that the netdev has learned by itself gives way.
  const int flags = NLM_F_CREATE | (record.type == RTM_NEWNEIGH ? NLM_F_REPLACE : NLM_F_EXCL);
  const std::string what = fmt::format("add {} `{}`", kind_of(record), to_string(record));
  auto added = route.change(RequestBuilder(record.type, flags, Bytes(record.payload)).take(), what);
  if (added || added.error().code != EEXIST) return added;
  if (record.type != RTM_NEWROUTE || TRY(is_there(route, record))) return {};
  return Error{
      fmt::format("cannot {}: another route to the same destination is there", what), EEXIST,
      "`ip route show table all` shows it: give the netdev another subnet, or its routes a table of their own"};
}

Result<void> remove_record(Netlink& route, const NetRecord& record) {
  TRY_VOID(check_record(record, "remove"));
  // RTM_DELADDR is RTM_NEWADDR + 1, and so on.
  auto removed = route.change(RequestBuilder(record.type + 1, 0, Bytes(record.payload)).take(),
                              fmt::format("remove {} `{}`", kind_of(record), to_string(record)));
  if (removed) return removed;
  const int code = removed.error().code;
  const bool gone = code == ENOENT || code == ESRCH || code == EADDRNOTAVAIL || code == ENODEV;
  return gone ? Result<void>() : std::move(removed);
}

}  // namespace

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
