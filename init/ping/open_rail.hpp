// A rail that is opened with libibverbs: its HCA, one buffer and one completion queue.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "init/ping/outcome.hpp"
#include "init/ping/verbs.hpp"

namespace init::ping {

// An object of libibverbs with its destructor.
template <typename T>
using Handle = std::unique_ptr<T, int (*)(T*)>;

class OpenRail {
 public:
  // verbs must outlive the object.
  explicit OpenRail(const Verbs& verbs) : verbs_(verbs) {}
  OpenRail(const OpenRail&) = delete;
  OpenRail& operator=(const OpenRail&) = delete;
  ~OpenRail();

  // Opens the HCA and registers the buffer: for writes of `bytes`, and at least as much as NCCL registers for one
  // connection. Sets GID, MTU and P_Key of the rail to those that libibverbs reports. Call it once, and call no other
  // function after a failure.
  Failure open(Rail& rail, std::uint32_t bytes, std::uint16_t pkey_index);

  const Verbs& verbs() const { return verbs_; }
  const std::string& name() const { return name_; }  // "mlx5_0:1"
  bool is_infiniband() const { return infiniband_; }
  std::uint8_t port() const { return port_; }
  std::uint8_t gid_index() const { return gid_index_; }
  const ibv_gid& gid() const { return gid_; }
  const ibv_port_attr& attributes() const { return attributes_; }
  unsigned mtu() const { return 128U << static_cast<unsigned>(attributes_.active_mtu); }  // bytes
  ibv_pd* domain() const { return domain_.get(); }
  ibv_cq* queue() const { return queue_.get(); }
  const ibv_mr& region() const { return *region_; }
  // The two halves of the buffer.
  char* to_send() const { return static_cast<char*>(buffer_); }
  char* received() const { return to_send() + half_; }

  // Requests one event on the returned descriptor at the next completion.
  int arm();
  void take_event();

  // Entries of the completion queue.
  static constexpr unsigned kCompletions = 8;

 private:
  Failure open_port(const Rail& rail);
  Failure register_buffer(std::uint32_t bytes);
  Failure make_queue();
  Failure read_port(Rail& rail, std::uint16_t pkey_index);

  const Verbs& verbs_;
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
};

// Returns "; RLIMIT_MEMLOCK is N kB" after an allocation of locked memory failed with `error`, otherwise an empty text.
std::string memlock_text(int error);

}  // namespace init::ping
