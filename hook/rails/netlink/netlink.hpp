// One netlink socket over libnl-3: a request and its acknowledgement, or a dump. The messages are made by links.hpp,
// records.hpp, rdma_devices.hpp.
#pragma once

#include <netlink/attr.h>
#include <netlink/msg.h>

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "fabric/netlink.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"

struct nl_sock;

namespace hook {

struct FreeMessage {
  void operator()(nl_msg* message) const { nlmsg_free(message); }
};
using NetlinkMessage = std::unique_ptr<nl_msg, FreeMessage>;

class Netlink {
 public:
  using Handler = std::function<void(const nlmsghdr*)>;

  // protocol: NETLINK_ROUTE, NETLINK_RDMA. The socket belongs to the caller's network namespace for ever.
  static Result<Netlink> open(int protocol);
  // As open(); nullopt: this kernel has none of that protocol.
  static Result<std::optional<Netlink>> open_if_known(int protocol);
  // A socket that was made in another namespace (open_network_namespace()).
  static Result<Netlink> adopt(fabric::UniqueFd fd, int protocol);

  // Sends the request and waits for the kernel's answer. Errors: "cannot WHAT: " and what the kernel says, its
  // extended acknowledgement where it sends one (Linux 4.12), with its errno as code. A null message is ENOMEM.
  Result<void> change(NetlinkMessage message, std::string_view what);
  // Hands every message of the answer (of a dump, or of a single request) to the handler; a dump that the kernel marks
  // as interrupted is an error with code EINTR. The header's payload is valid during the call only.
  Result<void> read(NetlinkMessage message, std::string_view what, const Handler& handler);
  // A dump, made again from its start when it was interrupted, five times at most. restart: forgets what the handler
  // has seen; called before each.
  Result<void> dump(const std::function<NetlinkMessage()>& request, std::string_view what,
                    const std::function<void()>& restart, const Handler& handler);
  int fd() const;

 private:
  struct Free {
    void operator()(nl_sock* socket) const;
  };
  using Socket = std::unique_ptr<nl_sock, Free>;
  explicit Netlink(Socket socket);
  Result<void> exchange(NetlinkMessage message, int flags, std::string_view what, const Handler& handler);
  Socket socket_;
};

// Makes one request: its fixed header, then attributes in the order of the calls.
class RequestBuilder {
 public:
  template <typename Header>
  RequestBuilder(int type, int flags, const Header& header)
      : RequestBuilder(type, flags, fabric::netlink::bytes_of(header)) {}
  // header: may have attributes behind it already.
  RequestBuilder(int type, int flags, fabric::netlink::Bytes header);

  void put(int type, fabric::netlink::Bytes value);
  void put(int type, std::string_view text);  // with a terminating zero
  // A plain struct or integer, in host order.
  template <typename T>
  requires std::is_trivially_copyable_v<T> &&(!std::is_convertible_v<T, std::string_view>)&&(
      !std::is_convertible_v<T, fabric::netlink::Bytes>)void put(int type, const T& value) {
    put(type, fabric::netlink::bytes_of(value));
  }
  // What is put between begin() and end() is nested in an attribute of this type. end() takes what begin() gave.
  nlattr* begin(int type);
  void end(nlattr* nest);

  // Null when there was no memory for all of it.
  NetlinkMessage take() { return std::move(message_); }

 private:
  NetlinkMessage message_;
};

// Header and attributes of an answer; malformed attributes end the walk.
fabric::netlink::Message to_message(const nlmsghdr* header);

// For RTM_GETLINK and the like. 0: no netdev in particular.
ifinfomsg link_header(int ifindex);

// What one can do in another network namespace without being in it: sockets and a sysfs that were opened there.

struct NetworkNamespace {
  fabric::UniqueFd netns;       // /proc/PID/ns/net or the path of a pod's
  Netlink route;                // NETLINK_ROUTE there
  std::optional<Netlink> rdma;  // NETLINK_RDMA there; nullopt: the kernel has none
  fabric::UniqueFd packet;      // AF_PACKET, SOCK_RAW, protocol 0 (bind it first); empty: not asked for, or refused
  // A detached mount of sysfs as the namespace sees it (fsopen, Linux 5.2), read-only: for openat(). Empty: not
  // asked for, or an older kernel.
  fabric::UniqueFd sysfs;
};

// The parts that are opened only where needed: a packet socket and a mount are closed only after a grace period of the
// kernel, some 10 ms.
struct NetnsParts {
  bool packet = false;
  bool sysfs = false;
};

// A detached mount of sysfs as the process's network namespace sees it. Empty: a kernel before 5.2, or one that keeps
// it from us.
enum class SysfsAccess { kRead, kWrite };
Result<fabric::UniqueFd> open_sysfs(SysfsAccess access = SysfsAccess::kRead);

// setns(2) happens in one forked child only, which opens all of it and hands it back. Errors: no network
// namespace, or it is gone.
Result<NetworkNamespace> open_network_namespace(fabric::UniqueFd netns, const NetnsParts& parts);

// The few things that must be done by a process of that namespace (move_rdma_device_from()): as run_in_child().
Result<void> run_in_network_namespace(int netns, const std::function<Result<void>()>& function);

}  // namespace hook
