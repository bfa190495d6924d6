// The out-of-band link to the same program in the other container: TCP with lines of text, as NCCL's bootstrap is TCP.
#pragma once

#include <string>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"
#include "rc_endpoint.hpp"

namespace trainer {

class Twin {
 public:
  // Waits for one connection on `port` of any address.
  static Result<Twin> listen(const std::string& port, int timeout);
  // Tries again until the twin listens or the time is over.
  static Result<Twin> connect(const std::string& host, const std::string& port, int timeout);

  // Both send, then both receive. The tag names what is exchanged; twins that are at different points notice.
  Result<std::string> exchange(const std::string& tag, const std::string& text);
  Result<EndpointAddress> exchange_address(const EndpointAddress& own);

 private:
  explicit Twin(fabric::UniqueFd socket) : socket_(std::move(socket)) {}
  static Result<Twin> with_timeout(fabric::UniqueFd socket, int timeout);
  Result<std::string> read_line();

  fabric::UniqueFd socket_;
};

}  // namespace trainer
