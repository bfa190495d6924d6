// A netlink socket for changes with acknowledgement, and dumps. libnl-3 makes the messages and walks their nested
// attributes; base/netlink.hpp sends them and receives the answers. links.hpp, records.hpp and rdma_devices.hpp have
// the messages.
#pragma once

#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "fabric/read_network.hpp"

namespace hook {

// Makes one request with libnl-3: a fixed header, then attributes in the order of the calls. Has no message if an
// attribute does not fit into the room for attributes, or without memory; the request then fails with ENOMEM.
class RequestBuilder {
 public:
  static constexpr std::size_t kRoom = 4096;  // longer than the attributes of any request but a copied record
  RequestBuilder(unsigned type, unsigned flags, const auto& header, std::size_t room = kRoom)
      : RequestBuilder(type, flags, base::netlink::bytes_of(header), room) {}
  // header: the fixed header; attributes may already follow it.
  RequestBuilder(unsigned type, unsigned flags, base::netlink::Bytes header, std::size_t room = kRoom);

  void put(unsigned type, base::netlink::Bytes value);
  void put(unsigned type, std::string_view text);  // adds a terminating zero
  // Adds a plain struct or integer, in host byte order.
  template <typename T>
  requires std::is_trivially_copyable_v<T> &&(!std::is_convertible_v<T, std::string_view>)&&(
      !std::is_convertible_v<T, base::netlink::Bytes>)void put(unsigned type, const T& value) {
    put(type, base::netlink::bytes_of(value));
  }
  // begin() starts a nested attribute of this type, and put() adds attributes to it until end(). end() takes the result
  // of begin().
  nlattr* begin(unsigned type);
  void end(nlattr* nest);

  // Returns the message, nullptr if there is none.
  nlmsghdr* header() const { return message_ ? nlmsg_hdr(message_.get()) : nullptr; }
  // Return the whole message, or its header and attributes, empty if there is none.
  base::netlink::Bytes bytes() const;
  base::netlink::Message message() const;

 private:
  struct Free {
    void operator()(nl_msg* message) const { nlmsg_free(message); }
  };
  std::unique_ptr<nl_msg, Free> message_;
};

// Calls use(type, value) for each attribute. The type includes flags such as NLA_F_NESTED. Returns false if the
// attributes are malformed; use() has then been called for the attributes before the fault.
bool each_attribute(base::netlink::Bytes attributes,
                    const std::function<void(unsigned type, base::netlink::Bytes value)>& use);
inline constexpr unsigned kTypeMask = static_cast<unsigned>(NLA_TYPE_MASK);  // clears the flags

class Netlink {
 public:
  using Handler = std::function<void(const base::netlink::Message&)>;

  // Opens a socket. protocol: NETLINK_ROUTE, NETLINK_RDMA. The socket stays in the caller's network namespace.
  static Result<Netlink> open(int protocol);
  // Like open(), but returns nullopt if the kernel does not have the protocol.
  static Result<std::optional<Netlink>> open_if_known(int protocol);
  // Takes over a socket that open_network_namespace() made in another namespace.
  static Result<Netlink> adopt(base::UniqueFd fd, int protocol);

  // Sends the request and waits for the acknowledgement.
  // Errors: "cannot WHAT: " with the kernel's errno as code, and the text of its extended acknowledgement, if there is
  // one (Linux 4.12); ENOMEM for a request without message.
  Result<void> change(const RequestBuilder& request, std::string_view what);
  // Sends a request or a dump and calls the handler for every message of the answer. The message is valid only during
  // that call. Errors: those of change(); EINTR, the kernel marked the dump as interrupted.
  Result<void> read(const RequestBuilder& request, std::string_view what, const Handler& handler);
  // Reads a dump. Repeats an interrupted dump from its start (repeat_interrupted()).
  // restart: discards the results of the handler; called before each attempt.
  Result<void> dump(const RequestBuilder& request, std::string_view what, const std::function<void()>& restart,
                    const Handler& handler);
  int fd() const { return socket_.fd(); }

 private:
  explicit Netlink(base::netlink::Socket socket) : socket_(std::move(socket)) {}
  base::netlink::Socket socket_;
  std::vector<std::uint8_t> room_;  // buffer for answers
};

// Returns the header of RTM_GETLINK and similar requests.
// ifindex: 0 stands for no particular netdev.
ifinfomsg link_header(int ifindex);

// Descriptors of another network namespace. The sockets and the sysfs were opened there and can be used from outside.
struct NetworkNamespace {
  base::UniqueFd netns;         // descriptor of /proc/PID/ns/net or a pod's path
  Netlink route;                // socket of the protocol NETLINK_ROUTE
  std::optional<Netlink> rdma;  // NETLINK_RDMA; nullopt: the kernel has no RDMA netlink
  base::UniqueFd packet;  // AF_PACKET, SOCK_RAW, protocol 0 (bind it before use); empty: not requested, or refused
  // A detached, read-only mount of the namespace's sysfs (fsopen, Linux 5.2), for openat(2). The descriptor is empty if
  // the mount was not requested or not permitted, or if the kernel is older.
  base::UniqueFd sysfs;
};

// The descriptors that are opened only on request, because closing a packet socket or a mount waits some 10 ms for a
// grace period of the kernel.
struct NetnsParts {
  bool packet = false;
  bool sysfs = false;
};

enum class SysfsAccess { kRead, kWrite };
// Mounts the sysfs of the caller's network namespace, detached. Returns an empty descriptor if the kernel is older than
// Linux 5.2 or does not permit the mount.
Result<base::UniqueFd> open_sysfs(SysfsAccess access = SysfsAccess::kRead);

// Opens sockets and sysfs of another namespace: a forked child calls setns(2), opens them and passes them to the
// caller. Errors: the descriptor is of no network namespace, or the namespace is gone.
Result<NetworkNamespace> open_network_namespace(base::UniqueFd netns, const NetnsParts& parts);

// Runs the function in a child process in that namespace, like run_in_child(). Needed for calls in which the kernel
// checks the namespace of the calling process (move_rdma_device_from()).
Result<void> run_in_network_namespace(int netns, const std::function<Result<void>()>& function);

}  // namespace hook
