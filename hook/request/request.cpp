#include "hook/request/request.hpp"

#include <algorithm>

namespace hook {

std::optional<std::vector<std::string>> named_hcas(const Request& request) {
  // Leaving out by index needs the node's order as well.
  return request.narrowed_by.empty() ? named_hcas(request.wish) : std::nullopt;
}

std::optional<std::vector<std::string>> named_hcas(const Wish& wish) {
  if (wish.kind != Wish::Kind::kList || wish.selectors.exclude) return std::nullopt;
  std::vector<std::string> names;
  for (const fabric::Selector& selector : wish.selectors.selectors) {
    if (selector.kind != fabric::Selector::Kind::kName || selector.pattern.find('*') != std::string::npos) {
      return std::nullopt;
    }
    names.push_back(selector.pattern);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace hook
