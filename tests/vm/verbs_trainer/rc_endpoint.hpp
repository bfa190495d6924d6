// One RC queue pair on one port of one HCA, with the memory of its messages.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "fabric/inventory.hpp"

namespace trainer {

using base::Result;
using Gid = std::array<std::uint8_t, 16>;

// The address by which a twin connects to this end.
struct EndpointAddress {
  std::uint32_t qp_number = 0;
  std::uint32_t packet_sequence = 0;
  std::uint16_t lid = 0;
  Gid gid{};
};

std::string gid_text(const Gid& gid);

// Returns a port with its GID table, for init::nccl::choose_gid().
fabric::Port read_gid_table(ibv_context& context, std::uint8_t port, int length);

// Deleter of mapped memory, for unique_ptr.
struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::uint8_t* memory) const;
};

class RcEndpoint {
 public:
  struct Settings {
    std::uint8_t port = 1;
    int gid_index = 0;
    std::size_t memory = 0;     // bytes to register, for sending and receiving together
    std::uint32_t message = 0;  // bytes of one message
    int timeout = 60;           // seconds to wait for a completion
  };

  // Queries the GID, registers the memory and makes the queue pair. `context` must outlive the endpoint.
  static Result<std::unique_ptr<RcEndpoint>> create(ibv_context& context, const Settings& settings);

  const EndpointAddress& address() const { return address_; }
  int roce_version() const { return roce_version_; }

  Result<void> to_rts(const EndpointAddress& twin);

  Result<void> post_receive(std::uint32_t round);
  // Fills the message of `round` with its pattern and sends it.
  Result<void> post_send(std::uint32_t round);
  // Waits until the messages of `round` of both sides are complete. The twin can be one round ahead: its message then
  // completes a receive of the next round before the own send of this round.
  Result<void> wait_for_round(std::uint32_t round);
  // Returns an error unless the received message of `round` has its pattern.
  Result<void> check_received(std::uint32_t round) const;

 private:
  template <auto destroy>
  struct Deleter {
    template <typename T>
    void operator()(T* object) const {
      destroy(object);
    }
  };
  explicit RcEndpoint(const Settings& settings) : settings_(settings) {}

  Result<void> query_gid(ibv_context& context);
  Result<void> register_memory();
  Result<void> make_queue_pair(ibv_context& context);
  Result<void> to_init();
  Result<ibv_wc_opcode> wait_for_completion();
  std::span<std::uint8_t> send_buffer(std::uint32_t round) const;
  std::span<std::uint8_t> receive_buffer(std::uint32_t round) const;

  Settings settings_;
  EndpointAddress address_;
  int roce_version_ = 0;
  std::uint32_t sent_ = 0;
  std::uint32_t received_ = 0;
  ibv_mtu mtu_ = IBV_MTU_1024;
  bool ethernet_ = false;

  // Destroyed from the last to the first, in the order that the verbs require.
  std::unique_ptr<std::uint8_t, Unmap> memory_;
  std::unique_ptr<ibv_pd, Deleter<ibv_dealloc_pd>> domain_;
  std::unique_ptr<ibv_mr, Deleter<ibv_dereg_mr>> region_;
  std::unique_ptr<ibv_comp_channel, Deleter<ibv_destroy_comp_channel>> channel_;
  std::unique_ptr<ibv_cq, Deleter<ibv_destroy_cq>> completions_;
  std::unique_ptr<ibv_qp, Deleter<ibv_destroy_qp>> queue_pair_;
};

}  // namespace trainer
