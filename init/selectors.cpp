#include "init/selectors.hpp"

#include <algorithm>

#include "fabric/text.hpp"

namespace init {
namespace {

using fabric::Result;

std::string hex_digits(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c == '*' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')) digits += c;
    if (c >= 'A' && c <= 'F') digits += static_cast<char>(c - 'A' + 'a');
  }
  return digits;
}

std::string strip_hex_prefix(std::string_view text) {
  return hex_digits(text.starts_with("0x") ? text.substr(2) : text);
}

Result<Selector> parse_selector(std::string_view entry) {
  const auto after = [&](std::string_view prefix) { return std::string(entry.substr(prefix.size())); };
  Selector selector;
  if (entry.starts_with("netdev:")) {
    selector = {Selector::Kind::kNetdev, after("netdev:"), std::nullopt};
  } else if (entry.starts_with("pci:")) {
    selector = {Selector::Kind::kPci, after("pci:"), std::nullopt};
    // lspci leaves the domain out when there is only one.
    if (std::count(selector.pattern.begin(), selector.pattern.end(), ':') == 1) selector.pattern.insert(0, "0000:");
  } else if (entry.starts_with("guid:")) {
    selector = {Selector::Kind::kGuid, strip_hex_prefix(entry.substr(5)), std::nullopt};
  } else {
    const std::size_t colon = entry.rfind(':');
    selector.pattern = entry.substr(0, colon);
    if (colon != std::string_view::npos) {
      selector.port = fabric::parse_number<unsigned>(entry.substr(colon + 1));
      if (!selector.port || *selector.port == 0) {
        return fabric::make_error("`{}`: expected NAME:PORT with a port from 1, netdev:NAME, pci:ADDRESS or guid:GUID",
                                  fabric::printable(entry));
      }
    }
  }
  if (selector.pattern.empty()) return fabric::make_error("`{}` names nothing", fabric::printable(entry));
  return selector;
}

}  // namespace

Result<SelectorList> parse_selectors(std::string_view text) {
  SelectorList list;
  list.text = text;
  if (text.starts_with('^')) {
    list.exclude = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    return fabric::make_error("`{}`: names are exact here, leave out the `=`", fabric::printable(list.text));
  }
  for (const std::string_view entry : fabric::split(text, ',')) {
    list.selectors.push_back(TRY(parse_selector(fabric::trim(entry))));
  }
  return list;
}

bool selects(const SelectorList& list, const fabric::Hca& hca, const fabric::Port& port,
             const std::vector<std::string>& netdevs) {
  const auto hit = [&](const Selector& selector) {
    const std::string_view pattern = selector.pattern;
    switch (selector.kind) {
      case Selector::Kind::kName:
        return fabric::glob_match(pattern, hca.name) && selector.port.value_or(port.number) == port.number;
      case Selector::Kind::kNetdev:
        return std::any_of(netdevs.begin(), netdevs.end(),
                           [&](const std::string& name) { return fabric::glob_match(pattern, name); });
      case Selector::Kind::kPci:
        return hca.pci && fabric::glob_match(pattern, *hca.pci);
      case Selector::Kind::kGuid:
        return fabric::glob_match(pattern, strip_hex_prefix(hca.node_guid));
    }
    return false;
  };
  return std::any_of(list.selectors.begin(), list.selectors.end(), hit) != list.exclude;
}

}  // namespace init
