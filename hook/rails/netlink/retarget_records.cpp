#include <linux/fib_rules.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <utility>

#include "hook/rails/netlink/record_parts.hpp"

namespace hook {
namespace {

using fabric::netlink::Bytes;
using fabric::netlink::Message;

constexpr unsigned kTypeMask = static_cast<unsigned>(NLA_TYPE_MASK);
constexpr std::uint32_t kForever = 0xffffffff;  // INFINITY_LIFE_TIME

// Writes the attributes of one payload behind another. edit: true for one that it has dealt with.
void copy_attributes(Bytes attributes, Payload& into, const std::function<bool(unsigned type, Bytes value)>& edit) {
  for_each_attribute(attributes, [&](unsigned type, Bytes value) {
    if (!edit(type & kTypeMask, value)) append_attribute(into, type, value);
  });
}

// "eth0:1" for "net1" is "net1:1". nullopt: there is no label to keep, the kernel makes it the name.
std::optional<std::string> label_for(Bytes label, std::string_view name) {
  const std::string text(reinterpret_cast<const char*>(label.data()),
                         strnlen(reinterpret_cast<const char*>(label.data()), label.size()));
  const auto colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string renamed = std::string(name) + text.substr(colon);
  return renamed.size() < IFNAMSIZ ? std::optional(std::move(renamed)) : std::nullopt;
}

std::uint32_t address_flags_for(std::uint32_t flags, unsigned family) {
  flags &= ~std::uint32_t{IFA_F_TENTATIVE | IFA_F_DADFAILED | IFA_F_OPTIMISTIC | IFA_F_DEPRECATED | IFA_F_SECONDARY};
  return family == AF_INET6 ? flags | IFA_F_NODAD : flags;
}

Payload address_for(const Message& message, int ifindex, std::string_view name) {
  ifaddrmsg header = *message.header<ifaddrmsg>();
  header.ifa_index = static_cast<std::uint32_t>(ifindex);
  const std::uint32_t flags = message.attributes(sizeof header).u32(IFA_FLAGS).value_or(header.ifa_flags);
  header.ifa_flags = static_cast<std::uint8_t>(address_flags_for(header.ifa_flags, header.ifa_family));
  Payload payload = start_payload(header);
  copy_attributes(message.payload.subspan(sizeof header), payload, [&](unsigned type, Bytes value) {
    if (type == IFA_FLAGS) {
      append_u32(payload, IFA_FLAGS, address_flags_for(flags, header.ifa_family));
    } else if (type == IFA_LABEL) {
      if (const auto label = label_for(value, name)) append_text(payload, IFA_LABEL, *label);
    } else {
      return type == IFA_CACHEINFO;
    }
    return true;
  });
  // Deprecated by whoever set it up, so as to be nobody's source address: there is no other way to say so.
  const ifa_cacheinfo deprecated{.ifa_prefered = 0, .ifa_valid = kForever, .cstamp = 0, .tstamp = 0};
  if ((flags & IFA_F_DEPRECATED) != 0) append_attribute(payload, IFA_CACHEINFO, fabric::netlink::bytes_of(deprecated));
  return payload;
}

Payload route_for(const Message& message, int ifindex) {
  rtmsg header = *message.header<rtmsg>();
  header.rtm_flags &= RTNH_F_ONLINK | RTNH_F_PERVASIVE;  // the rest is state, and some of it is refused
  Payload payload = start_payload(header);
  copy_attributes(message.payload.subspan(sizeof header), payload, [&](unsigned type, Bytes) {
    if (type == RTA_OIF) append_u32(payload, RTA_OIF, static_cast<std::uint32_t>(ifindex));
    return type == RTA_OIF || type == RTA_CACHEINFO;
  });
  return payload;
}

Payload rule_for(const Message& message, std::string_view name) {
  fib_rule_hdr header = *message.header<fib_rule_hdr>();
  header.flags &= FIB_RULE_INVERT | FIB_RULE_FIND_SADDR;
  Payload payload = start_payload(header);
  copy_attributes(message.payload.subspan(sizeof header), payload, [&](unsigned type, Bytes value) {
    if (type != FRA_IIFNAME && type != FRA_OIFNAME) return false;
    // `iif lo` is the namespace itself, whichever it is.
    const bool is_lo = value.size() == 3 && std::memcmp(value.data(), "lo", 3) == 0;
    if (!is_lo) append_text(payload, type, std::string(name));
    return !is_lo;
  });
  return payload;
}

Payload neighbour_for(const Message& message, int ifindex) {
  ndmsg header = *message.header<ndmsg>();
  header.ndm_ifindex = ifindex;
  Payload payload = start_payload(header);
  copy_attributes(message.payload.subspan(sizeof header), payload, [&](unsigned type, Bytes) {
    if (type == NDA_IFINDEX) append_u32(payload, NDA_IFINDEX, static_cast<std::uint32_t>(ifindex));
    return type == NDA_IFINDEX || type == NDA_CACHEINFO || type == NDA_PROBES || type == NDA_MASTER;
  });
  return payload;
}

}  // namespace

NetRecord for_netdev(const NetRecord& record, int ifindex, std::string_view name) {
  if (!is_well_formed(record)) return record;
  const Message message = message_of(record);
  switch (record.type) {
    case RTM_NEWADDR:
      return {record.type, address_for(message, ifindex, name)};
    case RTM_NEWROUTE:
      return {record.type, route_for(message, ifindex)};
    case RTM_NEWRULE:
      return {record.type, rule_for(message, name)};
    default:
      return {record.type, neighbour_for(message, ifindex)};
  }
}

}  // namespace hook
