#include "nccl_selection.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace trainer {

namespace {

HcaList::Entry parse_entry(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return {std::string(text), -1};
  // NCCL uses atoi: a port that is not a number is port 0, which no device has.
  return {std::string(text.substr(0, colon)), std::atoi(std::string(text.substr(colon + 1)).c_str())};
}

bool matches(const HcaList::Entry& entry, bool exact, std::string_view device, int port) {
  const bool name = exact ? device == entry.name : device.starts_with(entry.name);
  return name && (entry.port == -1 || entry.port == port);
}

bool is_ipv4(const Gid& gid) {
  constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kMapped.begin(), kMapped.end(), gid.begin());
}

bool is_valid(const Gid& gid) {
  const bool zero = std::all_of(gid.begin(), gid.end(), [](auto byte) { return byte == 0; });
  const bool link_local = gid[0] == 0xfe && gid[1] == 0x80 &&
                          std::all_of(gid.begin() + 2, gid.begin() + 8, [](auto byte) { return byte == 0; });
  return !zero && !link_local;
}

bool in_range(const Gid& gid, const std::optional<GidRules::Range>& range) {
  if (!range) return true;
  for (int bit = 0; bit < range->bits; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    const auto mask = static_cast<std::uint8_t>(0x80U >> (bit % 8));
    if ((gid[byte] & mask) != (range->prefix[byte] & mask)) return false;
  }
  return true;
}

// Reads one CIDR of the chosen family. NCCL ignores a text that it cannot parse.
std::optional<GidRules::Range> parse_range(const char* text, bool ipv6) {
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string cidr = text;
  const auto slash = cidr.find('/');
  if (slash == std::string::npos) return std::nullopt;
  GidRules::Range range;
  const std::string address = cidr.substr(0, slash);
  const int bits = std::atoi(cidr.c_str() + slash + 1);
  if (bits < 0 || bits > (ipv6 ? 128 : 32)) return std::nullopt;
  if (ipv6) {
    if (inet_pton(AF_INET6, address.c_str(), range.prefix.data()) != 1) return std::nullopt;
    range.bits = bits;
  } else {
    range.prefix[10] = range.prefix[11] = 0xff;
    if (inet_pton(AF_INET, address.c_str(), range.prefix.data() + 12) != 1) return std::nullopt;
    range.bits = 96 + bits;
  }
  return range;
}

}  // namespace

HcaList parse_hca_list(std::string_view text) {
  HcaList list;
  list.exclude = text.starts_with('^');
  if (list.exclude) text.remove_prefix(1);
  list.exact = text.starts_with('=');
  if (list.exact) text.remove_prefix(1);
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    if (comma > 0) list.entries.push_back(parse_entry(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return list;
}

bool selects(const HcaList& list, std::string_view device, int port) {
  const bool in_list =
      list.entries.empty() || std::any_of(list.entries.begin(), list.entries.end(),
                                          [&](const auto& entry) { return matches(entry, list.exact, device, port); });
  return in_list != list.exclude;
}

GidRules read_gid_rules(const char* (*get)(const char* name)) {
  GidRules rules;
  // NCCL uses strtoll with base 0 and ignores the rest of the text: "auto" is 0, "3x" is 3. Empty is the default.
  if (const char* text = get("NCCL_IB_GID_INDEX"); text != nullptr && *text != '\0')
    if (const long long index = std::strtoll(text, nullptr, 0); index >= 0) rules.index = static_cast<int>(index);
  if (const char* text = get("NCCL_IB_ADDR_FAMILY"); text != nullptr) rules.ipv6 = std::strcmp(text, "AF_INET6") == 0;
  if (const char* text = get("NCCL_IB_ROCE_VERSION_NUM"); text != nullptr && *text != '\0')
    rules.version = static_cast<int>(std::strtoll(text, nullptr, 0));
  rules.range = parse_range(get("NCCL_IB_ADDR_RANGE"), rules.ipv6);
  return rules;
}

int choose_gid(const std::vector<GidSlot>& table, const GidRules& rules) {
  if (rules.index) return *rules.index;
  std::size_t current = 0;  // only where the search starts: slot 0 itself is never examined
  for (std::size_t candidate = 1; candidate < table.size(); ++candidate) {
    const Gid& gid = table[candidate].gid;
    const bool family_fits = is_ipv4(gid) != rules.ipv6;
    if (!family_fits || !in_range(gid, rules.range)) continue;
    // The first GID of the wanted family is taken with any type.
    if (is_ipv4(gid) != is_ipv4(table[current].gid)) {
      current = candidate;
      continue;
    }
    if (!is_valid(gid)) continue;
    const bool differs = table[current].version != table[candidate].version || !is_valid(table[current].gid);
    if (differs && table[candidate].version == rules.version) current = candidate;
  }
  return static_cast<int>(current);
}

}  // namespace trainer
