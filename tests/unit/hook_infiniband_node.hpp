// A node with InfiniBand, as far as rails meet its kernel. WRITTEN FROM HEADERS AND SOURCE, NEVER RUN ON INFINIBAND
// HARDWARE: no kernel that the tests can start has such a device. Messages are laid out by hand from include/uapi
// (linux/if_link.h, linux/rtnetlink.h, rdma/rdma_netlink.h); every rule names where Linux 6.12 has it. What it cannot
// show is what a driver or firmware does with a GUID, and how long a kernel takes.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "unit/hook_scripted_kernel.hpp"

namespace test_support {

constexpr int kNodeNetns = 0;
constexpr int kContainerNetns = 1;
const char* shown(int netns);  // "node", "container"

ScriptedReply refusal(int code, std::string said = {});

// A PCI function: the physical one first, then the virtual ones by number.
struct IbFunction {
  std::array<char, 16> pci = {};
  std::array<char, 16> rdma = {};  // mlx5_0
  std::uint32_t rdma_index = 0;
  int netns = kNodeNetns;  // of the RDMA device
  std::uint64_t node_guid = 0;
  std::uint64_t port_guid = 0;
};

struct IbLink {
  int ifindex = 0;  // 0: a free place
  int netns = kNodeNetns;
  std::array<char, 16> name = {};
  int function = -1;  // whose IPoIB netdev it is; -1: somebody's Ethernet netdev
  int parent = 0;     // ifindex; of a child only
  std::uint16_t pkey = 0xffff;
  std::uint32_t queue_pair = 0;
  std::uint64_t guid = 0;  // of its hardware address
  unsigned mtu = 0;
  unsigned queue_length = 0;
  unsigned group = 0;
  bool up = false;
  void rename(std::string_view to);
};

// Lies in memory that a forked child shares.
struct IbState {
  std::array<IbFunction, 5> functions = {};
  std::array<IbLink, 16> links = {};
  int next_ifindex = 0;
  std::uint32_t next_queue_pair = 0;
  bool is_shared = false;        // `rdma system`: netns shared
  bool netdev_follows = false;   // Linux 6.16: an IPoIB netdev is made where its RDMA device is
  bool has_ipoib_module = true;  // for children
  int rdma_move_refusal = 0;     // errno of a driver
  int kill_after = -1;           // the process ends when it would make one change more
  int count = 0;
  std::array<std::array<char, 160>, 64> steps = {};
};

class InfinibandNode : public ScriptedKernel {
 public:
  static constexpr int kKilled = 99;  // exit status of a process that was killed

  // Physical function ibp0 with VFs 0 to 3: VF 3 is ibp0v3, mlx5_4, 0000:1a:00.4. In exclusive mode.
  InfinibandNode();
  ~InfinibandNode() override;

  IbState& state() { return *state_; }
  const IbState& state() const { return *state_; }
  IbLink& link(int netns, std::string_view name);  // aborts when there is none
  void add_ethernet(int netns, std::string_view name);
  // The container's namespace ends, and the kernel takes care of what is in it.
  void end_container();

  // One line for each change since the last call.
  std::vector<std::string> take_steps();
  // All that is there, without what differs whenever the kernel makes a netdev anew: index, queue pair.
  std::string picture() const;

  ScriptedReply answer(const ScriptedRequest& request) override;

 private:
  ScriptedReply answer_route(const ScriptedRequest& request);
  ScriptedReply get_link(const ScriptedRequest& request) const;
  Buffer show_link(const IbLink& link, bool with_vfs) const;
  ScriptedReply set_link(const ScriptedRequest& request);
  int move_link(IbLink& link, int netns, const std::string& name, std::string& line);
  int change_link(IbLink& link, ByteView attributes, std::string& line) const;
  int set_vf_guids(const IbLink& link, ByteView list, std::string& line);
  ScriptedReply new_link(const ScriptedRequest& request);
  ScriptedReply delete_link(const ScriptedRequest& request);
  ScriptedReply answer_rdma(const ScriptedRequest& request);
  ScriptedReply move_rdma(const ScriptedRequest& request, ByteView netns, IbFunction& function);
  void make_netdev_anew(int function, std::string& line);
  IbLink& add_link(int netns, std::string_view name, int function, int ifindex = 0);
  IbLink* find_link(int netns, int ifindex);
  IbLink* find_link(int netns, std::string_view name);
  bool is_taken(int netns, std::string_view name) const;
  void note(const std::string& step);

  IbState* state_;
};

}  // namespace test_support
