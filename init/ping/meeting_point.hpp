// The meeting point of the ranks: accepts their TCP connections on rank 0 or on a relay, and carries messages between
// them and its desk, the referee or the relay. A connection counts as a stranger's until its peer has a place in the
// job. A stranger costs less than 1.5 KiB of this process, and closes after some seconds. If there are too many, the
// oldest of the network with most of them closes: a rank tries again, and needs a place only for the time of its four
// first messages.
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
#include "init/ping/desk.hpp"

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
  // Adds the connection of this rank to rank 0. Returns its number.
  int add_rank0(Channel::Parts parts);
  // Returns the address at which it listens.
  SocketAddress address() const;
  // Closes all descriptors in a child of this process: the port must be free when the parent ends.
  void leave();
  // Runs the desk to its end, announces the verdict of decide(), and sends it for at most kFarewellSeconds.
  void run(Desk& desk, const Log& log, const std::function<Verdict()>& decide);

 private:
  enum class Stage { kHello, kProof, kKnown };  // the next message, and a peer that has proven the token
  struct Connection {
    base::UniqueFd socket;
    std::string from;
    std::string network;  // the peer's network; empty: this process
    Stage stage = Stage::kHello;
    Hello hello = {};
    Inbox inbox = Inbox(kLongestFirstFrame);
    std::optional<Seal> seal = {};  // makes the codes of this end's messages
    std::string unsent = {};
    bool is_writing = false;  // the kernel reports when it takes more of `unsent`
    bool is_last = false;     // send no more than `unsent`, and wait for the rank to close it
    double ends_at = 0;  // time at which a connection without a seat, or after its last message, is closed; 0: never
  };

  MeetingPoint(base::UniqueFd listener, base::UniqueFd events, unsigned size, std::string token)
      : listener_(std::move(listener)), events_(std::move(events)), most_(size + kSpare), token_(std::move(token)) {}
  int new_number();
  void accept_some(Desk& desk);
  void exchange(Desk& desk, double deadline);
  void read_from(int number, Desk& desk);
  void take(int number, Message message, Desk& desk);
  void answer_hello(int number, Hello hello, Desk& desk);
  void refuse(int number, const std::string& reason, Desk& desk);
  void write_to(int number, Desk& desk);
  void deliver(Desk& desk);
  void close_late(Desk& desk);
  bool close_stranger(Desk& desk);
  void forget_stranger(int number, const std::string& network);
  void close(int number, Desk& desk);

  static constexpr int kListener = 0;
  base::UniqueFd listener_;
  base::UniqueFd events_;
  unsigned most_;
  std::string token_;
  int last_ = kListener;  // number of the newest connection
  bool is_idle_ = true;   // no further events are here
  double check_at_ = 0;   // time of the next search for late connections
  std::map<int, Connection> connections_;
  std::map<std::string, std::set<int>> strangers_;  // connections without a seat, by network
};

}  // namespace init::ping
