// A second look at the containers that the runtime knows, over a connection of its own: the plugin's connection, whose
// loss would leave containers without their devices, goes on meanwhile.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "shim/nri/wire/handler.hpp"
#include "shim/nri/wire/session.hpp"

namespace shim {

class Recount : private NriHandler {
 public:
  // Connects, registers and returns; the runtime's Synchronize comes later. ids: of containers. Errors: the runtime
  // cannot be reached, or refuses.
  static fabric::Result<std::unique_ptr<Recount>> begin(const std::string& socket, const PluginIdentity& identity,
                                                        std::set<std::string> ids);
  // Readable when the runtime has sent something.
  int fd() const { return fd_; }
  // Reads what the runtime has sent, without waiting. Returns those ids whose container the runtime does not know, or
  // knows as stopped; nullopt: it has not named all containers yet. Errors: the connection has ended before.
  fabric::Result<std::optional<std::set<std::string>>> step();

 private:
  explicit Recount(std::set<std::string> ids) : ids_(std::move(ids)) {}

  fabric::Result<std::vector<Event>> configure(const RuntimeInfo& runtime) override;
  void synchronize_begin() override { missing_ = ids_; }
  void found(const NriPod& /*pod*/) override {}
  void found(const NriContainer& container) override;
  fabric::Result<void> synchronize_end() override;
  fabric::Result<std::string> answer(const NriRequest& /*request*/) override { return std::string(); }

  std::set<std::string> ids_;
  std::set<std::string> missing_;
  bool complete_ = false;
  int fd_ = -1;
  std::unique_ptr<NriSession> plugin_;
};

}  // namespace shim
