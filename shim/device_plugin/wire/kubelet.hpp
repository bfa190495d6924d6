// The gRPC services over unix sockets: calls of the kubelet, and the registration with it. Only this component uses
// gRPC.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "shim/device_plugin/resources.hpp"

namespace shim {

// Serves one resource at its own socket. A thread handles the calls.
class DeviceServer {
 public:
  struct Settings {
    std::string socket;  // path of the resource's socket
    ByCdi by_cdi;        // called from any thread
    // Checks before an allocation that the HCA still has its announced device node. Called from any thread. A failure
    // may pass, so Allocate tries again for up to 10 s: the scheduler assigns an HCA again as soon as a pod has ended,
    // before the pod's sandbox is removed and the kernel moves the HCA back to the node.
    std::function<Result<void>(const CountedHca&)> check;
    // Called after each allocation, with the HCAs and the result. Called from any thread.
    std::function<void(const std::vector<const CountedHca*>& hcas, const Result<void>& allocated)> allocated;
    // Called from any thread when a ListAndWatch call begins or ends, or an Allocate call must wait.
    std::function<void()> wake;
  };
  // Starts the service. Replaces an existing socket. Errors: the socket cannot be created.
  static Result<std::unique_ptr<DeviceServer>> start(Settings settings, Resource resource);
  virtual ~DeviceServer() = default;  // ends all calls and removes the socket

  // Sends the resource to all open ListAndWatch calls.
  virtual void publish(Resource resource) = 0;
  // Tries the waiting Allocate calls again. Returns true if some still wait.
  virtual bool retry() = 0;
  // Returns the number of ListAndWatch calls that have not ended.
  virtual std::size_t watchers() const = 0;
};

// A call of the kubelet's Register, which runs in the background.
class Registration {
 public:
  // Starts the call. directory: the kubelet's, with the sockets of kubelet and resource (socket_name()). wake: called
  // from another thread when the call has ended.
  static std::unique_ptr<Registration> begin(const std::string& directory, const std::string& resource,
                                             std::function<void()> wake);
  virtual ~Registration() = default;  // waits until the call has ended
  // Returns the result of the call; nullptr: the call has not ended.
  virtual const Result<void>* result() const = 0;
};

}  // namespace shim
