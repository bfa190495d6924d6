// The sockets of the driver in the kubelet's directories.
//
// The kubelet registers a driver for each socket in its directory plugins_registry, and forgets it when the socket is
// removed. A driver that ends removes its sockets; one that is killed leaves them, and the kubelet goes on to connect
// to them. Therefore each driver removes sockets of this driver at which no process listens.
#pragma once

#include <string>
#include <string_view>

#include "base/log.hpp"
#include "base/process/root_lock.hpp"
#include "base/result.hpp"

namespace shim {

// Paths of the driver's sockets. A pod has its own, so that two versions run side by side during a rolling update.
struct Sockets {
  std::string registry;      // the kubelet's directory of registration sockets
  std::string registration;  // the socket in it
  std::string directory;     // the driver's directory
  std::string service;       // the socket in it, for claims and health
};
// kubelet: the directory of the kubelet. pod: UID of the driver's pod; any other text means that it has none. Pure.
Sockets sockets_in(const std::string& kubelet, std::string_view pod);

// Returns whether an instance of this driver gives a registration socket, or a socket for claims, this name. Pure.
bool is_registration_name(std::string_view name);
bool is_service_name(std::string_view name);

// Makes the driver's directory, and removes the sockets of this driver at which no process listens. Logs each. Returns
// a lock: until it is released, no other instance removes or makes sockets, so that it takes no socket for abandoned
// that is about to be used. Errors: EADDRINUSE, another process listens at one of the sockets; the kubelet has no
// directory of registration sockets; the driver's directory cannot be made or locked.
Result<base::LockFile> take_sockets(const Sockets& sockets, const base::Log& log);

}  // namespace shim
