// Any text as the ledger's record of a node's netdevs, and the rtnetlink messages in it, which the hook sends to the
// kernel again.
#include "hook/rails/record/network.hpp"

#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>

#include "require.hpp"

namespace {

using fuzz::require;
using hook::NetRecord;

constexpr std::size_t kLongestPayload = 32 << 10;

void check_message(const NetRecord& record) {
  fuzz::require_one_line(to_string(record), "a message's text");
  require(hook::record_from_hex(record.type, to_hex(record)) == record, "hex reads back");
  require(!address_of(record) || record.type == RTM_NEWADDR, "addresses are those of address messages");
  NetRecord other = hook::for_netdev(record, 77, "net1");
  require(other.type == record.type, "a message keeps its type");
  other.payload.shrink_to_fit();
  fuzz::require_one_line(to_string(other), "the text of another netdev's message");
  require(other.payload.size() > kLongestPayload || hook::record_from_hex(other.type, to_hex(other)) == other,
          "another netdev's message is well-formed");
  require(address_of(other) == address_of(record), "the address stays");
}

void check_record_text(std::string_view text) {
  const auto record = hook::parse_network_record(text, "k.json");
  if (!record) {
    fuzz::require_one_line(record.error().message, "the refusal of a record");
    require(!record.error().hint.empty(), "a refusal has its remedy");
    return;
  }
  for (const hook::RailRecord& rail : record->rails)
    for (const NetRecord& message : rail.host.records)
      check_message(message);
  const std::string written = network_record_text(*record);
  const auto again = hook::parse_network_record(written, "k.json");
  require(again && *again == *record, "a record reads back", written);
}

// Returns a message with a header of the right size. Only some attributes have the right size.
NetRecord arbitrary_message(FuzzedDataProvider& data) {
  constexpr std::pair<std::uint16_t, std::size_t> kHeaders[] = {{RTM_NEWADDR, sizeof(ifaddrmsg)},
                                                                {RTM_NEWROUTE, sizeof(rtmsg)},
                                                                {RTM_NEWRULE, sizeof(fib_rule_hdr)},
                                                                {RTM_NEWNEIGH, sizeof(ndmsg)}};
  const auto [type, size] = data.PickValueInArray(kHeaders);
  NetRecord record{type, data.ConsumeBytes<std::uint8_t>(size)};
  record.payload.resize(size);
  record.payload[0] = data.ConsumeBool() ? AF_INET : AF_INET6;
  for (auto left = data.ConsumeIntegralInRange(0, 8); left > 0; --left) {
    const auto length = data.PickValueInArray<std::size_t>({4, 16, 0, 2, 3, 6, 8, 11, 18, 40});
    const auto value = data.ConsumeBytes<std::uint8_t>(length);
    const rtattr header{static_cast<unsigned short>(RTA_LENGTH(value.size())),
                        static_cast<unsigned short>(data.ConsumeIntegralInRange(0, 31))};
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&header);
    record.payload.insert(record.payload.end(), bytes, bytes + sizeof header);
    record.payload.insert(record.payload.end(), value.begin(), value.end());
    record.payload.resize(RTA_ALIGN(record.payload.size()));
  }
  return record;
}

void check_hex(FuzzedDataProvider& data) {
  NetRecord made = arbitrary_message(data);
  std::string hex = to_hex(made);
  // Sometimes damages a digit or cuts the text.
  for (auto left = data.ConsumeIntegralInRange(0, 3) - 1; left > 0; --left)
    hex[data.ConsumeIntegralInRange<std::size_t>(0, hex.size() - 1)] = data.PickValueInArray({'0', '1', 'f', 'g', 'F'});
  if (data.ConsumeIntegralInRange(0, 7) == 7) hex.resize(data.ConsumeIntegralInRange<std::size_t>(0, hex.size()));
  auto record = hook::record_from_hex(made.type, hex);
  if (!record) return;
  record->payload.shrink_to_fit();  // a read beyond the end is a read beyond the allocation
  check_message(*record);
}

}  // namespace

void fuzz::run(std::string_view text, FuzzedDataProvider data) {
  check_record_text(text);
  (void)hook::record_from_hex(RTM_NEWROUTE, text);
  check_hex(data);
}
