#include "hook/rails/netlink/vf.hpp"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string_view>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "fabric/rdma_sysfs.hpp"
#include "hook/rails/netlink/links.hpp"

namespace hook {
namespace {

using base::netlink::Attributes;
using base::netlink::Bytes;
using base::netlink::Message;
using base::netlink::value_of;

RequestBuilder vf_request(int pf_ifindex, const std::function<void(RequestBuilder&)>& put_attribute) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(pf_ifindex));
  const auto list = request.begin(IFLA_VFINFO_LIST);
  const auto info = request.begin(IFLA_VF_INFO);
  put_attribute(request);
  request.end(info);
  request.end(list);
  return request;
}

VfRequest vf_request(const char* what, int pf_ifindex, unsigned type, const auto& value) {
  return {what, vf_request(pf_ifindex, [&](RequestBuilder& request) { request.put(type, value); })};
}

// Makes the message that sets VLAN, QoS and protocol. IFLA_VF_VLAN implies 802.1Q; other protocols need
// IFLA_VF_VLAN_LIST (Linux 4.9).
VfRequest vlan_request(int pf_ifindex, unsigned vf, const VfAttributes& attributes) {
  const unsigned vlan = attributes.vlan.value_or(0);
  const unsigned qos = attributes.qos.value_or(0);
  const std::uint16_t protocol = attributes.vlan_protocol.value_or(ETH_P_8021Q);
  if (protocol == ETH_P_8021Q) return vf_request("VLAN", pf_ifindex, IFLA_VF_VLAN, ifla_vf_vlan{vf, vlan, qos});
  return {"VLAN", vf_request(pf_ifindex, [&](RequestBuilder& request) {
            const auto list = request.begin(IFLA_VF_VLAN_LIST);
            request.put(IFLA_VF_VLAN_INFO, ifla_vf_vlan_info{vf, vlan, qos, htons(protocol)});
            request.end(list);
          })};
}

bool has_vlan(const VfAttributes& attributes) {
  return attributes.vlan || attributes.qos || attributes.vlan_protocol;
}

bool has_rate(const VfAttributes& attributes) {
  return attributes.min_tx_rate || attributes.max_tx_rate;
}

// Returns an on/off attribute; nullopt if the driver does not report it (-1).
std::optional<bool> switch_of(const Attributes& attributes, unsigned type) {
  const auto value = value_of<ifla_vf_spoofchk>(attributes.get(type));  // ifla_vf_trust has the same layout
  if (!value || value->setting > 1) return std::nullopt;
  return value->setting == 1;
}

void read_ethernet(const Attributes& info, VfAttributes& vf) {
  if (const auto mac = value_of<ifla_vf_mac>(info.get(IFLA_VF_MAC))) {
    vf.mac.emplace();
    std::copy_n(mac->mac, vf.mac->size(), vf.mac->begin());
  }
  const Attributes vlans(info.get(IFLA_VF_VLAN_LIST));
  // Linux 4.9 and later report IFLA_VF_VLAN_INFO. Older kernels report only IFLA_VF_VLAN.
  if (const auto entry = value_of<ifla_vf_vlan_info>(vlans.get(IFLA_VF_VLAN_INFO))) {
    vf.vlan = entry->vlan;
    vf.qos = entry->qos;
    vf.vlan_protocol = ntohs(entry->vlan_proto);
  } else if (const auto vlan = value_of<ifla_vf_vlan>(info.get(IFLA_VF_VLAN))) {
    vf.vlan = vlan->vlan;
    vf.qos = vlan->qos;
  }
  vf.spoofchk = switch_of(info, IFLA_VF_SPOOFCHK);
  vf.trust = switch_of(info, IFLA_VF_TRUST);
  if (const auto rate = value_of<ifla_vf_rate>(info.get(IFLA_VF_RATE))) {
    vf.min_tx_rate = rate->min_tx_rate;
    vf.max_tx_rate = rate->max_tx_rate;
  }
}

VfAttributes parse_vf(const Attributes& info, bool is_infiniband) {
  VfAttributes vf;
  // For an InfiniBand function the kernel reports zeroes in the attributes of Ethernet, so they are not read.
  if (!is_infiniband) read_ethernet(info, vf);
  if (const auto state = value_of<ifla_vf_link_state>(info.get(IFLA_VF_LINK_STATE))) vf.link_state = state->link_state;
  if (const auto guid = value_of<ifla_vf_guid>(info.get(IFLA_VF_IB_NODE_GUID))) vf.node_guid = guid->guid;
  if (const auto guid = value_of<ifla_vf_guid>(info.get(IFLA_VF_IB_PORT_GUID))) vf.port_guid = guid->guid;
  return vf;
}

// Adds the present values of attributes that the kernel takes only together: VLAN, QoS and protocol; the two rates.
Result<VfAttributes> complete(Netlink& route, int pf_ifindex, unsigned vf, VfAttributes wanted) {
  const bool vlan = has_vlan(wanted) && !(wanted.vlan && wanted.qos && wanted.vlan_protocol);
  const bool rate = has_rate(wanted) && !(wanted.min_tx_rate && wanted.max_tx_rate);
  if (!vlan && !rate) return wanted;
  const VfAttributes now = TRY(read_vf(route, pf_ifindex, vf));
  // If the driver does not report a value, 0 is sent, which means none.
  const auto fill = [](auto& into, const auto& from) {
    if (!into) into = from.value_or(0);
  };
  if (vlan) {
    fill(wanted.vlan, now.vlan);
    fill(wanted.qos, now.qos);
    if (!wanted.vlan_protocol) wanted.vlan_protocol = now.vlan_protocol;
  }
  if (rate) {
    fill(wanted.min_tx_rate, now.min_tx_rate);
    fill(wanted.max_tx_rate, now.max_tx_rate);
  }
  return wanted;
}

}  // namespace

