#include "hook/ledger/shown_key.hpp"

#include "hook/base/text_digest.hpp"
#include "hook/ledger/ledger_owner.hpp"

namespace hook {

std::string shown_key(const std::string& key) {
  return is_token_key(key) ? token_owner(text_digest(key)).key : key;
}

}  // namespace hook
