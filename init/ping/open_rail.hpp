// A rail that is opened with libibverbs: one buffer, one completion queue, and one queue pair at a time. Its settings
// are those of NCCL. Source: NVIDIA/nccl src/transport/net_ib (ncclIbCreateQp, ncclIbRtrQp, ncclIbRtsQp), 2.30.7.
#pragma once

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "init/ping/messages.hpp"
#include "init/ping/outcome.hpp"
#include "init/ping/rails.hpp"
#include "init/ping/verbs.hpp"

namespace init::ping {

class OpenRail {
 public:
  // Arguments must outlive the object.
  OpenRail(const Verbs& verbs, const Connecting& connecting) : verbs_(verbs), connecting_(connecting) {}
  OpenRail(const OpenRail&) = delete;
  OpenRail& operator=(const OpenRail&) = delete;
  ~OpenRail();

  // Opens the HCA and registers the buffer: for writes of `bytes`, and at least as much as NCCL registers for one
  // connection. Sets GID and MTU of the rail to those that libibverbs reports.
  Failure open(Rail& rail, std::uint32_t bytes);

  // Makes a queue pair in state INIT with a receive for one write of `bytes`, in place of the former one.
  Contact make_queue_pair(std::uint32_t round, std::uint32_t bytes);
  // Brings the queue pair to RTS. May wait for seconds while the kernel resolves the peer's address.
  Failure connect(const Contact& peer);

  // Posts the write of the test.
  void start_test();
  // Posts writes without a pause until `until` (clock_seconds()).
  void start_bandwidth(double until);
  // Takes completions from the queue. Returns false if there were none.
  bool take_completions();
  // Requests one event on the descriptor at the next completion.
  int arm();
  void take_event();
  // Returns true if nothing is outstanding, or the test has failed.
  bool is_done() const;
  // Ends the test at its time limit.
  void give_up(double seconds);
  const Failure& failure() const { return failure_; }
  std::uint32_t mbps() const;

 private:
  template <typename T>
  using Handle = std::unique_ptr<T, int (*)(T*)>;

  Failure open_port(const Rail& rail);
  Failure register_buffer(std::uint32_t bytes);
  Failure read_port(Rail& rail);
  Failure to_init();
  Failure to_rtr(const Contact& peer);
  Failure to_rts();
  void post_write(std::uint64_t id, std::uint32_t bytes);
  void take(const ibv_wc& completion);
  void check_data();
  void fail(Layer layer, std::string detail);
  char* received() const { return static_cast<char*>(buffer_) + half_; }

  const Verbs& verbs_;
  const Connecting& connecting_;
  std::string name_;
  std::uint8_t port_ = 1;
  bool infiniband_ = false;
  std::uint8_t gid_index_ = 0;
  ibv_gid gid_{};
  ibv_port_attr attributes_{};
  void* buffer_ = MAP_FAILED;
  std::size_t half_ = 0;
  Handle<ibv_context> context_{nullptr, nullptr};
  Handle<ibv_pd> domain_{nullptr, nullptr};
  Handle<ibv_mr> region_{nullptr, nullptr};
  Handle<ibv_comp_channel> channel_{nullptr, nullptr};
  Handle<ibv_cq> queue_{nullptr, nullptr};
  Handle<ibv_qp> pair_{nullptr, nullptr};

  Contact peer_;
  Failure failure_;
  std::uint32_t round_ = 0;
  std::uint32_t bytes_ = 0;
  bool is_write_acknowledged_ = true;
  bool is_write_received_ = true;
  unsigned outstanding_ = 0;  // writes for bandwidth
  double bandwidth_since_ = 0;
  double bandwidth_until_ = 0;
  double bandwidth_end_ = 0;
  std::uint64_t bandwidth_bytes_ = 0;
};

// Seconds of the monotonic clock.
double clock_seconds();

}  // namespace init::ping
