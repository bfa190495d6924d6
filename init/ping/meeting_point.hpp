// The meeting point of the ranks: accepts their TCP connections on rank 0, and carries messages between them and the
// referee.
#pragma once

#include <sys/resource.h>

#include <functional>
#include <map>
#include <string>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"
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
  // Listens for `size` ranks. Raises the soft RLIMIT_NOFILE to the hard one. Errors: the address is in use, or is none
  // of this machine.
  static fabric::Result<MeetingPoint> listen(const SocketAddress& address, unsigned size);

  // Adds the connection of a rank in this process.
  void add(fabric::UniqueFd socket);
  // Closes all descriptors in a child of this process: the port must be free when the parent ends.
  void leave();
  // Runs the referee to its end, announces the verdict of decide(), and sends it for at most kFarewellSeconds.
  void run(Referee& referee, const Log& log, const std::function<Verdict(const Outcome&)>& decide);

 private:
  struct Connection {
    fabric::UniqueFd socket;
    std::string from;
    Inbox inbox = {};
    std::string unsent = {};
    bool is_last = false;  // send no more than `unsent`, and wait for the rank to close it
    double ends_at = 0;    // when it is closed: without a seat, or after the last message; 0: never
  };

  MeetingPoint(fabric::UniqueFd listener, fabric::UniqueFd events, unsigned size)
      : listener_(std::move(listener)), events_(std::move(events)), most_(size + kSpare) {}
  void accept_all(Referee& referee);
  void exchange(Referee& referee, double deadline);
  void read_from(int number, Referee& referee);
  void write_to(int number, Referee& referee);
  void deliver(Referee& referee);
  void close_late(Referee& referee);
  bool make_room(Referee& referee);
  void close(int number, Referee& referee);

  // Connections beyond those of the ranks: strangers, and ranks that come again.
  static constexpr unsigned kSpare = 64;
  static constexpr int kListener = 0;
  fabric::UniqueFd listener_;
  fabric::UniqueFd events_;
  unsigned most_;
  int next_ = 1;
  std::map<int, Connection> connections_;
};

}  // namespace init::ping
