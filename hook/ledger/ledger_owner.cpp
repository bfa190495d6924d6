#include "hook/ledger/ledger_owner.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "fabric/text.hpp"
#include "hook/base/text_digest.hpp"
#include "hook/ledger/ledger_files.hpp"

namespace hook {
namespace {

using fabric::Result;

constexpr std::size_t kShownId = 64;
constexpr std::string_view kTokenPrefix = "token-";  // of a container it is "container-"

}  // namespace

Owner netns_owner(const NetnsIdentity& netns) {
  return Owner{.kind = Owner::Kind::kNetns,
               .key = fmt::format("netns-{}-{}", netns.dev, netns.ino),
               .label = "pod namespace " + fabric::printable(netns.path),
               .netns = netns};
}

Owner container_owner(std::string_view id, std::string_view place) {
  std::string shown(id.substr(0, kShownId));
  for (char& c : shown)
    c = c == '.' || is_file_name(std::string_view(&c, 1), 1) ? c : '_';
  // No id and no path has a NUL, so these names can be told from any others.
  const std::string names = std::string(id) + '\0' + std::string(place);
  return Owner{.kind = Owner::Kind::kContainer,
               .key = fmt::format("container-{}-{}", shown, text_digest(names)),
               .label = "container " + fabric::printable(id),
               .netns = std::nullopt};
}

std::string root_name(const RuntimeState& state) {
  return fmt::format("{}:{}", state.root_dev, state.root_ino);
}

bool is_token_key(std::string_view key) {
  return key.starts_with(kTokenPrefix);
}

Owner token_owner(std::string_view token) {
  return Owner{.kind = Owner::Kind::kToken,
               .key = fmt::format("{}{}", kTokenPrefix, token),
               .label = "a container that is being created",
               .netns = std::nullopt};
}

bool has_id(const GrantUser& user, std::string_view id) {
  return !id.empty() && (user.id == id || user.pod == id);
}

Result<std::string> new_token() {
  std::array<std::uint8_t, 16> bytes{};
  // Up to 256 bytes come whole once the kernel's generator is seeded (getrandom(2)).
  ssize_t count = 0;
  do {
    count = ::getrandom(bytes.data(), bytes.size(), 0);
  } while (count < 0 && errno == EINTR);
  if (count != static_cast<ssize_t>(bytes.size())) return fabric::sys_error(errno, "cannot make a token");
  std::string token;
  for (const std::uint8_t byte : bytes)
    token += fmt::format("{:02x}", byte);
  return token;
}

}  // namespace hook
