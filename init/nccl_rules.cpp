#include "init/nccl_rules.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace init::nccl {
namespace {

using fabric::Address;
using fabric::Family;

constexpr std::size_t kRangeLength = 127;  // characters of NCCL's buffer
constexpr std::size_t kNameLength = 63;    // longer names are cut since 2.30.7; before, they overflow a buffer
constexpr int kUnreadableType = -1;        // NCCL's RoCE version of a candidate whose type is unreadable

// Returns true for entries such as "mlx5_0:" and "mlx5_0::0".
bool leaves_port_empty(std::string_view entry) {
  const std::size_t colon = entry.find(':');
  return colon != std::string_view::npos && colon > 0 && (colon + 1 == entry.size() || entry[colon + 1] == ':');
}

HcaList::Entry parse_entry(std::string_view text, bool exact, const Version& version) {
  HcaList::Entry entry;
  const std::size_t colon = text.find(':');
  entry.name = text.substr(0, std::min(colon, kNameLength));
  entry.is_prefix = !exact;
  if (colon == std::string_view::npos) return entry;
  const std::string port(text.substr(colon + 1));
  entry.rail = port.substr(std::min(port.find(':'), port.size()));
  if (leaves_port_empty(text) && version >= kEmptyPortIsAny) return entry;
  // Parses a port as atoi() does: ":x" is port 0, which no HCA has.
  entry.port = static_cast<int>(std::strtol(port.c_str(), nullptr, 10));
  return entry;
}

// A slot of the GID table. A slot that is not listed is empty, and reading its type returns EINVAL.
struct Slot {
  Address gid;
  std::optional<int> type;  // RoCE version 1 or 2; nullopt: unreadable

  // Returns the result of NCCL's validGid(): the GID is not zero and not in fe80::/64. The rest of fe80::/10 is valid
  // to NCCL.
  bool is_valid() const {
    constexpr std::array<std::uint8_t, 8> kLinkLocal = {0xfe, 0x80};
    return !gid.is_zero() && !std::equal(kLinkLocal.begin(), kLinkLocal.end(), gid.bytes.begin());
  }
};

Slot slot_at(const fabric::Port& port, unsigned index) {
  const auto found = std::ranges::lower_bound(port.gids, index, {}, &fabric::GidEntry::index);
  if (found == port.gids.end() || found->index != index) return {};
  return {found->gid, found->is_v2() ? std::optional(2) : found->is_v1() ? std::optional(1) : std::nullopt};
}

}  // namespace

std::optional<Version> parse_version(std::string_view text) {
  const auto parts = base::split(text.substr(0, text.find_first_of("-+")), '.');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  const auto major = base::parse_number<unsigned>(parts[0]);
  const auto minor = base::parse_number<unsigned>(parts[1]);
  const auto patch = parts.size() == 3 ? base::parse_number<unsigned>(parts[2]) : 0U;
  if (!major || !minor || !patch) return std::nullopt;
  return Version{*major, *minor, *patch};
}

std::string to_string(const Version& version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

HcaList parse_hca_list(std::string_view value, const Version& version) {
  HcaList list;
  list.exclude = value.starts_with('^');
  value.remove_prefix(list.exclude ? 1 : 0);
  list.exact = value.starts_with('=');
  value.remove_prefix(list.exact ? 1 : 0);
  for (const std::string_view part : base::split(value, ',')) {
    // An entry without a name, such as ":1" of an empty variable before ":1", does not exist to NCCL.
    if (part.empty() || part.front() == ':') continue;
    if (list.entries.size() == max_ports(version)) break;
    list.entries.push_back(parse_entry(part, list.exact, version));
  }
  return list;
}

HcaList parse_interface_list(std::string_view value) {
  HcaList list = parse_hca_list(value);
  list.entries.resize(std::min(list.entries.size(), kMaxInterfaces));
  for (HcaList::Entry& entry : list.entries)
    entry.port = -1;
  return list;
}

bool has_empty_port(std::string_view value) {
  const auto entries = base::split(value, ',');
  return std::ranges::any_of(entries, leaves_port_empty);
}

bool HcaList::matches(std::string_view hca, unsigned port) const {
  // "" and "=" select every port. "^" and "^=" select none: they exclude an empty list, which selects every port.
  if (entries.empty()) return !exclude;
  const bool hit = std::ranges::any_of(entries, [&](const Entry& entry) { return entry.matches(hca, port); });
  return hit != exclude;
}

int parse_index(std::string_view value) {
  return static_cast<int>(parse_param(value, -1));
}

GidRules parse_gid_rules(std::string_view family, std::string_view range, std::string_view roce_version) {
  GidRules rules;
  if (family == "AF_INET6") rules.family = Family::kIpv6;
  // NCCL ignores a range without "/" since 2.23. Before, the behaviour is undefined.
  const std::string text(range.substr(0, kRangeLength));
  const std::size_t slash = text.find('/');
  const auto base = slash == std::string::npos ? std::nullopt : fabric::parse_address(text.substr(0, slash));
  // NCCL calls inet_pton() with the family. An IPv4 address in IPv6 form (::ffff:10.0.0.0) is therefore an AF_INET6
  // address, and no GID of that family is in its range.
  const bool ipv4 = text.find(':') >= slash;
  if (base && ipv4 == (rules.family == Family::kIpv4)) {
    // strtol() ignores text after the number, and returns 0 if there is no number. A negative length is a valid mask
    // that matches no GID.
    const int length = static_cast<int>(std::strtol(text.c_str() + slash + 1, nullptr, 10));
    const int offset = ipv4 ? 96 : 0;
    rules.nothing_in_range = length < 0;
    if (length >= 0 && length <= 128 - offset) rules.range = {*base, static_cast<unsigned>(length + offset)};
  }
  rules.roce_version = parse_param(roce_version, 2);
  return rules;
}

GidChoice choose_gid(const fabric::Port& port, const GidRules& rules) {
  if (rules.version < kChoosesGid) return {0U, false};
  unsigned length = port.gid_tbl_len.value_or(0);  // slots; 0: the scan of this machine's table ended early
  if (!port.gids.empty()) length = std::max(length, port.gids.back().index + 1);
  const auto in_range = [&](const Slot& slot) {
    return !rules.nothing_in_range && (!rules.range || rules.range->contains(slot.gid));
  };

  // NCCL's loop, including its flaws: index 0 is the start, is never tested, and stays chosen if no slot fits.
  unsigned chosen = 0;
  Slot current = slot_at(port, 0);
  bool uncertain = false;
  for (unsigned index = 1; index < length; ++index) {
    const Slot candidate = slot_at(port, index);
    if (candidate.gid.family() != rules.family || !in_range(candidate)) continue;
    if (candidate.gid.family() != current.gid.family()) {
      // NCCL takes the first address of the wanted family whatever its type, validity or network namespace.
      chosen = index;
      current = candidate;
      continue;
    }
    if (!candidate.is_valid()) continue;
    if (rules.version < kToleratesUnreadable && (!current.type || !candidate.type)) return {std::nullopt, false};
    if (candidate.type.value_or(kUnreadableType) != rules.roce_version) continue;
    if (!current.is_valid() || !current.type || current.type != candidate.type) {
      // If the type of the current GID is unreadable, NCCL compares with an uninitialised variable.
      uncertain |= current.is_valid() && !current.type;
      chosen = index;
      current = candidate;
    }
  }
  return {chosen, uncertain};
}

}  // namespace init::nccl
