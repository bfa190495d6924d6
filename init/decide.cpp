#include "init/decide.hpp"

#include <utility>

#include "init/deciding.hpp"

namespace init {

Decision decide(const fabric::Inventory& inventory, const Settings& settings, const Policy& policy) {
  Deciding d{inventory, policy, Kept(settings, policy.override_wrong, policy.exports),
             find_candidates(inventory, policy.gids)};
  const bool chosen = keep_and_choose(d);
  if (chosen) plan_gids(d);
  report(d, chosen);
  return std::move(d.decision);
}

}  // namespace init
