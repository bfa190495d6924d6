#include "fabric/selectors.hpp"

#include <algorithm>
#include <cctype>

#include "fabric/inventory.hpp"
#include "fabric/text.hpp"

namespace fabric {
namespace {

char lower_hex(char c) {
  return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Of a GUID or a pattern for some.
std::string guid_digits(std::string_view text) {
  std::string digits;
  for (const char c : text.substr(text.starts_with("0x") ? 2 : 0)) {
    if (c == '*' || std::isxdigit(static_cast<unsigned char>(c))) digits += lower_hex(c);
  }
  return digits;
}

// "index:3", "rail:0", "gpu"; nullopt: something else.
std::optional<Result<Selector>> parse_node_selector(std::string_view entry, SelectorScope scope) {
  const bool index = entry.starts_with("index:");
  if (!index && !entry.starts_with("rail:") && entry != "gpu") return std::nullopt;
  if (scope != SelectorScope::kNode) {
    return make_error(
        "`{}`: a container does not know the node's order of HCAs; name them, or use netdev:, pci: or guid:",
        printable(entry));
  }
  if (entry == "gpu") return Selector{Selector::Kind::kGpu, std::string(entry), std::nullopt, 0};
  const auto number = parse_number<unsigned>(entry.substr(entry.find(':') + 1));
  if (!number) return make_error("`{}`: expected a number from 0", printable(entry));
  return Selector{index ? Selector::Kind::kIndex : Selector::Kind::kRail, std::string(entry), std::nullopt, *number};
}

Result<Selector> parse_selector(std::string_view entry, SelectorScope scope) {
  if (auto node = parse_node_selector(entry, scope)) return std::move(*node);
  const auto after = [&](std::string_view prefix) { return std::string(entry.substr(prefix.size())); };
  Selector selector;
  if (entry.starts_with("netdev:")) {
    selector = {Selector::Kind::kNetdev, after("netdev:"), std::nullopt, 0};
  } else if (entry.starts_with("pci:")) {
    selector = {Selector::Kind::kPci, after("pci:"), std::nullopt, 0};
    std::ranges::transform(selector.pattern, selector.pattern.begin(), lower_hex);
    // lspci leaves the domain out when there is only one.
    if (std::ranges::count(selector.pattern, ':') == 1) selector.pattern.insert(0, "0000:");
  } else if (entry.starts_with("guid:")) {
    selector = {Selector::Kind::kGuid, guid_digits(entry.substr(5)), std::nullopt, 0};
  } else {
    const std::size_t colon = entry.rfind(':');
    selector.pattern = entry.substr(0, colon);
    if (colon != std::string_view::npos) {
      selector.port = parse_number<unsigned>(entry.substr(colon + 1));
      if (!selector.port || *selector.port == 0) {
        return make_error("`{}`: expected NAME:PORT with a port from 1, netdev:NAME, pci:ADDRESS or guid:GUID",
                          printable(entry));
      }
    }
  }
  if (selector.pattern.empty()) return make_error("`{}` names nothing", printable(entry));
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
  if (text.starts_with('=')) {
    return make_error("`{}`: names are exact here, leave out the `=`", printable(list.text));
  }
  for (const std::string_view entry : split(text, ',')) {
    list.selectors.push_back(TRY(parse_selector(trim(entry), scope)));
  }
  return list;
}

bool selects(const SelectorList& list, const Hca& hca, const Port& port, const std::vector<std::string>& netdevs) {
  const auto hit = [&](const Selector& selector) {
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
        break;
    }
    return false;
  };
  return std::ranges::any_of(list.selectors, hit) != list.exclude;
}

}  // namespace fabric
