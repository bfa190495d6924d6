// The meeting point of the ranks: accepts their TCP connections on rank 0, and carries messages between them and the
// referee. A connection counts as a stranger's until its peer has a place in the job. A stranger costs less than 1.5
// KiB of this process, and closes after some seconds. If there are too many, the oldest of the network with most of
// them closes: a rank tries again, and needs a place only for the time of its four first messages.
#pragma once

#include <sys/resource.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "init/log.hpp"
#include "init/ping/channel.hpp"
#include "init/ping/referee.hpp"

namespace init::ping {

// Raises the soft limit of open files to the hard one, for a connection to each rank. Restores it at the end: the
// trainer must find the limit of its container.
class RaisedFileLimit {
 public:
  RaisedFileLimit();
  RaisedFileLimit(const RaisedFileLimit&) = delete;
  RaisedFileLimit& operator=(const RaisedFileLimit&) = delete;
  ~RaisedFileLimit();

 private:
  rlimit before_{};
};

class MeetingPoint {
 public:
  // Most connections besides those of the ranks: strangers, and ranks that come again.
  static constexpr unsigned kSpare = 1024;

  // Listens for `size` ranks, which must prove the token. Errors: the address is in use, or is none of this machine.
  static base::Result<MeetingPoint> listen(const SocketAddress& address, unsigned size, std::string token);

  // Adds the connection of a rank in this process.
  void add(base::UniqueFd socket);
  // Closes all descriptors in a child of this process: the port must be free when the parent ends.
  void leave();
  // Runs the referee to its end, announces the verdict of decide(), and sends it for at most kFarewellSeconds.
  void run(Referee& referee, const Log& log, const std::function<Verdict(const Outcome&)>& decide);

 private:
  enum class Stage { kHello, kProof, kKnown };  // the next message, and a peer that has proven the token
  struct Connection {
    base::UniqueFd socket;
    std::string from;
    std::string network;  // the peer's network; empty: this process
    Stage stage = Stage::kHello;
    Hello hello = {};
    Inbox inbox = Inbox(kLongestFirstFrame);
    std::optional<Seal> seal = {};  // makes the codes of rank 0's messages
    std::string unsent = {};
    bool is_last = false;  // send no more than `unsent`, and wait for the rank to close it
    double ends_at = 0;    // time at which a connection without a seat, or after its last message, is closed; 0: never
  };

  MeetingPoint(base::UniqueFd listener, base::UniqueFd events, unsigned size, std::string token)
      : listener_(std::move(listener)), events_(std::move(events)), most_(size + kSpare), token_(std::move(token)) {}
  int new_number();
  void accept_some(Referee& referee);
  void exchange(Referee& referee, double deadline);
  void read_from(int number, Referee& referee);
  void take(int number, Message message, Referee& referee);
  void answer_hello(int number, Hello hello, Referee& referee);
  void refuse(int number, const std::string& reason, Referee& referee);
  void write_to(int number, Referee& referee);
  void deliver(Referee& referee);
  void close_late(Referee& referee);
  bool close_stranger(Referee& referee);
  void forget_stranger(int number, const std::string& network);
  void close(int number, Referee& referee);

  static constexpr int kListener = 0;
  base::UniqueFd listener_;
  base::UniqueFd events_;
  unsigned most_;
  std::string token_;
  int last_ = kListener;  // number of the newest connection
  std::map<int, Connection> connections_;
  std::map<std::string, std::set<int>> strangers_;  // connections without a seat, by network
};

}  // namespace init::ping
