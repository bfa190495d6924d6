// A TLS connection to the API server, on OpenSSL. OpenSSL only transforms bytes in memory: the system calls and their
// deadlines are those of this file, so that a sandbox allows few calls.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/timing.hpp"
#include "base/unique_fd.hpp"

namespace shim {

// Address of the API server, as Kubernetes passes it to a pod in KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
struct ApiAddress {
  sockaddr_storage address = {};
  socklen_t length = 0;
  std::string ip;    // the server's certificate must name it
  std::string text;  // for messages, and the header Host: "10.96.0.1:443", "[fd00::1]:443"
};
// Parses an IP address and a port. Names are not resolved, because a static program has no resolver, and Kubernetes
// passes an address. Errors: EINVAL.
Result<ApiAddress> parse_api_address(std::string_view ip, std::string_view port);

class TlsStream {
 public:
  // Loads OpenSSL, so that a later connect() opens no file. Errors: OpenSSL does not start.
  static Result<void> load();
  // Connects. ca: PEM text of the certificates that can sign the server's. Errors: the server cannot be reached; its
  // certificate is not signed by the CA, is not valid now, or does not name the IP address; ETIMEDOUT.
  static Result<TlsStream> connect(const ApiAddress& address, const std::string& ca, base::Deadline deadline);

  // Sends the bytes. Errors: ETIMEDOUT; the connection is broken.
  Result<void> send(std::string_view bytes, base::Deadline deadline);
  // Waits for bytes and returns them; an empty text: the server has closed the connection. Errors: ETIMEDOUT; the
  // connection is broken, or ended without TLS's close.
  Result<std::string> receive(base::Deadline deadline);
  // Returns the descriptor, which is readable when bytes have come.
  int fd() const { return socket_.get(); }

 private:
  struct Session;
  struct Free {
    void operator()(Session* session) const;
  };
  Result<void> flush(base::Deadline deadline);
  Result<bool> fill(base::Deadline deadline);
  Result<void> shake_hands(base::Deadline deadline);

  base::UniqueFd socket_;
  std::unique_ptr<Session, Free> session_;
};

}  // namespace shim
