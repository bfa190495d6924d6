// The interface between a meeting point, which has the connections, and the rank that decides about their messages:
// rank 0 or a relay. Pure: messages and the time come in, messages go out.
#pragma once

#include <string>
#include <vector>

#include "init/ping/messages.hpp"

namespace init::ping {

class Desk {
 public:
  struct Outgoing {
    int connection = 0;
    Message message;
    bool is_last = false;  // close the connection after it
  };

  // now: seconds of one clock, in all functions.
  virtual ~Desk() = default;
  // connection: a number from 0 that names one connection for its lifetime. from: its address, for messages. Call it
  // only for messages of a peer that has proven the token.
  virtual void receive(int connection, const std::string& from, Message message, double now) = 0;
  // Reports that a peer has not proven the token, and sends it the reason.
  virtual void refuse(int connection, const std::string& from, const Hello& hello, const std::string& reason) = 0;
  // The connection has ended, or sent bytes that are no message.
  virtual void lose(int connection, double now) = 0;
  // Call it at deadline().
  virtual void pass(double now) = 0;
  virtual double deadline() const = 0;
  virtual bool is_finished() const = 0;
  // Returns true if the connection is that of a rank that takes part.
  virtual bool has_seat(int connection) const = 0;
  // Sends the verdict to every rank that is here. Call it once, after is_finished().
  virtual void announce(const Verdict& verdict) = 0;
  // Returns the messages that are due. Call it after other functions that are not const. is_idle: false: further
  // messages are here, which the desk receives next.
  virtual std::vector<Outgoing> take_outgoing(bool is_idle, double now) = 0;
  // Returns lines about the progress since the last call.
  virtual std::vector<std::string> take_progress() { return {}; }
};

}  // namespace init::ping
