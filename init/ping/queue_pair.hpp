// A reliable connection (RC) on a rail, and its test: one write with immediate data in each direction, then writes for
// bandwidth. The settings are those of NCCL.
// Source: NVIDIA/nccl src/transport/net_ib (ncclIbCreateQp, ncclIbRtrQp, ncclIbRtsQp), 2.30.7.
#pragma once

#include <cstdint>
#include <string>

#include "init/ping/messages.hpp"
#include "init/ping/nccl_choice.hpp"
#include "init/ping/open_rail.hpp"

namespace init::ping {

// A rail has one queue pair at a time: completions of a former one are lost.
class QueuePair {
 public:
  // Makes a queue pair in state INIT with a receive for one write of `bytes`. The first two arguments must outlive the
  // object.
  QueuePair(OpenRail& rail, const Connecting& connecting, std::uint32_t round, std::uint32_t bytes);

  // Returns what the peer must know, or the failure of the constructor.
  Contact contact() const;
  // Brings the queue pair to RTS. May wait for seconds while the kernel resolves the peer's address.
  Failure connect(const Contact& peer);

  // Posts the write of the test.
  void start_test();
  // Posts writes without a pause until `until` (clock_seconds()), if the test is good.
  void start_bandwidth(double until);
  // Takes completions from the queue. Returns false if there were none.
  bool take_completions();
  // Returns true if nothing is outstanding, or the test has failed.
  bool is_done() const;
  // Ends the test at its time limit.
  void end_test(double seconds);
  const Failure& failure() const { return failure_; }
  // Returns the bandwidth of this end's writes in megabits per second, 0 if it was not measured.
  std::uint32_t mbps() const;
  OpenRail& rail() const { return rail_; }

 private:
  void make();
  int modify(ibv_qp_attr& attributes, int mask);
  void to_init();
  void to_rtr();
  void to_rts();
  void post_receive();
  void post_write(std::uint64_t id, std::uint32_t bytes);
  void take(const ibv_wc& completion);
  void take_bandwidth();
  void check_data();
  void fail(Layer layer, std::string detail);

  OpenRail& rail_;
  const Connecting& connecting_;
  std::uint32_t round_;
  std::uint32_t bytes_;
  Handle<ibv_qp> pair_{nullptr, nullptr};
  Contact peer_;
  Failure failure_;
  bool is_write_acknowledged_ = true;
  bool is_write_received_ = true;
  unsigned outstanding_ = 0;  // number of writes for bandwidth
  double bandwidth_since_ = 0;
  double bandwidth_until_ = 0;
  double bandwidth_end_ = 0;
  std::uint64_t bandwidth_bytes_ = 0;
};

}  // namespace init::ping
