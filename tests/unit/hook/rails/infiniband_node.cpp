#include "unit/hook/rails/infiniband_node.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>

extern "C" {
// The linker's names. NOLINTBEGIN(bugprone-reserved-identifier)
int __real_socket(int domain, int type, int protocol);
ssize_t __real_send(int fd, const void* bytes, std::size_t size, int flags);
ssize_t __real_recv(int fd, void* bytes, std::size_t size, int flags);
ssize_t __real_recvfrom(int fd, void* bytes, std::size_t size, int flags, sockaddr* sender, socklen_t* length);
int __real_getsockopt(int fd, int level, int option, void* value, socklen_t* size);
// NOLINTEND(bugprone-reserved-identifier)
}

namespace test_support {
namespace {

using namespace fabric::netlink;
using namespace hook;
using HardwareAddress = std::array<std::uint8_t, 20>;  // INFINIBAND_ALEN, include/linux/if_infiniband.h

constexpr unsigned kLinkMtu = 4092;  // IPOIB_UD_MTU() of a 4096-byte link

const char* shown(int netns) {
  return netns == kNodeNetns ? "node" : "container";
}

constexpr unsigned rdma_type(unsigned command) {
  return RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
}

// One byte of flags, three bytes of the queue pair's number, a GID.
HardwareAddress address_of(const IbLink& link) {
  HardwareAddress address{0, 0, 0, 0, 0xfe, 0x80};
  for (unsigned i = 0; i < 3; ++i)
    address[3 - i] = static_cast<std::uint8_t>(link.queue_pair >> (8 * i));
  for (unsigned i = 0; i < 8; ++i)
    address[19 - i] = static_cast<std::uint8_t>(link.guid >> (8 * i));
  return address;
}

// A missing attribute reads as zero.
template <typename T>
T value_of(const Attributes& attributes, unsigned type) {
  const Bytes bytes = attributes.get(type);
  T value{};
  if (bytes.size() >= sizeof value) std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

Attributes link_attributes(const NodeRequest& request) {
  return request.message.attributes(sizeof(ifinfomsg));
}

}  // namespace

void IbLink::rename(std::string_view to) {
  if (to.size() >= name.size()) std::abort();
  name = {};
  std::copy(to.begin(), to.end(), name.begin());
}

InfinibandNode::InfinibandNode() {
  if (current != nullptr) std::abort();
  current = this;
  void* memory = ::mmap(nullptr, sizeof(IbState), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  state_ = new (memory) IbState;
  for (std::uint64_t i = 0; i < state_->functions.size(); ++i) {
    state_->functions.at(i) = {
        kNodeNetns, 0x0002c90000aa0000 + i, 0x0002c90000bb0000 + i, static_cast<std::uint32_t>(i), {}};
    rename_rdma(i, fmt::format("mlx5_{}", i));
    IbLink& link = add_link(kNodeNetns, i == 0 ? "ibp0" : fmt::format("ibp0v{}", i - 1), static_cast<int>(i));
    link.mtu = 2044;
    link.up = true;
  }
}

int InfinibandNode::rename_rdma(std::size_t function, std::string_view name) {
  for (const IbFunction& other : state_->functions)
    if (other.name.data() == name) return EEXIST;
  auto& kept = state_->functions.at(function).name;
  if (name.size() >= kept.size()) std::abort();
  kept = {};
  std::copy(name.begin(), name.end(), kept.begin());
  return 0;
}

IbLink& InfinibandNode::add_link(int netns, std::string_view name, int function, int ifindex) {
  IbLink* free = find_link(kNodeNetns, 0);
  if (free == nullptr) std::abort();
  free->ifindex = ifindex != 0 ? ifindex : state_->next_ifindex++;
  free->netns = netns;
  free->rename(name);
  free->function = function;
  free->mtu = function < 0 ? 1500 : kLinkMtu;
  if (function < 0) return *free;
  free->queue_pair = state_->next_queue_pair++;
  free->guid = state_->functions.at(static_cast<std::size_t>(function)).port_guid;
  return *free;
}

IbLink* InfinibandNode::find_link(int netns, int ifindex) {
  const auto found = std::find_if(state_->links.begin(), state_->links.end(),
                                  [&](const IbLink& link) { return link.ifindex == ifindex && link.netns == netns; });
  return found == state_->links.end() ? nullptr : &*found;
}

IbLink& InfinibandNode::link(int netns, std::string_view name) {
  for (IbLink& link : state_->links)
    if (link.name.data() == name && link.netns == netns) return link;
  std::abort();
}

bool InfinibandNode::is_taken(int netns, std::string_view name) const {
  return std::any_of(state_->links.begin(), state_->links.end(),
                     [&](const IbLink& link) { return link.name.data() == name && link.netns == netns; });
}

void InfinibandNode::note(const std::string& step) {
  const std::size_t length = std::strlen(state_->steps.data());
  if (length + step.size() + 2 > state_->steps.size()) std::abort();
  std::copy(step.begin(), step.end(), state_->steps.begin() + length);
  state_->steps.at(length + step.size()) = '\n';
  ++state_->changes;
}

std::vector<std::string> InfinibandNode::take_steps() {
  std::istringstream text(state_->steps.data());
  std::vector<std::string> steps;
  for (std::string line; std::getline(text, line);)
    steps.push_back(line);
  state_->changes = 0;
  state_->steps = {};
  return steps;
}

std::string InfinibandNode::picture() const {
  std::vector<std::string> lines;
  for (const IbLink& link : state_->links) {
    if (link.ifindex == 0) continue;
    lines.push_back(fmt::format("{}: {}, {}, mtu {}, GUID {:#018x}, pkey {:#06x}", shown(link.netns), link.name.data(),
                                link.up ? "up" : "down", link.mtu, link.guid, link.pkey));
  }
  for (const IbFunction& function : state_->functions) {
    lines.push_back(fmt::format("{}: {}, node GUID {:#018x}, port GUID {:#018x}", shown(function.netns),
                                function.name.data(), function.node_guid, function.port_guid));
  }
  std::sort(lines.begin(), lines.end());
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

// ipoib_remove_one() ends the netdev and its children, ipoib_add_one() makes another one: named ib%d, down, with the
// GUID that the port has then, in the initial namespace or (Linux 6.16, dev_net_set() in ipoib_add_port()) that of the
// RDMA device (drivers/infiniband/ulp/ipoib/ipoib_main.c).
void InfinibandNode::make_netdev_anew(int function, std::string& line) {
  for (IbLink& link : state_->links) {
    if (link.function != function) continue;
    line += fmt::format("; {} ends", link.name.data());
    link = {};
  }
  const int netns =
      state_->netdev_follows ? state_->functions.at(static_cast<std::size_t>(function)).netns : kNodeNetns;
  int number = 0;
  while (is_taken(netns, fmt::format("ib{}", number)))
    ++number;
  add_link(netns, fmt::format("ib{}", number), function);
  line += fmt::format("; ib{} begins ({})", number, shown(netns));
}

// rdma_dev_exit_net() of drivers/infiniband/core/device.c runs first, because it was registered after
// default_device_exit_batch() of net/core/dev.c. The latter moves hardware and netdevs with netns_refund
// (ipoib_link_ops) to the initial namespace, as dev%d if the name is taken.
void InfinibandNode::end_container() {
  for (std::size_t i = 0; i < state_->functions.size(); ++i) {
    if (state_->functions.at(i).netns != kContainerNetns) continue;
    state_->functions.at(i).netns = kNodeNetns;
    std::string line;
    make_netdev_anew(static_cast<int>(i), line);
  }
  for (IbLink& link : state_->links) {
    if (link.netns != kContainerNetns) continue;
    if (is_taken(kNodeNetns, link.name.data())) link.rename(fmt::format("dev{}", link.ifindex));
    link.netns = kNodeNetns;
    link.up = false;
  }
}

// rtnl_fill_ifinfo(). A child has a parent by IFLA_LINK (ipoib_get_iflink()), no get_link_net() and so no
// IFLA_LINK_NETNSID, and no device of the bus: only ipoib_parent_init() calls SET_NETDEV_DEV(). rtnl_fill_vfinfo():
// GUIDs from ipoib_get_vf_guid(), and the MAC of a VF is the physical function's own hardware address
// (ipoib_get_vf_config()).
RequestBuilder InfinibandNode::show_link(const IbLink& link, bool with_vfs) const {
  const HardwareAddress address = address_of(link);
  ifinfomsg header{};
  header.ifi_type = link.function < 0 ? ARPHRD_ETHER : ARPHRD_INFINIBAND;
  header.ifi_index = link.ifindex;
  header.ifi_flags = link.up ? IFF_UP | IFF_RUNNING : 0U;
  RequestBuilder message(RTM_NEWLINK, 0, header);
  message.put(IFLA_IFNAME, std::string_view(link.name.data()));
  message.put(IFLA_MTU, link.mtu);
  message.put(IFLA_GROUP, link.group);
  if (link.parent != 0) message.put(IFLA_LINK, link.parent);
  if (link.function < 0) return message;
  message.put(IFLA_ADDRESS, Bytes(address));
  const auto kind = message.begin(IFLA_LINKINFO);
  message.put(IFLA_INFO_KIND, std::string_view("ipoib"));
  message.end(kind);
  if (link.parent != 0) return message;
  message.put(IFLA_PARENT_DEV_NAME, std::string_view(fmt::format("0000:1a:00.{}", link.function)));
  if (link.function != 0 || !with_vfs) return message;
  message.put(IFLA_NUM_VF, static_cast<std::uint32_t>(state_->functions.size() - 1));
  const auto list = message.begin(IFLA_VFINFO_LIST);
  for (std::uint32_t vf = 0; vf + 1 < state_->functions.size(); ++vf) {
    const IbFunction& function = state_->functions.at(vf + 1);
    ifla_vf_mac mac{vf, {}};
    std::copy(address.begin(), address.end(), mac.mac);
    const auto info = message.begin(IFLA_VF_INFO);
    message.put(IFLA_VF_MAC, mac);
    message.put(IFLA_VF_IB_NODE_GUID, ifla_vf_guid{vf, function.node_guid});
    message.put(IFLA_VF_IB_PORT_GUID, ifla_vf_guid{vf, function.port_guid});
    message.end(info);
  }
  message.end(list);
  return message;
}

// rtnl_getlink(), rtnl_dump_ifinfo()
NodeReply InfinibandNode::get_link(const NodeRequest& request) const {
  const int ifindex = request.message.header<ifinfomsg>()->ifi_index;
  const Attributes wanted = link_attributes(request);
  const bool with_vfs = (value_of<std::uint32_t>(wanted, IFLA_EXT_MASK) & RTEXT_FILTER_VF) != 0;
  NodeReply reply;
  for (const IbLink& link : state_->links) {
    const bool is_meant =
        request.is_dump || (ifindex != 0 ? link.ifindex == ifindex : wanted.text(IFLA_IFNAME) == link.name.data());
    if (link.ifindex == 0 || link.netns != request.socket_netns || !is_meant) continue;
    reply.messages.push_back(show_link(link, with_vfs));
  }
  if (!request.is_dump && reply.messages.empty()) reply.code = ENODEV;
  return reply;
}

// __dev_change_net_namespace() of net/core/dev.c: the kernel uses the requested name only if the old name is taken
// there. The netdev is down afterwards.
int InfinibandNode::move_link(IbLink& link, int netns, const std::string& name, std::string& line) {
  if (link.netns == netns) return 0;
  if (is_taken(netns, link.name.data())) {
    if (name.empty() || is_taken(netns, name)) return EEXIST;
    link.rename(name);
  }
  link.netns = netns;
  link.up = false;
  line += fmt::format(" -> {}", shown(netns));
  return 0;
}

// The part of do_setlink() after the move. ipoib_set_mac() with ipoib_check_lladdr(), which a VF does not have
// (ipoib_netdev_ops_vf).
int InfinibandNode::change_link(IbLink& link, const Attributes& wanted, std::string& line) {
  if (const Bytes address = wanted.get(IFLA_ADDRESS); !address.empty()) {
    const HardwareAddress now = address_of(link);
    if (link.function != 0) return EOPNOTSUPP;
    if (link.up) return EBUSY;
    if (address.size() != now.size() || !std::equal(now.begin(), now.begin() + 12, address.begin())) return EINVAL;
    for (const std::uint8_t byte : address.last(8))
      link.guid = link.guid << 8 | byte;
    line += fmt::format(", GUID {:#018x}", link.guid);
  }
  if (const auto mtu = wanted.u32(IFLA_MTU); mtu && *mtu != link.mtu) {
    link.mtu = *mtu;
    line += fmt::format(", mtu {}", *mtu);
  }
  if (const auto name = wanted.text(IFLA_IFNAME); name && *name != link.name.data()) {
    if (is_taken(link.netns, *name)) return EEXIST;
    link.rename(*name);
    line += fmt::format(" as {}", *name);
  }
  return 0;
}

// do_setvfinfo(), handle_vf_guid(), ipoib_set_vf_guid(): the netdev keeps the hardware address that it has, since
// IPOIB_FLAG_DEV_ADDR_SET makes ipoib_event() (ipoib_verbs.c) pass over IB_EVENT_GID_CHANGE.
void InfinibandNode::set_vf_guids(const Attributes& info, std::string& line) {
  for (const unsigned type : {IFLA_VF_IB_NODE_GUID, IFLA_VF_IB_PORT_GUID}) {
    if (!info.has(type)) continue;
    const auto guid = value_of<ifla_vf_guid>(info, type);
    const bool is_node = type == IFLA_VF_IB_NODE_GUID;
    IbFunction& function = state_->functions.at(guid.vf + std::size_t{1});
    std::uint64_t& now = is_node ? function.node_guid : function.port_guid;
    if (now == guid.guid) continue;
    now = guid.guid;
    line += fmt::format(": VF {} {} GUID {:#018x}", guid.vf, is_node ? "node" : "port", guid.guid);
  }
}

// do_setlink(): a message is no transaction. Changes before a refusal stay.
NodeReply InfinibandNode::set_link(const NodeRequest& request) {
  const auto header = *request.message.header<ifinfomsg>();
  const Attributes wanted = link_attributes(request);
  IbLink* link = find_link(request.socket_netns, header.ifi_index);
  if (link == nullptr) return {ENODEV};
  const std::string start = fmt::format("{}: {}", shown(link->netns), link->name.data());
  std::string line = start;
  int code = 0;
  if (wanted.has(IFLA_NET_NS_FD)) {
    const int netns = netns_of(value_of<int>(wanted, IFLA_NET_NS_FD));
    code = move_link(*link, netns, wanted.text(IFLA_IFNAME).value_or(""), line);
  }
  if (code == 0) code = change_link(*link, wanted, line);
  const bool up = (header.ifi_flags & IFF_UP) != 0;
  if (code == 0 && (header.ifi_change & IFF_UP) != 0 && up != link->up) {
    link->up = up;
    line += up ? ", up" : ", down";
  }
  if (code == 0) set_vf_guids(Attributes(Attributes(wanted.get(IFLA_VFINFO_LIST)).get(IFLA_VF_INFO)), line);
  if (line != start) note(line);
  return {code};
}

// rtnl_newlink(), ipoib_new_child_link() (ipoib_netlink.c), __ipoib_vlan_add() (ipoib_vlan.c), ipoib_child_init(). The
// MTU of the request is overwritten in ipoib_ndo_init(), which also sets the full-member bit of the pkey.
NodeReply InfinibandNode::new_link(const NodeRequest& request) {
  const Attributes wanted = link_attributes(request);
  const Attributes info(wanted.get(IFLA_LINKINFO));
  const Attributes data(info.get(IFLA_INFO_DATA));
  const std::string name = wanted.text(IFLA_IFNAME).value_or("");
  if (is_taken(request.socket_netns, name)) return {EEXIST};
  if (info.text(IFLA_INFO_KIND) != "ipoib" || !state_->has_ipoib_module) return {EOPNOTSUPP};
  const IbLink* parent = find_link(request.socket_netns, value_of<int>(wanted, IFLA_LINK));
  if (parent == nullptr) return {ENODEV};
  const int ifindex = request.message.header<ifinfomsg>()->ifi_index;
  IbLink& child = add_link(request.socket_netns, name, parent->function, ifindex);
  child.parent = parent->ifindex;
  child.pkey = value_of<std::uint16_t>(data, IFLA_IPOIB_PKEY) | 0x8000;
  child.guid = parent->guid;
  child.group = wanted.u32(IFLA_GROUP).value_or(0);
  note(
      fmt::format("{}: ipoib child {} of {}, pkey {:#06x}", shown(child.netns), name, parent->name.data(), child.pkey));
  return {};
}

NodeReply InfinibandNode::answer_route(const NodeRequest& request) {
  switch (request.message.type) {
    case RTM_GETLINK:
      return get_link(request);
    case RTM_SETLINK:
      return set_link(request);
    case RTM_NEWLINK:
      return new_link(request);
    case RTM_DELLINK: {  // ipoib_del_child_link(): only children
      IbLink* link = find_link(request.socket_netns, request.message.header<ifinfomsg>()->ifi_index);
      if (link == nullptr || link->parent == 0) return {link == nullptr ? ENODEV : EOPNOTSUPP};
      note(fmt::format("{}: {} ends", shown(link->netns), link->name.data()));
      *link = {};
      return {};
    }
    default:
      // Nothing else is configured: addresses, routes, rules, neighbours.
      return {request.is_dump ? 0 : EOPNOTSUPP};
  }
}

// nldev_set_doit(), ib_device_set_netns_put(), rdma_dev_change_netns() of drivers/infiniband/core
NodeReply InfinibandNode::set_rdma(const NodeRequest& request) {
  const Attributes wanted = request.message.attributes(0);
  const auto index = wanted.u32(RDMA_NLDEV_ATTR_DEV_INDEX).value();
  const auto found = std::find_if(state_->functions.begin(), state_->functions.end(),
                                  [&](const IbFunction& function) { return function.index == index; });
  if (found == state_->functions.end()) return {ENODEV};
  IbFunction& function = *found;
  const auto number = static_cast<std::size_t>(found - state_->functions.begin());
  // ib_device_get_by_index() finds devices of the socket's namespace.
  if (!state_->is_shared && function.netns != request.socket_netns) return {ENODEV};
  if (const auto name = wanted.text(RDMA_NLDEV_ATTR_DEV_NAME)) {
    const std::string before = function.name.data();
    const int code = rename_rdma(number, *name);
    if (code == 0) note(fmt::format("{}: {} is {}", shown(function.netns), before, *name));
    return {code};
  }
  const int target = netns_of(value_of<int>(wanted, RDMA_NLDEV_NET_NS_FD));
  if (state_->is_shared) return {EOPNOTSUPP};
  if (state_->rdma_move_refusal != 0) return {state_->rdma_move_refusal};
  // The kernel compares with the namespace of the process, not of its socket.
  if (function.netns != request.process_netns) return {ENODEV};
  std::string line = fmt::format("{}: {} -> {}", shown(function.netns), function.name.data(), shown(target));
  function.netns = target;
  make_netdev_anew(static_cast<int>(number), line);
  note(line);
  return {};
}

// nldev_dellink(): the device itself stays in the model, because the tests only check the request.
NodeReply InfinibandNode::delete_rdma(const NodeRequest& request) {
  const auto index = request.message.attributes(0).u32(RDMA_NLDEV_ATTR_DEV_INDEX).value();
  for (const IbFunction& function : state_->functions)
    if (function.index == index) note(fmt::format("{}: {} is deleted", shown(function.netns), function.name.data()));
  return {};
}

// nldev_get_dumpit(), nldev_sys_get_doit()
NodeReply InfinibandNode::answer_rdma(const NodeRequest& request) {
  const auto type = request.message.type;
  if (type == rdma_type(RDMA_NLDEV_CMD_SET)) return set_rdma(request);
  if (type == rdma_type(RDMA_NLDEV_CMD_DELLINK)) return delete_rdma(request);
  NodeReply reply;
  if (type == rdma_type(RDMA_NLDEV_CMD_SYS_GET)) {
    RequestBuilder mode(type, 0, Bytes());
    mode.put(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, static_cast<std::uint8_t>(state_->is_shared));
    reply.messages.push_back(std::move(mode));
  }
  for (const IbFunction& function : state_->functions) {
    if (!request.is_dump || (!state_->is_shared && function.netns != request.socket_netns)) continue;
    RequestBuilder device(type, 0, Bytes());
    device.put(RDMA_NLDEV_ATTR_DEV_INDEX, function.index);
    device.put(RDMA_NLDEV_ATTR_DEV_NAME, std::string_view(function.name.data()));
    device.put(RDMA_NLDEV_ATTR_NODE_GUID, function.node_guid);
    reply.messages.push_back(std::move(device));
  }
  return reply;
}

NodeReply InfinibandNode::answer(const NodeRequest& request) {
  const IbState before = *state_;
  NodeReply reply = request.protocol == NETLINK_RDMA ? answer_rdma(request) : answer_route(request);
  if (state_->most_changes < 0 || state_->changes <= state_->most_changes) return reply;
  *state_ = before;
  return {EIO};
}

// The program's netlink sockets are connected to the model: the program's calls of socket(2), setns(2), getsockopt(2),
// send(2), recv(2) and recvfrom(2) end here (linker option --wrap).
namespace {

struct ScriptedSocket {
  int protocol = 0;
  int netns = 0;
  std::vector<std::uint8_t> answer = {};  // all messages that answer the last request
};

// The sockets of this process; a forked child has a copy.
int process_netns = 0;
std::map<int, ScriptedSocket> sockets;
std::map<int, int> netns_of_fd;

int open_scripted(int protocol, int netns) {
  const int fd = __real_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd >= 0) sockets[fd] = {protocol, netns};
  return fd;
}

// Returns the socket of this descriptor; nullptr: it is another file.
ScriptedSocket* scripted(int fd) {
  const auto found = sockets.find(fd);
  return found == sockets.end() ? nullptr : &found->second;
}

// netlink_rcv_skb(), netlink_dump(), netlink_ack() of net/netlink/af_netlink.c, for a socket with NETLINK_CAP_ACK
// (Linux 6.12): a dump's first error is that of its start.
void serve(ScriptedSocket& socket, Bytes bytes) {
  const nlmsghdr header = *base::netlink::value_of<nlmsghdr>(bytes);
  const Message request = *next_message(bytes);
  const bool is_dump = (request.flags & NLM_F_DUMP) == NLM_F_DUMP;
  NodeReply reply = InfinibandNode::current->answer({socket.protocol, socket.netns, process_netns, is_dump, request});
  if (is_dump && reply.code == 0) {
    reply.messages.push_back(RequestBuilder(NLMSG_DONE, NLM_F_MULTI, int{0}));
  } else {
    reply.messages.push_back(RequestBuilder(NLMSG_ERROR, NLM_F_CAPPED, nlmsgerr{-reply.code, header}));
  }
  for (const RequestBuilder& message : reply.messages) {
    message.header()->nlmsg_seq = request.sequence;
    socket.answer.insert(socket.answer.end(), message.bytes().begin(), message.bytes().end());
  }
}

}  // namespace

InfinibandNode::~InfinibandNode() {
  ::munmap(state_, sizeof(IbState));
  current = nullptr;
  sockets.clear();
  netns_of_fd.clear();
}

base::UniqueFd InfinibandNode::open_socket(int protocol, int netns) {
  return base::UniqueFd(open_scripted(protocol, netns));
}

base::UniqueFd InfinibandNode::open_netns(int netns) {
  base::UniqueFd fd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  netns_of_fd[fd.get()] = netns;
  return fd;
}

int InfinibandNode::netns_of(int fd) {
  return netns_of_fd.at(fd);
}

}  // namespace test_support

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
int __wrap_socket(int domain, int type, int protocol) {
  if (domain != AF_NETLINK) return __real_socket(domain, type, protocol);
  return test_support::open_scripted(protocol, test_support::process_netns);
}

// Only a child that the program forked joins another namespace.
int __wrap_setns(int fd, int) {
  test_support::process_netns = test_support::InfinibandNode::netns_of(fd);
  return 0;
}

int __wrap_getsockopt(int fd, int level, int option, void* value, socklen_t* size) {
  const auto* const socket = test_support::scripted(fd);
  if (socket == nullptr || option != SO_PROTOCOL) return __real_getsockopt(fd, level, option, value, size);
  std::memcpy(value, &socket->protocol, sizeof socket->protocol);
  return 0;
}

ssize_t __wrap_send(int fd, const void* bytes, std::size_t size, int flags) {
  auto* const socket = test_support::scripted(fd);
  if (socket == nullptr) return __real_send(fd, bytes, size, flags);
  test_support::serve(*socket, {static_cast<const std::uint8_t*>(bytes), size});
  return static_cast<ssize_t>(size);
}

// Returns the length of the answer (MSG_PEEK | MSG_TRUNC).
ssize_t __wrap_recv(int fd, void* bytes, std::size_t size, int flags) {
  const auto* const socket = test_support::scripted(fd);
  if (socket == nullptr) return __real_recv(fd, bytes, size, flags);
  return static_cast<ssize_t>(socket->answer.size());
}

ssize_t __wrap_recvfrom(int fd, void* bytes, std::size_t size, int flags, sockaddr* sender, socklen_t* length) {
  auto* const socket = test_support::scripted(fd);
  if (socket == nullptr) return __real_recvfrom(fd, bytes, size, flags, sender, length);
  *reinterpret_cast<sockaddr_nl*>(sender) = {};  // port 0: the kernel
  const auto answer = std::exchange(socket->answer, {});
  std::memcpy(bytes, answer.data(), answer.size());
  return static_cast<ssize_t>(answer.size());
}
// NOLINTEND(bugprone-reserved-identifier)
}
