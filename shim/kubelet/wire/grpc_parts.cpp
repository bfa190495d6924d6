#include "shim/kubelet/wire/grpc_parts.hpp"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.hpp"

namespace shim {

void silence_grpc() {
  gpr_set_log_function([](gpr_log_func_args*) {});
}

int why_not_listen(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.ok() || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
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

}  // namespace shim
