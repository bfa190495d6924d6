// Parts of a gRPC server on unix sockets, for the services that the kubelet calls.
//
// Such a server uses one thread, which waits for gRPC without a timeout. The callback API of gRPC is not used: without
// an event engine, it starts at least two threads that wake up each second, and a call can wait 100 ms for them.
// Source: CallbackAlternativeCQ in src/cpp/common/completion_queue_cc.cc, gRPC 1.51.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"

namespace grpc {
class Server;
class ServerBuilder;
class ServerCompletionQueue;
}  // namespace grpc

namespace shim {

// Prevents gRPC from writing to stderr, because programs return all failures as results. Call once, before any other
// use of gRPC.
void silence_grpc();

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

// The end of a call, which gRPC reports by a tag of its own (AsyncNotifyWhenDone()), also if the kubelet ends the call.
template <typename Call>
class CallEnd final : public Operation {
 public:
  explicit CallEnd(Call& call) : call_(call) {}
  ~CallEnd() override = default;
  void end(bool) override { call_.end_call(); }

 private:
  Call& call_;
};

// A server and its thread, which calls end() of each operation that has ended.
class GrpcServer {
 public:
  GrpcServer() = default;
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;
  // Ends all calls and removes the sockets. Waits until each operation has ended, so the services and all that their
  // operations use must live longer: make this the last member.
  ~GrpcServer();
  // Starts the server. builder: has the services. sockets: paths; replaces existing sockets. The caller begins the
  // first operations afterwards. Errors: a socket cannot be created.
  Result<void> listen(grpc::ServerBuilder& builder, const std::vector<std::string>& sockets);
  // Returns the queue of the operations, after listen().
  grpc::ServerCompletionQueue* queue() const { return queue_.get(); }

 private:
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
};

}  // namespace shim
