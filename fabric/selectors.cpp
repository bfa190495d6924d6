#include "fabric/selectors.hpp"

#include <algorithm>
#include <cctype>

#include "base/text.hpp"
#include "fabric/inventory.hpp"

namespace fabric {
namespace {

char lower_hex(char c) {
  return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Returns the hex digits and '*' of a GUID or pattern in lower case. GUIDs are written with "0x", with colons or with
// neither.
std::string guid_digits(std::string_view text) {
  std::string digits;
  for (const char c : text.substr(text.starts_with("0x") ? 2 : 0))
    if (c == '*' || std::isxdigit(static_cast<unsigned char>(c))) digits += lower_hex(c);
  return digits;
}

// Parses "index:3", "rail:0" or "gpu". Returns nullopt for any other entry.
std::optional<Result<Selector>> parse_node_selector(std::string_view entry, SelectorScope scope) {
  const bool index = entry.starts_with("index:");
  if (!index && !entry.starts_with("rail:") && entry != "gpu") return std::nullopt;
  if (scope != SelectorScope::kNode) {
    return make_error(
        "`{}`: only the node selects by its own order of HCAs or by the container's GPUs; use NAME, netdev:, pci: or "
        "guid:",
        printable(entry));
  }
  if (entry == "gpu") return Selector{Selector::Kind::kGpu, std::string(entry), std::nullopt, 0};
  const auto number = parse_number<unsigned>(entry.substr(entry.find(':') + 1));
  if (!number) return make_error("`{}`: expected a number, 0 or more, after ':'", printable(entry));
  return Selector{index ? Selector::Kind::kIndex : Selector::Kind::kRail, std::string(entry), std::nullopt, *number};
}

// Parses one entry. An entry without a known prefix is NAME or NAME:PORT: "foo:1" is port 1 of the HCA foo.
Result<Selector> parse_selector(std::string_view entry, SelectorScope scope) {
  if (auto node = parse_node_selector(entry, scope)) return std::move(*node);
  const auto after = [&](std::string_view prefix) { return std::string(entry.substr(prefix.size())); };
  Selector selector;
  if (entry.starts_with("netdev:")) {
    selector = {Selector::Kind::kNetdev, after("netdev:"), std::nullopt, 0};
  } else if (entry.starts_with("pci:")) {
    selector = {Selector::Kind::kPci, after("pci:"), std::nullopt, 0};
    std::ranges::transform(selector.pattern, selector.pattern.begin(), lower_hex);
    // lspci omits the domain if there is only one. Users copy such addresses, therefore domain 0 is added.
    if (std::ranges::count(selector.pattern, ':') == 1) selector.pattern.insert(0, "0000:");
  } else if (entry.starts_with("guid:")) {
    selector = {Selector::Kind::kGuid, guid_digits(entry.substr(5)), std::nullopt, 0};
  } else {
    // The port follows the last colon.
    const std::size_t colon = entry.rfind(':');
    selector.pattern = entry.substr(0, colon);
    if (colon != std::string_view::npos) {
      selector.port = parse_number<unsigned>(entry.substr(colon + 1));
      if (!selector.port || *selector.port == 0)
        return make_error("`{}`: expected NAME:PORT with a port from 1, netdev:NAME, pci:ADDRESS or guid:GUID",
                          printable(entry));
    }
  }
  if (selector.pattern.empty()) return make_error("`{}`: empty selector", printable(entry));
  return selector;
}

}  // namespace

Result<SelectorList> parse_selectors(std::string_view text, SelectorScope scope) {
  SelectorList list;
  list.text = text;
  if (text.starts_with('^')) {
    list.exclude = true;
    text.remove_prefix(1);
  }
  // Users may copy a list from NCCL_IB_HCA, where "=" requests exact names.
  if (text.starts_with('=')) return make_error("`{}`: names are always exact; remove the `=`", printable(list.text));
  for (const std::string_view entry : split(text, ','))
    list.selectors.push_back(TRY(parse_selector(trim(entry), scope)));
  return list;
}

Result<Selector> parse_rail_selector(std::string_view entry) {
  const auto is_of_name = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-' || c == '*';
  };
  constexpr std::string_view kPf = "pf:";
  if (entry.starts_with(kPf)) {
    const std::string_view name = entry.substr(kPf.size());
    if (!name.empty() && std::ranges::all_of(name, is_of_name))
      return Selector{Selector::Kind::kPf, std::string(name), std::nullopt, 0};
  } else if (auto selector = parse_selector(entry, SelectorScope::kPorts)) {
    const bool is_address = selector->kind == Selector::Kind::kPci || selector->kind == Selector::Kind::kGuid;
    const bool is_name = selector->kind == Selector::Kind::kName && !selector->port;
    const auto is_of_address = [&](unsigned char c) { return is_of_name(c) || c == ':'; };
    if ((is_address && std::ranges::all_of(selector->pattern, is_of_address)) ||
        (is_name && std::ranges::all_of(selector->pattern, is_of_name)))
      return selector;
  }
  return make_error("`{}`: expected NAME, pci:ADDRESS, guid:GUID or pf:NAME", printable(entry));
}

bool selects(const Selector& selector, const Hca& hca, const Port& port, const std::vector<std::string>& netdevs) {
  const std::string_view pattern = selector.pattern;
  switch (selector.kind) {
    case Selector::Kind::kName:
      return glob_match(pattern, hca.name) && selector.port.value_or(port.number) == port.number;
    case Selector::Kind::kNetdev:
      return std::ranges::any_of(netdevs, [&](const std::string& name) { return glob_match(pattern, name); });
    case Selector::Kind::kPci:
      return hca.pci && glob_match(pattern, *hca.pci);
    case Selector::Kind::kGuid:
      return glob_match(pattern, guid_digits(hca.node_guid));
    case Selector::Kind::kIndex:
    case Selector::Kind::kRail:
    case Selector::Kind::kGpu:
    case Selector::Kind::kPf:
      break;
  }
  return false;
}

bool selects(const SelectorList& list, const Hca& hca, const Port& port, const std::vector<std::string>& netdevs) {
  const auto hit = [&](const Selector& selector) { return selects(selector, hca, port, netdevs); };
  return std::ranges::any_of(list.selectors, hit) != list.exclude;
}

}  // namespace fabric
