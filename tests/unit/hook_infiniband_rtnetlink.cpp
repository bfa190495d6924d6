// What rtnetlink makes of a request: net/core/rtnetlink.c, Linux 6.12, where nothing else is said.
#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "unit/hook_infiniband_node.hpp"

namespace test_support {
namespace {

using HardwareAddress = std::array<std::uint8_t, 20>;  // INFINIBAND_ALEN, include/linux/if_infiniband.h
constexpr unsigned kMostMtu = 4092;
constexpr std::uint64_t kLinkLocal = 0xfe80000000000000;  // the subnet prefix of a GID

// A byte of flags, three of the queue pair's number, a GID.
HardwareAddress address_of(const IbLink& link) {
  HardwareAddress address{};
  for (unsigned i = 0; i < 3; ++i)
    address[3 - i] = static_cast<std::uint8_t>(link.queue_pair >> (8 * i));
  for (unsigned i = 0; i < 8; ++i) {
    address[11 - i] = static_cast<std::uint8_t>(kLinkLocal >> (8 * i));
    address[19 - i] = static_cast<std::uint8_t>(link.guid >> (8 * i));
  }
  return address;
}

ByteView attributes_of(const ScriptedRequest& request) {
  constexpr std::size_t kHeader = NLMSG_ALIGN(sizeof(ifinfomsg));
  return request.payload.size() < kHeader ? ByteView() : request.payload.subspan(kHeader);
}

// rtnl_fill_vfinfo(): GUIDs from ipoib_get_vf_guid(), the MAC is the physical function's own hardware address
// (ipoib_get_vf_config()), and what InfiniBand does not have is zero.
AttributeWriter vf_list(const IbState& state, const IbLink& pf) {
  AttributeWriter list;
  for (std::size_t i = 1; i < state.functions.size(); ++i) {
    const auto vf = static_cast<std::uint32_t>(i - 1);
    ifla_vf_mac mac{vf, {}};
    const HardwareAddress address = address_of(pf);
    std::copy(address.begin(), address.end(), mac.mac);
    AttributeWriter info;
    info.put(IFLA_VF_MAC, mac).put(IFLA_VF_VLAN, ifla_vf_vlan{vf, 0, 0});
    info.put(IFLA_VF_LINK_STATE, ifla_vf_link_state{vf, IFLA_VF_LINK_STATE_AUTO});
    info.put(IFLA_VF_IB_NODE_GUID, ifla_vf_guid{vf, state.functions[i].node_guid});
    info.put(IFLA_VF_IB_PORT_GUID, ifla_vf_guid{vf, state.functions[i].port_guid});
    list.put(IFLA_VF_INFO, info);
  }
  return list;
}

}  // namespace

// rtnl_fill_ifinfo(). A child has a parent by IFLA_LINK (ipoib_get_iflink()), no get_link_net() and so no
// IFLA_LINK_NETNSID, and no device of the bus: only ipoib_parent_init() says SET_NETDEV_DEV().
Buffer InfinibandNode::show_link(const IbLink& link, bool with_vfs) const {
  ifinfomsg header{};
  header.ifi_type = link.function < 0 ? ARPHRD_ETHER : ARPHRD_INFINIBAND;
  header.ifi_index = link.ifindex;
  header.ifi_flags = link.up ? IFF_UP | IFF_RUNNING : 0U;
  AttributeWriter message(header);
  message.put(IFLA_IFNAME, std::string_view(link.name.data())).put(IFLA_MTU, link.mtu);
  message.put(IFLA_TXQLEN, link.queue_length).put(IFLA_GROUP, link.group);
  if (link.parent != 0) message.put(IFLA_LINK, link.parent);
  if (link.function < 0) return message.buffer();
  message.put_bytes(IFLA_ADDRESS, address_of(link));
  AttributeWriter data;
  data.put(IFLA_IPOIB_PKEY, link.pkey).put(IFLA_IPOIB_MODE, std::uint16_t{IPOIB_MODE_DATAGRAM});
  message.put(IFLA_LINKINFO,
              AttributeWriter().put(IFLA_INFO_KIND, std::string_view("ipoib")).put(IFLA_INFO_DATA, data));
  if (link.parent != 0) return message.buffer();
  const IbFunction& function = state_->functions.at(static_cast<std::size_t>(link.function));
  message.put(IFLA_PARENT_DEV_NAME, std::string_view(function.pci.data()));
  message.put(IFLA_PARENT_DEV_BUS_NAME, std::string_view("pci"));
  if (link.function != 0) return message.buffer();
  message.put(IFLA_NUM_VF, static_cast<std::uint32_t>(state_->functions.size() - 1));
  if (with_vfs) message.put(IFLA_VFINFO_LIST, vf_list(*state_, link));
  return message.buffer();
}

// rtnl_getlink(), rtnl_dump_ifinfo()
ScriptedReply InfinibandNode::get_link(const ScriptedRequest& request) const {
  const auto header = value_at<ifinfomsg>(request.payload);
  const std::string name = text_of(find_attribute(attributes_of(request), IFLA_IFNAME));
  const auto mask = value_at<std::uint32_t>(find_attribute(attributes_of(request), IFLA_EXT_MASK));
  ScriptedReply reply;
  reply.type = RTM_NEWLINK;
  for (const IbLink& link : state_->links) {
    const bool is_meant =
        request.is_dump || (header.ifi_index != 0 ? link.ifindex == header.ifi_index : name == link.name.data());
    if (link.ifindex == 0 || link.netns != request.socket_netns || !is_meant) continue;
    reply.messages.push_back(show_link(link, (mask & RTEXT_FILTER_VF) != 0));
  }
  return request.is_dump || !reply.messages.empty() ? reply : refusal(ENODEV);
}

// __dev_change_net_namespace() of net/core/dev.c: the name gives way to the wanted one only if it is taken there; what
// moves is down then.
int InfinibandNode::move_link(IbLink& link, int netns, const std::string& name, std::string& line) {
  if (netns < 0) return EINVAL;
  if (link.netns == netns) return 0;
  if (is_taken(netns, link.name.data())) {
    if (name.empty() || is_taken(netns, name)) return EEXIST;
    link.rename(name);
  }
  if (find_link(netns, link.ifindex) != nullptr) link.ifindex = state_->next_ifindex++;
  link.netns = netns;
  link.up = false;
  line += fmt::format(" -> {}", shown(netns));
  return 0;
}

// do_setlink(), what comes after the move. ipoib_set_mac() with ipoib_check_lladdr(), which a VF lacks
// (ipoib_netdev_ops_vf), and ipoib_change_mtu().
int InfinibandNode::change_link(IbLink& link, ByteView attributes, std::string& line) const {
  const ByteView address = find_attribute(attributes, IFLA_ADDRESS);
  if (address.data() != nullptr) {
    const HardwareAddress now = address_of(link);
    if (link.function != 0) return EOPNOTSUPP;
    if (link.up) return EBUSY;
    if (address.size() != now.size() || !std::equal(now.begin(), now.begin() + 12, address.begin())) return EINVAL;
    link.guid = 0;
    for (const std::uint8_t byte : address.last(8))
      link.guid = link.guid << 8 | byte;
    line += fmt::format(", GUID {:#018x}", link.guid);
  }
  if (const auto mtu = value_at<std::uint32_t>(find_attribute(attributes, IFLA_MTU)); mtu != 0 && mtu != link.mtu) {
    if (mtu > kMostMtu) return EINVAL;
    link.mtu = mtu;
    line += fmt::format(", mtu {}", mtu);
  }
  const std::string name = text_of(find_attribute(attributes, IFLA_IFNAME));
  if (!name.empty() && name != link.name.data()) {
    if (is_taken(link.netns, name)) return EEXIST;
    link.rename(name);
    line += fmt::format(" as {}", name);
  }
  return 0;
}

// do_setvfinfo(), handle_vf_guid(), ipoib_set_vf_guid(): the netdev keeps the hardware address that it has, since
// IPOIB_FLAG_DEV_ADDR_SET makes ipoib_event() (ipoib_verbs.c) pass over IB_EVENT_GID_CHANGE.
int InfinibandNode::set_vf_guids(const IbLink& link, ByteView list, std::string& line) {
  if (link.function != 0 || link.parent != 0) return EOPNOTSUPP;
  const ByteView info = find_attribute(list, IFLA_VF_INFO);
  for (const unsigned type : {IFLA_VF_IB_NODE_GUID, IFLA_VF_IB_PORT_GUID}) {
    const ByteView bytes = find_attribute(info, type);
    if (bytes.data() == nullptr) continue;
    const auto guid = value_at<ifla_vf_guid>(bytes);
    if (bytes.size() != sizeof guid || guid.vf + std::size_t{1} >= state_->functions.size()) return EINVAL;
    IbFunction& function = state_->functions.at(guid.vf + std::size_t{1});
    std::uint64_t& now = type == IFLA_VF_IB_NODE_GUID ? function.node_guid : function.port_guid;
    if (now == guid.guid) continue;
    now = guid.guid;
    line += fmt::format(": VF {} {} GUID {:#018x}", guid.vf, type == IFLA_VF_IB_NODE_GUID ? "node" : "port", guid.guid);
  }
  return 0;
}

// do_setlink(): a message is no transaction, what was done before a refusal stays.
ScriptedReply InfinibandNode::set_link(const ScriptedRequest& request) {
  const auto header = value_at<ifinfomsg>(request.payload);
  const ByteView attributes = attributes_of(request);
  IbLink* link = find_link(request.socket_netns, header.ifi_index);
  if (link == nullptr) return refusal(ENODEV);
  const std::string start = fmt::format("{}: {}", shown(link->netns), link->name.data());
  std::string line = start;
  const ByteView netns = find_attribute(attributes, IFLA_NET_NS_FD);
  const std::string name = text_of(find_attribute(attributes, IFLA_IFNAME));
  int code = netns.data() == nullptr ? 0 : move_link(*link, netns_of(value_at<int>(netns)), name, line);
  if (code == 0) code = change_link(*link, attributes, line);
  const bool up = (header.ifi_flags & IFF_UP) != 0;
  if (code == 0 && (header.ifi_change & IFF_UP) != 0 && up != link->up) {
    link->up = up;
    line += up ? ", up" : ", down";
  }
  const ByteView vfs = find_attribute(attributes, IFLA_VFINFO_LIST);
  if (code == 0 && vfs.data() != nullptr) code = set_vf_guids(*link, vfs, line);
  if (line != start) note(line);
  return refusal(code);
}

// rtnl_newlink(), ipoib_new_child_link() (ipoib_netlink.c), __ipoib_vlan_add() (ipoib_vlan.c), ipoib_child_init(). The
// MTU of the request is lost in ipoib_ndo_init(), which also makes the pkey a full member's.
ScriptedReply InfinibandNode::new_link(const ScriptedRequest& request) {
  const ByteView attributes = attributes_of(request);
  const ByteView info = find_attribute(attributes, IFLA_LINKINFO);
  const std::string name = text_of(find_attribute(attributes, IFLA_IFNAME));
  if (find_attribute(attributes, IFLA_NET_NS_FD).data() != nullptr) std::abort();  // not restated: nobody asks for it
  if (is_taken(request.socket_netns, name)) return refusal(EEXIST);
  if (text_of(find_attribute(info, IFLA_INFO_KIND)) != "ipoib" || !state_->has_ipoib_module) {
    return refusal(EOPNOTSUPP, "Unknown device type");
  }
  const IbLink* parent = find_link(request.socket_netns, value_at<int>(find_attribute(attributes, IFLA_LINK)));
  if (parent == nullptr || parent->function < 0) return refusal(ENODEV);
  if (parent->parent != 0) return refusal(EINVAL);
  const ByteView wanted = find_attribute(find_attribute(info, IFLA_INFO_DATA), IFLA_IPOIB_PKEY);
  const std::uint16_t pkey = wanted.data() == nullptr ? parent->pkey : value_at<std::uint16_t>(wanted);
  if ((pkey & 0x7fff) == 0) return refusal(EINVAL);
  const int ifindex = value_at<ifinfomsg>(request.payload).ifi_index;
  IbLink& child = add_link(request.socket_netns, name, parent->function, ifindex);
  child.parent = parent->ifindex;
  child.pkey = pkey | 0x8000;
  child.guid = parent->guid;
  child.group = value_at<std::uint32_t>(find_attribute(attributes, IFLA_GROUP));
  note(
      fmt::format("{}: ipoib child {} of {}, pkey {:#06x}", shown(child.netns), name, parent->name.data(), child.pkey));
  return {};
}

// rtnl_dellink(), rtnl_group_dellink(), ipoib_del_child_link(): only children.
ScriptedReply InfinibandNode::delete_link(const ScriptedRequest& request) {
  IbLink* link = find_link(request.socket_netns, value_at<ifinfomsg>(request.payload).ifi_index);
  if (link == nullptr) return refusal(ENODEV);
  if (link->parent == 0) return refusal(EOPNOTSUPP);
  note(fmt::format("{}: {} ends", shown(link->netns), link->name.data()));
  *link = {};
  return {};
}

ScriptedReply InfinibandNode::answer_route(const ScriptedRequest& request) {
  switch (request.type) {
    case RTM_GETLINK:
      return get_link(request);
    case RTM_SETLINK:
      return set_link(request);
    case RTM_NEWLINK:
      return new_link(request);
    case RTM_DELLINK:
      return delete_link(request);
    default:
      // Nothing else is configured: addresses, routes, rules, neighbours.
      return request.is_dump ? ScriptedReply() : refusal(EOPNOTSUPP);
  }
}

}  // namespace test_support
