#include "shim/kubelet/node_watch.hpp"

#include <algorithm>
#include <cerrno>

namespace shim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Pause before a read of the node: events come in bursts, and one read serves a whole burst.
constexpr milliseconds kBurst{100};
// Shortest time between two reads, for a node that changes all the time.
constexpr milliseconds kBetweenLooks{500};
// Time between two reads of the node while events report all changes except those of has_silent_state(). This time
// limits the harm of a change that caused no event. fabric::KeptNode decides which facts such a read must read again.
constexpr seconds kBetweenRests{60};
constexpr auto kNoTime = NodeWatch::Clock::time_point::max();

}  // namespace

NodeWatch::Clock::time_point NodeWatch::look() {
  const auto now = Clock::now();
  if (now >= next_look_ || (now >= next_silent_look_ && node_.has_silent_change())) {
    read_node();
  } else if (now >= next_silent_look_) {
    next_silent_look_ = Clock::now() + node_.poll_time();
    look_when_settled();
  }
  return std::min(next_look_, next_silent_look_);
}

void NodeWatch::read_node() {
  // The events begin before the read, so that a change during the read is reported. Events of this kernel do not
  // concern a file tree.
  const bool watches_kernel = !is_tree_ && kept_.open_events();
  const bool watches_files = files_.watch(node_.directories());
  has_config_ = node_.read();
  looked_at_ = Clock::now();
  // After an event the node is read once more: drivers may change ports and GID tables a moment after the event.
  const bool rests = watches_kernel && watches_files && node_.is_complete() && kept_.is_quiet();
  next_look_ = looked_at_ + (rests ? std::max(node_.poll_time(), kBetweenRests) : node_.poll_time());
  look_when_settled();
  next_silent_look_ = node_.has_silent_state() ? looked_at_ + node_.poll_time() : kNoTime;
}

void NodeWatch::look_when_settled() {
  if (const auto settles = node_.settles_at()) next_look_ = std::min(next_look_, *settles);
}

// Makes a read due some time after an event: one read serves a burst of events (kBurst), and reads have a minimum
// distance.
void NodeWatch::look_after_event(milliseconds distance) {
  next_look_ = std::min(next_look_, std::max(Clock::now() + kBurst, looked_at_ + distance));
}

Result<bool> NodeWatch::wait_until(Clock::time_point time, int signals, const WakeUp& wake, std::vector<pollfd>& fds) {
  std::vector<pollfd> all = fds;
  for (const int fd : {signals, wake.fd(), files_.fd()})
    all.push_back({fd, POLLIN, 0});
  for (const int fd : kept_.fds())
    all.push_back({fd, POLLIN, 0});
  const auto pause = std::max(std::chrono::ceil<milliseconds>(time - Clock::now()), milliseconds(0));
  const int ready = ::poll(all.data(), all.size(), time == kNoTime ? -1 : static_cast<int>(pause.count()));
  if (ready < 0 && errno != EINTR) return sys_error(errno, "cannot wait");
  if (ready <= 0) return false;
  std::copy_n(all.begin(), fds.size(), fds.begin());
  if (all[fds.size()].revents != 0) return true;
  wake.take();
  if (kept_.take_events()) look_after_event(kBetweenLooks);
  if (files_.take()) look_after_event(std::min<milliseconds>(node_.poll_time(), between_file_looks_));
  return false;
}

NodeWatch::Clock::time_point NodeWatch::after_other_reads() {
  if (!kept_.is_quiet()) look_after_event(kBetweenLooks);
  return next_look_;
}

}  // namespace shim
