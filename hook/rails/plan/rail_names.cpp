#include "hook/rails/plan/rail_names.hpp"

#include <algorithm>

namespace hook {

void name_rails(std::string_view pattern, std::vector<std::string> taken, std::vector<Rail>& rails) {
  const std::size_t at = pattern.find("%d");
  unsigned number = 1;
  for (Rail& rail : rails) {
    do {
      rail.name = std::string(pattern);
      if (at == std::string_view::npos) break;
      rail.name.replace(at, 2, std::to_string(number++));
    } while (std::find(taken.begin(), taken.end(), rail.name) != taken.end());
    taken.push_back(rail.name);
  }
}

}  // namespace hook
