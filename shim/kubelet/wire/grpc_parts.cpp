#include "shim/kubelet/wire/grpc_parts.hpp"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "base/unix_socket.hpp"

namespace shim {

namespace {

// Returns the errno of a failed listen, which gRPC does not report. To find it, binds a socket at the same path.
int why_not_listen(const std::string& path) {
  const auto address = base::unix_address(path);
  if (!address) return ENAMETOOLONG;
  const base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.ok() || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0)
    return errno;
  // The bind succeeded, so gRPC failed for another reason, and the next attempt may succeed.
  ::unlink(path.c_str());
  return EAGAIN;
}

void handle_operations(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok))
    static_cast<Operation*>(tag)->end(ok);
}

}  // namespace

void silence_grpc() {
  gpr_set_log_function([](gpr_log_func_args*) {});
}

Result<void> GrpcServer::listen(grpc::ServerBuilder& builder, const std::vector<std::string>& sockets) {
  for (const std::string& socket : sockets)
    builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  queue_ = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  if (!server_)
    return base::sys_error(why_not_listen(sockets.front()), "cannot listen on `{}`", base::join(sockets, "` and `"));
  thread_ = std::thread([this] { handle_operations(*queue_); });
  return {};
}

GrpcServer::~GrpcServer() {
  // The deadline cancels calls that the kubelet keeps open. Shutdown() returns after the end of all calls, so that no
  // operation begins after the end of the queue.
  if (server_) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  if (queue_) queue_->Shutdown();
  if (thread_.joinable()) {
    thread_.join();
  } else if (queue_) {
    handle_operations(*queue_);  // gRPC requires an empty queue
  }
}

}  // namespace shim
