// Netdevs, addresses and routes of this network namespace by rtnetlink, and what only RDMA netlink knows: which netdev
// is a port's own and in this netns, and whether RDMA devices are shared between network namespaces
// (include/uapi/rdma/rdma_netlink.h, kernel 6.12).
//
// The little of netlink that reading needs is here too: a request, and the messages that answer it.
// Not libnl-3, which the programs on the node use: linked statically it brings getaddrinfo() and with it NSS, 400 kB
// that rdma-init would carry into every image, and a constructor that reads /proc/net/psched at each start.
#pragma once

#include <linux/netlink.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/inventory.hpp"
#include "fabric/rdma_sysfs.hpp"
#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"

namespace fabric::netlink {

using Bytes = std::span<const std::uint8_t>;

// nullopt: too few bytes.
template <typename T>
std::optional<T> value_of(Bytes bytes) {
  T value{};
  if (bytes.size() < sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// The errno of the code at the start of NLMSG_ERROR and NLMSG_DONE; 0: success. The kernel's least code is -MAX_ERRNO
// (include/linux/err.h); below it is garbage (EPROTO), and INT_MIN has no negation.
constexpr int errno_of(int code) {
  constexpr int kMaxErrno = 4095;
  if (code >= 0) return 0;
  return code >= -kMaxErrno ? -code : EPROTO;
}

// The attributes of a message, by type. Malformed ones end the walk: what was read before stays.
class Attributes {
 public:
  explicit Attributes(Bytes bytes);

  // Empty when the attribute is missing.
  Bytes get(unsigned type) const;
  bool has(unsigned type) const { return get(type).data() != nullptr; }
  // The host-order integer of an attribute of at least that size.
  std::optional<std::uint32_t> u32(unsigned type) const { return value_of<std::uint32_t>(get(type)); }
  std::optional<std::uint64_t> u64(unsigned type) const { return value_of<std::uint64_t>(get(type)); }
  std::optional<std::uint8_t> u8(unsigned type) const { return value_of<std::uint8_t>(get(type)); }
  // Without the terminating zero.
  std::optional<std::string> text(unsigned type) const;

 private:
  std::vector<std::pair<unsigned, Bytes>> entries_;
};

struct Message {
  unsigned type = 0;
  Bytes payload;

  // The fixed header in front of the attributes; nullptr if the message is too short for it.
  template <typename Header>
  const Header* header() const {
    return payload.size() < sizeof(Header) ? nullptr : reinterpret_cast<const Header*>(payload.data());
  }
  Attributes attributes(std::size_t header_size) const {
    const std::size_t skip = NLMSG_ALIGN(header_size);
    return Attributes(payload.size() < skip ? Bytes() : payload.subspan(skip));
  }
};

class Socket {
 public:
  // protocol: NETLINK_ROUTE, NETLINK_RDMA. Fails with the errno of socket(2): EPROTONOSUPPORT, EPERM under seccomp, ...
  static Result<Socket> open(int protocol);

  // Sends one request and hands every answer to the handler until the dump or the answer ends, or the handler says
  // false (what the kernel still sends is then left unread: use the socket no more). flags: NLM_F_DUMP or 0. Error code
  // EINTR: the table changed during the dump, which has to be made again.
  Result<void> request(unsigned type, unsigned flags, Bytes payload,
                       const std::function<bool(const Message&)>& handler);

 private:
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  std::uint32_t sequence_ = 0;
};

// One dump of NETLINK_ROUTE on a socket of its own, so that one that was stopped early leaves nothing behind for the
// next. Made again from the start, after restart(), when the kernel says that the table changed meanwhile.
Result<void> dump(unsigned type, Bytes header, const std::function<void()>& restart,
                  const std::function<bool(const Message&)>& handler);

// An address of AF_INET or AF_INET6; nullopt: not as many bytes as the family has.
std::optional<Address> to_address(unsigned family, Bytes bytes);

// The bytes of a plain struct.
template <typename T>
Bytes bytes_of(const T& value) {
  return {reinterpret_cast<const std::uint8_t*>(&value), sizeof value};
}

struct Network {
  std::vector<Netdev> netdevs;  // every netdev of this netns, ascending ifindex
  std::vector<Route> routes;    // default routes of the main table; with all_routes every route of every table
};

// Errors: no netlink socket (seccomp, gVisor), a dump that failed.
Result<Network> read_network(bool all_routes);
// The same without routes.
Result<std::vector<Netdev>> read_netdevs();

struct RdmaAnswer {
  rdma_sysfs::PortNetdevs port_netdevs;
  std::optional<NetnsMode> netns_mode;
};

// nullopt when the kernel has no RDMA netlink (none built in, or the socket is refused): sysfs has to do then.
std::optional<RdmaAnswer> read_rdma(bool with_netns_mode);

// Only whether RDMA devices are shared between network namespaces; nullopt as above, or before kernel 5.2.
std::optional<NetnsMode> read_netns_mode();

// Whether processes without CAP_NET_RAW may use controlled QKEYs (`rdma system set privileged-qkey`). nullopt as above,
// or before kernel 6.7.
std::optional<bool> read_privileged_qkey();
// The same of an answer to RDMA_NLDEV_CMD_SYS_GET.
std::optional<bool> privileged_qkey_of(const Attributes& answer);

}  // namespace fabric::netlink
