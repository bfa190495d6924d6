// A node with InfiniBand, as far as rails meet its kernel. WRITTEN FROM HEADERS AND SOURCE, NEVER RUN ON INFINIBAND
// HARDWARE: no kernel that the tests can start has such a device. It has the rules that the order of the program's
// requests rests on, each with its place in Linux 6.12, and refuses little of what a kernel would refuse. What it
// cannot show is what a driver or firmware does with a GUID, and how long a kernel takes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace test_support {

constexpr int kNodeNetns = 0;
constexpr int kContainerNetns = 1;

// The physical function, 0000:1a:00.0 with mlx5_0, then the virtual ones by number.
struct IbFunction {
  int netns = kNodeNetns;  // of its RDMA device
  std::uint64_t node_guid = 0;
  std::uint64_t port_guid = 0;
  std::uint32_t index = 0;
  std::array<char, 64> name = {};
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
  unsigned group = 0;
  bool up = false;
  void rename(std::string_view to);
};

// Lies in memory that a forked child shares.
struct IbState {
  std::array<IbFunction, 5> functions = {};
  std::array<IbLink, 16> links = {};
  int next_ifindex = 4;
  std::uint32_t next_queue_pair = 0x100;
  bool is_shared = false;        // `rdma system`: netns shared
  bool netdev_follows = false;   // Linux 6.16: an IPoIB netdev is made where its RDMA device is
  bool has_ipoib_module = true;  // for children
  int rdma_move_refusal = 0;     // errno of a driver
  int most_changes = -1;         // further ones are refused: what is on the node then is what a killed process leaves
  int changes = 0;
  std::array<char, 4096> steps = {};  // a line for each
};

// What the program sent.
struct NodeRequest {
  int protocol = 0;       // NETLINK_ROUTE, NETLINK_RDMA
  int socket_netns = 0;   // where the socket was opened
  int process_netns = 0;  // where the sender is
  bool is_dump = false;
  fabric::netlink::Message message;
};

// What the kernel says: messages, then an acknowledgement or the end of the dump.
struct NodeReply {
  int code = 0;  // errno; 0: success
  std::vector<hook::NetlinkMessage> messages = {};
};

// Serves all netlink sockets of this process until it is destroyed; one at a time. A child that the program forks
// (move_rdma_device_from()) has the sockets and descriptors of its parent, and may join a namespace and open sockets of
// its own there.
class InfinibandNode {
 public:
  static inline InfinibandNode* current = nullptr;

  // Physical function ibp0 with VFs 0 to 3: VF 3 is ibp0v3, mlx5_4, 0000:1a:00.4. In exclusive mode.
  InfinibandNode();
  ~InfinibandNode();
  InfinibandNode(const InfinibandNode&) = delete;
  InfinibandNode& operator=(const InfinibandNode&) = delete;

  // A socket of this namespace, for Netlink::adopt().
  static fabric::UniqueFd open_socket(int protocol, int netns);
  // A descriptor that passes for one of the namespace: for IFLA_NET_NS_FD, RDMA_NLDEV_NET_NS_FD and setns(2).
  static fabric::UniqueFd open_netns(int netns);
  // Of which namespace a descriptor is. Throws std::out_of_range: of none.
  static int netns_of(int fd);

  IbState& state() { return *state_; }
  IbLink& link(int netns, std::string_view name);  // aborts when there is none
  // ib_device_rename(): names are unique among all namespaces. 0, or an errno.
  int rename_rdma(std::size_t function, std::string_view name);
  void add_ethernet(int netns, std::string_view name) { add_link(netns, name, -1); }
  // The container's namespace ends, and the kernel takes care of what is in it.
  void end_container();

  // One line for each change since the last call.
  std::vector<std::string> take_steps();
  // All that is there, without what differs whenever the kernel makes a netdev anew: index, queue pair.
  std::string picture() const;

  NodeReply answer(const NodeRequest& request);

 private:
  NodeReply answer_route(const NodeRequest& request);
  NodeReply get_link(const NodeRequest& request) const;
  hook::NetlinkMessage show_link(const IbLink& link, bool with_vfs) const;
  NodeReply set_link(const NodeRequest& request);
  int move_link(IbLink& link, int netns, const std::string& name, std::string& line);
  int change_link(IbLink& link, const fabric::netlink::Attributes& wanted, std::string& line);
  void set_vf_guids(const fabric::netlink::Attributes& info, std::string& line);
  NodeReply new_link(const NodeRequest& request);
  NodeReply answer_rdma(const NodeRequest& request);
  NodeReply set_rdma(const NodeRequest& request);
  NodeReply delete_rdma(const NodeRequest& request);
  void make_netdev_anew(int function, std::string& line);
  IbLink& add_link(int netns, std::string_view name, int function, int ifindex = 0);
  IbLink* find_link(int netns, int ifindex);
  bool is_taken(int netns, std::string_view name) const;
  void note(const std::string& step);

  IbState* state_;
};

}  // namespace test_support