std::optional<VfSlot> find_vf_slot(const std::string& sys, const std::string& vf_address,
                                   const std::string& pf_address) {
  const auto function = Directory::open(sys + "/bus/pci/devices/" + pf_address);
  const auto netdevs = function ? function->open_at("net") : std::nullopt;
  if (!netdevs) return std::nullopt;
  std::optional<unsigned> vf;
  base::each_name(function->fd(), [&](std::string_view name) {
    constexpr std::string_view kPrefix = "virtfn";
    const auto number =
        name.starts_with(kPrefix) ? base::parse_number<unsigned>(name.substr(kPrefix.size())) : std::nullopt;
    if (number && function->read_link_name(std::string(name).c_str()) == vf_address) vf = number;
    return !vf;
  });
  std::string pf;
  base::each_name(netdevs->fd(), [&](std::string_view name) {
    // In switchdev mode the physical function also has one representor for each VF, which is a netdev too. The text of
    // phys_port_name identifies representors.
    const auto port = netdevs->read_text(fmt::format("{}/phys_port_name", name).c_str());
    if (!fabric::rdma_sysfs::is_representor(port.value_or(""))) pf = name;
    return pf.empty();
  });
  return vf && !pf.empty() ? std::optional(VfSlot{std::move(pf), *vf}) : std::nullopt;
}

std::map<unsigned, VfAttributes> vf_attributes(const Message& link) {
  std::map<unsigned, VfAttributes> vfs;
  const auto* header = link.header<ifinfomsg>();
  if (link.type != RTM_NEWLINK || header == nullptr) return vfs;
  const Attributes attributes = link.attributes(sizeof *header);
  // Attributes::get() returns only one attribute of a type, but the list repeats the type IFLA_VF_INFO.
  each_attribute(attributes.get(IFLA_VFINFO_LIST), [&](unsigned, Bytes entry) {
    const Attributes info(entry);
    // IFLA_VF_MAC has the number of the VF, and the kernel reports this attribute for every VF.
    const auto mac = value_of<ifla_vf_mac>(info.get(IFLA_VF_MAC));
    if (mac) vfs[mac->vf] = parse_vf(info, header->ifi_type == ARPHRD_INFINIBAND);
  });
  return vfs;
}

VfAttributes changed_vf(const VfAttributes& before, const VfAttributes& now) {
  VfAttributes changed;
  if (before.mac != now.mac) changed.mac = before.mac;
  each_vf_attribute([&](const char*, auto attribute) {
    if (before.*attribute != now.*attribute) changed.*attribute = before.*attribute;
  });
  return changed;
}

Result<std::map<unsigned, VfAttributes>> read_vfs(Netlink& route, int pf_ifindex) {
  RequestBuilder request(RTM_GETLINK, 0, link_header(pf_ifindex));
  request.put(IFLA_EXT_MASK, std::uint32_t{RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS});
  std::map<unsigned, VfAttributes> vfs;
  TRY_VOID(route.read(request, fmt::format("read the VFs of netdev {}", pf_ifindex),
                      [&](const Message& answer) { vfs = vf_attributes(answer); }));
  return vfs;
}

Result<VfAttributes> read_vf(Netlink& route, int pf_ifindex, unsigned vf) {
  const auto vfs = TRY(read_vfs(route, pf_ifindex));
  if (const auto found = vfs.find(vf); found != vfs.end()) return found->second;
  return Error{fmt::format("cannot read VF {} of {}: it has no such VF", vf, shown_link(route, pf_ifindex)), ENODEV,
               "check the number of VFs in its sysfs attribute `sriov_numvfs`"};
}

std::vector<VfRequest> vf_requests(int pf_ifindex, unsigned vf, const VfAttributes& attributes) {
  std::vector<VfRequest> requests;
  const auto add = [&](const char* what, unsigned type, const auto& value) {
    requests.push_back(vf_request(what, pf_ifindex, type, value));
  };
  if (attributes.mac) {
    ifla_vf_mac mac{vf, {}};
    std::ranges::copy(*attributes.mac, mac.mac);
    add("MAC", IFLA_VF_MAC, mac);
  }
  if (has_vlan(attributes)) requests.push_back(vlan_request(pf_ifindex, vf, attributes));
  if (has_rate(attributes))
    add("rate", IFLA_VF_RATE, ifla_vf_rate{vf, attributes.min_tx_rate.value_or(0), attributes.max_tx_rate.value_or(0)});
  if (attributes.spoofchk) add("spoofchk", IFLA_VF_SPOOFCHK, ifla_vf_spoofchk{vf, *attributes.spoofchk ? 1U : 0U});
  if (attributes.trust) add("trust", IFLA_VF_TRUST, ifla_vf_trust{vf, *attributes.trust ? 1U : 0U});
  if (attributes.node_guid) add("node GUID", IFLA_VF_IB_NODE_GUID, ifla_vf_guid{vf, *attributes.node_guid});
  if (attributes.port_guid) add("port GUID", IFLA_VF_IB_PORT_GUID, ifla_vf_guid{vf, *attributes.port_guid});
  if (attributes.link_state) add("link state", IFLA_VF_LINK_STATE, ifla_vf_link_state{vf, *attributes.link_state});
  return requests;
}

Result<void> change_vf(Netlink& route, int pf_ifindex, unsigned vf, const VfAttributes& attributes) {
  const VfAttributes wanted = TRY(complete(route, pf_ifindex, vf, attributes));
  for (const VfRequest& request : vf_requests(pf_ifindex, vf, wanted)) {
    TRY_VOID(change_named(route, request.message, pf_ifindex, fmt::format("set {} of VF {} of", request.what, vf)));
  }
  return {};
}

}  // namespace hook
