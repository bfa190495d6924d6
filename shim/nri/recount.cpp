#include "shim/nri/recount.hpp"

#include <cerrno>
#include <chrono>
#include <utility>

#include "shim/ttrpc/connection.hpp"

namespace shim {
namespace {

using fabric::Error;
using fabric::Result;

// The plugin answers no container's creation meanwhile, and the runtime waits 2 s for that.
constexpr std::chrono::milliseconds kRegistration{200};

}  // namespace

Result<std::unique_ptr<Recount>> Recount::begin(const std::string& socket, const PluginIdentity& identity,
                                                std::set<std::string> ids) {
  std::unique_ptr<Recount> recount(new Recount(std::move(ids)));
  auto connected = TRY(connect_socket(socket));
  recount->fd_ = connected.get();
  recount->plugin_ = TRY(NriSession::open(std::move(connected), *recount));
  // The runtime accepts one plugin at a time, and may be busy with another: then it answers later.
  const auto registered = recount->plugin_->register_as(identity, kRegistration);
  if (!registered && registered.error().code != ETIMEDOUT) return registered.error();
  return recount;
}

Result<std::optional<std::set<std::string>>> Recount::step() {
  const auto ended = TRY(plugin_->serve(-1, Connection::Clock::now()));
  if (complete_) return std::optional(missing_);
  if (ended == Connection::Ended::kPeer) return Error{"the runtime has closed the connection", ECONNRESET};
  return std::optional<std::set<std::string>>();
}

// NRI takes no event for all of them: this one is rare.
Result<std::vector<Event>> Recount::configure(const RuntimeInfo& /*runtime*/) {
  return std::vector<Event>{Event::kRemovePodSandbox};
}

void Recount::found(const NriContainer& container) {
  if (!container.stopped) missing_.erase(container.id);
}

Result<void> Recount::synchronize_end() {
  complete_ = true;
  return {};
}

}  // namespace shim
