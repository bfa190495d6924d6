// A Connection over a socket pair. Without threads where the peer's bytes fit into the socket: they are written first.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <vector>

#include "shim/ttrpc/connection.hpp"
#include "unit/nri/peer.hpp"

namespace shim {

class ConnectionTest : public testing::Test {
 protected:
  // Answers by what it was asked for: "METHOD(PAYLOAD)".
  fabric::Result<std::string> handle(const Request& request) {
    const auto& [service, method, payload, timeout] = request;
    asked_.emplace_back(method);
    if (method == "Fail") return fabric::Error{"pool `a` is empty", 0, "add HCAs"};
    if (method == "Throw") throw std::runtime_error("no memory");
    if (method == "Nested") {
      const auto nested = connection_->call("S", "M", "", std::chrono::seconds(1));
      return nested.error();
    }
    if (method == "Large") return std::string(std::stoul(std::string(payload)), 'L');
    if (service != "nri.pkg.api.v1alpha1.Plugin") return fabric::Error{"service", ENOSYS};
    return std::string(method) + "(" + std::string(payload.substr(0, 100)) + ")";
  }

  // Serves what was sent, which fits into the socket.
  void pump() {
    for (int i = 0; i < 40; ++i)
      if (const auto served = connection_->serve(-1, Connection::Clock::now()); !served)
        error_ = served.error().message;
  }

  // What the plugin answered: "STREAM: ANSWER".
  std::vector<std::string> answers() {
    pump();
    std::vector<std::string> all;
    for (const auto& received : peer_.received()) {
      EXPECT_EQ(received.connection, 1U);
      EXPECT_EQ(received.type, 2);
      all.push_back(std::to_string(received.stream) + ": " + shim_peer::answer(received.data));
    }
    return all;
  }

  using Answers = std::vector<std::string>;

  shim_peer::Peer peer_;
  std::unique_ptr<Connection> connection_ =
      Connection::open(peer_.take_plugin_end(), [this](const Request& request) { return handle(request); }).value();
  std::vector<std::string> asked_;
  std::string error_;
};

}  // namespace shim
