#include "hook/rails/netlink/record_parts.hpp"

#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <sys/socket.h>

#include <algorithm>

namespace hook {
namespace {

using fabric::Address;
using fabric::netlink::Attributes;
using fabric::netlink::Bytes;
using fabric::netlink::Message;

constexpr std::size_t kIpv4Offset = 12;  // of the four bytes in the IPv6 form

std::size_t header_size(unsigned type) {
  switch (type) {
    case RTM_NEWADDR:
      return sizeof(ifaddrmsg);
    case RTM_NEWROUTE:
      return sizeof(rtmsg);
    case RTM_NEWRULE:
      return sizeof(fib_rule_hdr);
    case RTM_NEWNEIGH:
      return sizeof(ndmsg);
    default:
      return 0;
  }
}

std::size_t address_size(unsigned family) {
  return family == AF_INET ? 4 : 16;
}

}  // namespace

Message message_of(const NetRecord& record) {
  return {record.type, record.payload};
}

unsigned family_of(Bytes payload) {
  return payload.empty() ? std::uint8_t{AF_UNSPEC} : payload[0];
}

std::uint8_t family_of(const Address& address) {
  return address.is_ipv4() ? AF_INET : AF_INET6;
}

unsigned address_bits(unsigned family) {
  return static_cast<unsigned>(address_size(family)) * 8;
}

std::optional<Address> to_address(unsigned family, Bytes bytes) {
  if (bytes.size() != address_size(family)) return std::nullopt;
  Address address;
  if (family == AF_INET) address.bytes[10] = address.bytes[11] = 0xff;
  std::copy(bytes.begin(), bytes.end(), address.bytes.end() - static_cast<std::ptrdiff_t>(bytes.size()));
  return address;
}

Bytes bytes_of(const Address& address) {
  return Bytes(address.bytes).subspan(address.is_ipv4() ? kIpv4Offset : 0);
}

unsigned table_of(const rtmsg& header, const Attributes& attributes) {
  return attributes.u32(RTA_TABLE).value_or(header.rtm_table);
}

bool for_each_attribute(Bytes attributes, const std::function<void(unsigned type, Bytes value)>& function) {
  int rest = static_cast<int>(attributes.size());
  const auto* attribute = reinterpret_cast<const nlattr*>(attributes.data());
  for (; nla_ok(attribute, rest); attribute = nla_next(attribute, &rest)) {
    function(attribute->nla_type, Bytes(static_cast<const std::uint8_t*>(nla_data(attribute)),
                                        static_cast<std::size_t>(nla_len(attribute))));
  }
  return rest == 0;
}

bool is_well_formed(const NetRecord& record) {
  const std::size_t header = header_size(record.type);
  const std::size_t size = record.payload.size();
  if (header == 0 || size < header || size > kLongestPayload) return false;
  const unsigned family = family_of(record.payload);
  if (family != AF_INET && family != AF_INET6) return false;
  return for_each_attribute(Bytes(record.payload).subspan(header), [](unsigned, Bytes) {});
}

void append_attribute(Payload& payload, unsigned type, Bytes value) {
  const nlattr header{static_cast<std::uint16_t>(NLA_HDRLEN + value.size()), static_cast<std::uint16_t>(type)};
  const Bytes bytes = fabric::netlink::bytes_of(header);
  payload.insert(payload.end(), bytes.begin(), bytes.end());
  payload.insert(payload.end(), value.begin(), value.end());
  payload.resize(NLA_ALIGN(payload.size()));
}

void append_u32(Payload& payload, unsigned type, std::uint32_t value) {
  append_attribute(payload, type, fabric::netlink::bytes_of(value));
}

void append_text(Payload& payload, unsigned type, const std::string& text) {
  append_attribute(payload, type, Bytes(reinterpret_cast<const std::uint8_t*>(text.c_str()), text.size() + 1));
}

}  // namespace hook
