// Any environment as the place of a rank: one variable per line.
#include <string>
#include <vector>

#include "base/text.hpp"
#include "init/ping/ranks.hpp"
#include "require.hpp"

void fuzz::run(std::string_view text, FuzzedDataProvider /*data*/) {
  using namespace init::ping;
  std::vector<std::string> lines;
  for (const std::string_view line : base::split(text, '\n'))
    lines.emplace_back(line.substr(0, line.find('\0')));
  std::vector<const char*> environment;
  for (const std::string& line : lines)
    environment.push_back(line.c_str());
  environment.push_back(nullptr);
  const auto place = find_place({}, {}, {}, environment.data());
  if (!place) {
    require_refusal(place.error(), "the refusal of an environment");
    return;
  }
  require(place->rank < place->size && place->size <= kMostRanks, "a rank is below the size", text);
  require(place->port != 0, "the meeting point has a port", text);
  require(place->size == 1 || !place->host.empty(), "the meeting point has a host", text);
  require(place->token.size() <= kLongestToken, "a token is bounded", text);
  // With the answer on the command line, the environment does not matter.
  const auto again =
      find_place(place->rank, place->size, "[" + place->host + "]:" + std::to_string(place->port), environment.data());
  require(place->host.find(']') != std::string::npos || place->host.empty() ||
              (again && again->rank == place->rank && again->host == place->host && again->port == place->port),
          "the command line names the same place", text);
}
