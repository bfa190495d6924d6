// A model of a node's kernel with InfiniBand, for rails. WRITTEN FROM HEADERS AND SOURCE, NEVER RUN ON INFINIBAND
// HARDWARE: no kernel that the tests can start has such a device. It has the rules on which the order of the program's
// requests depends, each with its place in Linux 6.12, and refuses fewer requests than a kernel. It does not show how a
// driver or firmware uses a GUID, nor how long a kernel takes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace test_support {

constexpr int kNodeNetns = 0;
constexpr int kContainerNetns = 1;

// The physical function, 0000:1a:00.0 with mlx5_0, then the virtual functions by number.
struct IbFunction {
  int netns = kNodeNetns;  // namespace of its RDMA device
  std::uint64_t node_guid = 0;
  std::uint64_t port_guid = 0;
  std::uint32_t index = 0;
  std::array<char, 64> name = {};
};

struct IbLink {
  int ifindex = 0;  // 0: a free place
  int netns = kNodeNetns;
  std::array<char, 16> name = {};
  int function = -1;  // function of an IPoIB netdev; -1: an Ethernet netdev
  int parent = 0;     // ifindex; of a child only
  std::uint16_t pkey = 0xffff;
  std::uint32_t queue_pair = 0;
  std::uint64_t guid = 0;  // GUID in its hardware address
  unsigned mtu = 0;
  unsigned group = 0;
  bool up = false;
  void rename(std::string_view to);
};

// The state is in memory that a forked child shares.
struct IbState {
  std::array<IbFunction, 5> functions = {};
  std::array<IbLink, 16> links = {};
  int next_ifindex = 4;
  std::uint32_t next_queue_pair = 0x100;
  bool is_shared = false;        // `rdma system`: netns shared
  bool netdev_follows = false;   // Linux 6.16: an IPoIB netdev is made where its RDMA device is
  bool has_ipoib_module = true;  // for children
  int rdma_move_refusal = 0;     // errno of a driver
  int most_changes = -1;         // later changes are refused: the node is then as a killed process leaves it
  int changes = 0;
  std::array<char, 4096> steps = {};  // a line for each
};

// A request of the program.
struct NodeRequest {
  int protocol = 0;       // NETLINK_ROUTE, NETLINK_RDMA
  int socket_netns = 0;   // where the socket was opened
  int process_netns = 0;  // where the sender is
  bool is_dump = false;
  base::netlink::Message message;
};

// The answer of the kernel: messages, then an acknowledgement or the end of the dump.
struct NodeReply {
  int code = 0;  // errno; 0: success
  std::vector<hook::RequestBuilder> messages = {};
};

// Serves all netlink sockets of this process during its life; only one object at a time. A child that the program forks
// (move_rdma_device_from()) has the sockets and descriptors of its parent, and may join a namespace and open sockets
// there.
class InfinibandNode {
 public:
  static inline InfinibandNode* current = nullptr;

  // Makes physical function ibp0 with VFs 0 to 3, in exclusive mode. VF 3 is ibp0v3, mlx5_4, 0000:1a:00.4.
  InfinibandNode();
  ~InfinibandNode();
  InfinibandNode(const InfinibandNode&) = delete;
  InfinibandNode& operator=(const InfinibandNode&) = delete;

  // Opens a socket of this namespace, for Netlink::adopt().
  static base::UniqueFd open_socket(int protocol, int netns);
  // Opens a descriptor that stands for the namespace in IFLA_NET_NS_FD, RDMA_NLDEV_NET_NS_FD and setns(2).
  static base::UniqueFd open_netns(int netns);
  // Returns the namespace of a descriptor. Throws std::out_of_range if it has none.
  static int netns_of(int fd);

  IbState& state() { return *state_; }
  IbLink& link(int netns, std::string_view name);  // aborts if there is none
  // As ib_device_rename(): names are unique among all namespaces. Returns 0 or an errno.
  int rename_rdma(std::size_t function, std::string_view name);
  void add_ethernet(int netns, std::string_view name) { add_link(netns, name, -1); }
  // Ends the container's namespace, with the kernel's handling of the devices in it.
  void end_container();

  // Returns one line for each change since the last call.
  std::vector<std::string> take_steps();
  // Returns the whole state, without the index and queue pair, which differ for each netdev that the kernel makes.
  std::string picture() const;

  NodeReply answer(const NodeRequest& request);

 private:
  NodeReply answer_route(const NodeRequest& request);
  NodeReply get_link(const NodeRequest& request) const;
  hook::RequestBuilder show_link(const IbLink& link, bool with_vfs) const;
  NodeReply set_link(const NodeRequest& request);
  int move_link(IbLink& link, int netns, const std::string& name, std::string& line);
  int change_link(IbLink& link, const base::netlink::Attributes& wanted, std::string& line);
  void set_vf_guids(const base::netlink::Attributes& info, std::string& line);
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
