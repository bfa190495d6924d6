#include "hook/metrics/client_room.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace hook {

Admission admit(const std::vector<ServedClient>& clients, const std::string& peer) {
  const auto is_own = [&](const ServedClient& client) { return client.peer == peer; };
  const auto own = static_cast<std::size_t>(std::count_if(clients.begin(), clients.end(), is_own));
  const bool among_own = own >= kMostOfOnePeer;
  if (!among_own && clients.size() < kMostClients) return {.admitted = true, .closes = std::nullopt};
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    if (clients[i].state == ClientState::kWaits || (among_own && !is_own(clients[i]))) continue;
    if (!first || clients[i].state > clients[*first].state) first = i;
  }
  return {.admitted = first.has_value(), .closes = first};
}

std::string peer_of(const sockaddr_storage& address) {
  constexpr std::size_t kNetwork = 8;
  if (address.ss_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, &address, sizeof four);
    return {reinterpret_cast<const char*>(&four.sin_addr), sizeof four.sin_addr};
  }
  if (address.ss_family != AF_INET6) return {};
  sockaddr_in6 six{};
  std::memcpy(&six, &address, sizeof six);
  return {reinterpret_cast<const char*>(&six.sin6_addr), kNetwork};
}

}  // namespace hook
