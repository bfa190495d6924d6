#include "hook/ledger/recorded_grants.hpp"

#include <algorithm>
#include <utility>

#include "hook/ledger/ledger_files.hpp"
#include "hook/ledger/ledger_grant.hpp"
#include "hook/ledger/ledger_steps.hpp"

namespace hook {

using fabric::Result;

Result<bool> for_each_recorded_grant(const std::string& path, const std::function<Result<void>(const Grant&)>& use,
                                     Ledger::Unread* unread) {
  const auto files = TRY(LedgerFiles::open_to_list(path));
  if (!files) return false;
  auto keys = TRY(grant_keys(*files));
  std::sort(keys.begin(), keys.end());
  for (const std::string& key : keys) {
    auto grant = read_record(*files, key);
    if (!grant && !unread) return std::move(grant).error();
    if (!grant) {
      unread->push_back(std::move(grant).error());
    } else if (*grant) {
      TRY_VOID(use(recorded_grant(**grant)));
    }
  }
  return true;
}

}  // namespace hook
