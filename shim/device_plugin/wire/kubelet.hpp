// gRPC over unix sockets: what the kubelet calls, and what it is told. The only part that knows gRPC.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shim/device_plugin/resources.hpp"
#include "shim/result.hpp"

namespace shim {

// gRPC writes nothing to stderr: what fails is told by results. Once, before all else.
void silence_grpc();

// The service of one resource at a socket of its own. Its calls come in threads of gRPC's.
class DeviceServer {
 public:
  struct Settings {
    std::string socket;  // path
    ByCdi by_cdi;        // called from any thread
    // Whether the HCA is what it was when it was announced: before a container gets its nodes. One that is not may be
    // on its way home from a pod that has ended: the scheduler hears of that before the sandbox is taken down. So
    // Allocate waits for it, ten seconds at most.
    std::function<Result<void>(const CountedHca&)> check;
    // What the kubelet was given, or why not. From any thread.
    std::function<void(const std::vector<const CountedHca*>& hcas, const Result<void>& allocated)> allocated;
    std::function<void()> wake;  // a watch has begun or ended. From any thread
  };
  // A socket that lies there is removed. Errors: nobody can listen there.
  static Result<std::unique_ptr<DeviceServer>> start(Settings settings, Resource resource);
  virtual ~DeviceServer() = default;  // ends all calls and removes the socket

  // To all who watch.
  virtual void publish(Resource resource) = 0;
  // Looks again at what Allocate waits for. True: it still waits.
  virtual bool retry() = 0;
  // Calls of ListAndWatch that have not ended.
  virtual std::size_t watchers() const = 0;
};

// Register, which does not wait.
class Registration {
 public:
  struct Request {
    std::string kubelet;   // path of its socket
    std::string endpoint;  // file name of ours
    std::string resource;
  };
  // wake: it has ended. From another thread.
  static std::unique_ptr<Registration> begin(const Request& request, std::function<void()> wake);
  virtual ~Registration() = default;  // waits until it has ended
  // nullptr: it has not.
  virtual const Result<void>* result() const = 0;
};

}  // namespace shim
