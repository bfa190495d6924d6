// The out-of-band link to the same program in the other container: lines of text over TCP, which NCCL's bootstrap also
// uses.
#pragma once

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "rc_endpoint.hpp"

namespace trainer {

class Twin {
 public:
  // Waits for one connection on `port` of any address.
  static Result<Twin> listen(const std::string& port, int timeout);
  // Retries until the twin listens, or until the timeout in seconds.
  static Result<Twin> connect(const std::string& host, const std::string& port, int timeout);

  // Both sides send, then both receive. The tag is the name of the exchange: different tags are an error.
  Result<std::string> exchange(const std::string& tag, const std::string& text);
  Result<EndpointAddress> exchange_address(const EndpointAddress& own);

 private:
  explicit Twin(base::UniqueFd socket) : socket_(std::move(socket)) {}
  static Result<Twin> with_timeout(base::UniqueFd socket, int timeout);
  Result<std::string> read_line();

  base::UniqueFd socket_;
};

}  // namespace trainer
