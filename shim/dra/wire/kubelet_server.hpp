// The gRPC services that the kubelet calls, over two unix sockets: registration, claims and health. Only this folder
// uses gRPC.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/claim/claims.hpp"
#include "shim/dra/claims.hpp"

namespace shim {

// A call of NodePrepareResources or NodeUnprepareResources, which waits for its answer.
class ClaimsCall {
 public:
  bool prepares = false;
  std::vector<ClaimKey> claims;  // as the kubelet names them; nothing in them is checked
  struct Answer {
    std::vector<hook::PreparedDevice> devices;
    std::string error;  // empty: success
  };
  // Sends the answers, by UID, once. A claim without an answer gets an error, because the kubelet demands each UID.
  virtual void finish(const std::map<std::string, Answer>& answers) = 0;
  virtual ~ClaimsCall() = default;

 protected:
  ClaimsCall() = default;
};

struct DeviceHealth {
  enum class State : std::uint8_t { kUnknown = 0, kHealthy = 1, kUnhealthy = 2 };  // the numbers of the API
  std::string device;
  State state = State::kUnknown;
  std::string text;  // why it is unhealthy
  friend bool operator==(const DeviceHealth&, const DeviceHealth&) = default;
};

// Serves the kubelet. A thread of its own handles the calls.
class KubeletServer {
 public:
  struct Settings {
    std::string registration;    // path of the socket that the kubelet's plugin watcher finds
    std::string service;         // path of the socket for claims and health
    std::string pool;            // name of the pool that all devices have
    std::function<void()> wake;  // called from any thread when take_calls() or registration() has changed
  };
  // Starts the services. Replaces existing sockets. Errors: a socket cannot be created.
  static Result<std::unique_ptr<KubeletServer>> start(Settings settings);
  virtual ~KubeletServer() = default;  // fails the calls that wait, and removes both sockets

  // Returns the calls that have come since the last call of this function.
  virtual std::vector<std::shared_ptr<ClaimsCall>> take_calls() = 0;
  // Sends the whole list to each open health stream, and first of all to a new one.
  virtual void send_health(std::vector<DeviceHealth> devices) = 0;
  // Returns the number of open health streams.
  virtual std::size_t watchers() const = 0;
  // Returns the kubelet's last answer about the registration: an empty text for success; nullopt: none yet.
  virtual std::optional<std::string> registration() const = 0;
};

}  // namespace shim
