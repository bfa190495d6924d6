// Parts of a gRPC server on unix sockets, for the services that the kubelet calls.
//
// Such a server uses one thread, which waits for gRPC without a timeout. The callback API of gRPC is not used: without
// an event engine, it starts at least two threads that wake up each second, and a call can wait 100 ms for them.
// Source: CallbackAlternativeCQ in src/cpp/common/completion_queue_cc.cc, gRPC 1.51.
#pragma once

#include <string>

namespace grpc {
class CompletionQueue;
}

namespace shim {

// Prevents gRPC from writing to stderr, because programs return all failures as results. Call once, before any other
// use of gRPC.
void silence_grpc();

// Returns the errno of a failed listen, which gRPC does not report. To find it, binds a socket at the same path.
int why_not_listen(const std::string& path);

// An operation that gRPC executes in the background. gRPC reports its end by the tag, in the thread of the service.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  void* tag() { return this; }
  // ok: true if the operation has succeeded.
  virtual void end(bool ok) = 0;

 protected:
  virtual ~Operation() = default;
};

// Calls end() of each operation of the queue until the queue is shut down and empty.
void handle_operations(grpc::CompletionQueue& queue);

}  // namespace shim
