#include "hook/config/values.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.hpp"

namespace hook {
namespace {

constexpr std::size_t kLongestName = 63;
constexpr std::size_t kLongestNetdev = 15;  // IFNAMSIZ without the zero
constexpr std::uint32_t kAllPermissions = 0777;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}

bool is_made_of(std::string_view text, auto allowed) {
  return !text.empty() && text.size() <= kLongestName && std::ranges::all_of(text, allowed);
}

// dev_valid_name() of Linux refuses '/', ':' and blanks.
bool is_netdev_character(char c) {
  return c > ' ' && c < 0x7f && c != '/' && c != ':';
}

}  // namespace

bool is_config_name(std::string_view text) {
  const auto allowed = [](char c) {
    return is_digit(c) || is_lower(c) || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '-';
  };
  // Names of networks become names of directories.
  return is_made_of(text, allowed) && text != "." && text != "..";
}

bool is_netdev_glob(std::string_view text) {
  return is_made_of(text, is_netdev_character);
}

bool is_namespace_glob(std::string_view text) {
  return is_made_of(text, [](char c) { return is_digit(c) || is_lower(c) || c == '-' || c == '*'; });
}

bool is_resource_name(std::string_view text) {
  constexpr std::size_t kLongestDomain = 253;
  const auto is_outer = [](char c) { return is_digit(c) || is_lower(c); };
  const auto is_label = [&](std::string_view label) {
    return is_made_of(label, [&](char c) { return is_outer(c) || c == '-'; }) && is_outer(label.front()) &&
           is_outer(label.back());
  };
  const auto slash = text.find('/');
  if (slash == std::string_view::npos || slash > kLongestDomain) return false;
  const std::string_view domain = text.substr(0, slash);
  const std::string_view name = text.substr(slash + 1);
  // Kubernetes reserves kubernetes.io for its own resources and the prefix "requests." for names of quotas.
  if (domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") || domain.starts_with("requests.")) return false;
  const auto labels = base::split(domain, '.');
  const auto is_end = [&](char c) { return is_outer(c) || (c >= 'A' && c <= 'Z'); };
  return std::ranges::all_of(labels, is_label) && is_config_name(name) && is_end(name.front()) && is_end(name.back());
}

std::optional<std::string> pci_id(std::string_view text) {
  constexpr std::size_t kDigits = 4;
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  if (text.size() != kDigits) return std::nullopt;
  const auto number = base::parse_number<std::uint16_t>(text, 16);
  if (!number) return std::nullopt;
  return fmt::format("{:04x}", *number);
}

std::optional<std::string> pci_address_glob(std::string_view text) {
  // A domain of Intel VMD has up to eight digits.
  constexpr std::size_t kLongestAddress = 16;
  constexpr std::string_view kCharacters = "0123456789abcdef:.*";
  std::string address(text);
  for (char& c : address)
    c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  if (address.empty() || address.size() > kLongestAddress ||
      address.find_first_not_of(kCharacters) != std::string::npos)
    return std::nullopt;
  return address;
}

std::optional<std::uint16_t> partition_key(std::string_view text) {
  constexpr std::uint16_t kNumber = 0x7fff;  // the highest bit marks a full member
  if (!text.starts_with("0x") && !text.starts_with("0X")) return std::nullopt;
  const auto key = base::parse_number<std::uint16_t>(text.substr(2), 16);
  return key && (*key & kNumber) != 0 ? key : std::nullopt;
}

bool is_absolute_path(std::string_view text) {
  const auto is_text = [](char c) { return c >= ' ' && c != 0x7f; };
  if (!text.starts_with('/') || !std::ranges::all_of(text, is_text)) return false;
  const auto parts = base::split(text, '/');
  return std::ranges::find(parts, "..") == parts.end();
}

std::optional<std::uint32_t> permissions(std::string_view text) {
  if (!is_made_of(text, is_digit)) return std::nullopt;
  const auto mode = base::parse_number<std::uint32_t>(text, 8);
  return mode && *mode <= kAllPermissions ? mode : std::nullopt;
}

std::optional<std::uint64_t> bytes_of(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, unsigned>, 4> kUnits = {
      {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};
  for (const auto& [unit, shift] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto number = base::parse_number<std::uint32_t>(base::trim(text.substr(0, text.size() - unit.size())));
    // A "memlock" of 0 would forbid all memory registration, and the shift must not overflow.
    if (!number || *number == 0 || *number > UINT64_MAX >> shift) return std::nullopt;
    return std::uint64_t{*number} << shift;
  }
  return std::nullopt;
}

std::optional<std::string> problem_of_netdev_pattern(std::string_view pattern) {
  constexpr std::string_view kNumber = "%d";
  // The name must not be too long with a number of three digits, the largest that is expected.
  constexpr std::size_t kDigits = 3;
  const std::size_t at = pattern.find('%');
  if (at == std::string_view::npos || pattern.substr(at, kNumber.size()) != kNumber) return "has no %d for the number";
  if (pattern.find('%', at + 1) != std::string_view::npos) return "has more than one %";
  if (!std::ranges::all_of(pattern, is_netdev_character))
    return "has a blank, '/', ':' or another character that is invalid in a netdev's name";
  const std::size_t longest = pattern.size() - kNumber.size() + kDigits;
  if (longest > kLongestNetdev)
    return fmt::format("makes names of {} bytes; the maximum is {}", longest, kLongestNetdev);
  return std::nullopt;
}

Result<void> check_size(std::string_view value, std::string_view source) {
  if (value.size() <= kMaxValueBytes) return {};
  return make_error("{}: {} bytes; the maximum is {}", source, value.size(), kMaxValueBytes);
}

Result<HcaSelection> parse_selection(std::string_view text, std::string source) {
  TRY_VOID(check_size(text, source));
  text = base::trim(text);
  HcaSelection selection;
  selection.source = std::move(source);
  const auto refuse = [&](std::string_view what) {
    return Error{fmt::format("{}: {}", selection.source, what), 0,
                 "write all, none, a count, or a list of HCAs: mlx5_0, netdev:NAME, pci:ADDRESS, rail:N, gpu"};
  };
  if (text.empty()) return refuse("the value is empty");
  // NVIDIA_VISIBLE_DEVICES and its relatives use "void" for none.
  if (text == "none" || text == "void") return selection;
  if (text == "all") {
    selection.kind = HcaSelection::Kind::kAll;
    return selection;
  }
  if (std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; })) {
    const auto count = base::parse_number<unsigned>(text);
    if (!count || *count == 0 || *count > kMaxCount)
      return refuse(fmt::format("`{}`: expected a count from 1 to {}", base::printable(text.substr(0, 32)), kMaxCount));
    selection.kind = HcaSelection::Kind::kCount;
    selection.count = *count;
    return selection;
  }
  // An image can have a list of any length, so it is counted before it is parsed.
  const auto entries = static_cast<std::size_t>(std::ranges::count(text, ',')) + 1;
  if (entries > kMaxListEntries)
    return refuse(fmt::format("a list of {} entries; the maximum is {}", entries, kMaxListEntries));
  auto selectors = fabric::parse_selectors(text, fabric::SelectorScope::kNode);
  if (!selectors) return refuse(std::move(selectors).error().message);
  selection.kind = HcaSelection::Kind::kList;
  selection.selectors = *std::move(selectors);
  return selection;
}

}  // namespace hook
