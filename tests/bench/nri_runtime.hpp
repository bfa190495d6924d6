// A runtime's side of NRI for one plugin: just enough to ask it and to take the time of its answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"
#include "shim/ttrpc/frames.hpp"

namespace bench {

struct Answer {
  std::string payload;
  double seconds = 0;  // from the request's first byte to the answer's last
};

class NriRuntime {
 public:
  // Errors: the socket's.
  static fabric::Result<NriRuntime> listen(const std::string& path);

  // Takes the next plugin through its registration, Configure and an empty Synchronize. Errors: it does not come, or
  // not so far.
  fabric::Result<void> welcome();

  // payload: of a method of the plugin's service. Errors: a status that is no success, the end of the connection, no
  // answer within 30 seconds.
  fabric::Result<Answer> ask(std::string_view method, std::string_view payload);

 private:
  explicit NriRuntime(fabric::UniqueFd listening)
      : listening_(std::move(listening)), answers_buffer_(1 << 20), requests_buffer_(1 << 20) {}

  fabric::Result<void> send(std::uint32_t connection, const shim::Message& message);
  // Reads until the plugin's answer to this stream of ours is there, or, for 0, until it has registered; what it
  // asks meanwhile is answered.
  fabric::Result<std::string> read_until(std::uint32_t stream);
  fabric::Result<void> serve(const shim::Message& message);

  fabric::UniqueFd listening_;
  fabric::UniqueFd socket_;
  std::vector<char> answers_buffer_;
  std::vector<char> requests_buffer_;
  shim::MuxDecoder mux_;
  shim::MessageDecoder answers_{answers_buffer_};
  shim::MessageDecoder requests_{requests_buffer_};
  std::uint32_t stream_ = 1;
  bool registered_ = false;
};

}  // namespace bench
