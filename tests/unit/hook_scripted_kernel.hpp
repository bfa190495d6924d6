// A stand-in for the kernel behind the program's own netlink sockets: what is sent on one goes to a model, and what the
// model says is read from it. sendmsg(2), recvmsg(2), socket(2), setns(2) and getsockopt(2) of the program and of libnl
// end in hook_scripted_kernel.cpp (linker option --wrap); other descriptors pass through.
//
// A child that the program forks (move_rdma_device_from()) has the sockets and descriptors of its parent, and
// may join a namespace and open sockets of its own there. Its model has to keep what it knows in shared memory.
#pragma once

#include <linux/netlink.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fabric/unique_fd.hpp"

namespace test_support {

using Buffer = std::vector<std::uint8_t>;
using ByteView = std::span<const std::uint8_t>;

// Makes attributes, or a message's payload.
class AttributeWriter {
 public:
  AttributeWriter() = default;
  template <typename Header>
  explicit AttributeWriter(const Header& header) {
    append(&header, sizeof header);
  }
  AttributeWriter& put(unsigned type, const AttributeWriter& nested) { return put_bytes(type, nested.buffer_); }
  AttributeWriter& put(unsigned type, std::string_view text);  // with a terminating zero
  template <typename T>
  requires(std::is_arithmetic_v<T> ||
           (std::is_class_v<T> && std::is_trivially_copyable_v<T> &&
            !std::is_convertible_v<T, std::string_view>)) AttributeWriter& put(unsigned type, const T& value) {
    return put_bytes(type, {reinterpret_cast<const std::uint8_t*>(&value), sizeof value});
  }
  AttributeWriter& put_bytes(unsigned type, ByteView value);
  const Buffer& buffer() const { return buffer_; }

 private:
  void append(const void* data, std::size_t size);
  Buffer buffer_;
};

// The payload of the first attribute of this type, nested or not; without data() when there is none.
ByteView find_attribute(ByteView attributes, unsigned type);
// Its start as a value; a missing one is zeros.
template <typename T>
T value_at(ByteView bytes) {
  T value{};
  if (bytes.size() >= sizeof value) __builtin_memcpy(&value, bytes.data(), sizeof value);
  return value;
}
std::string text_of(ByteView bytes);  // up to its zero

// What the program sent.
struct ScriptedRequest {
  int protocol = 0;       // NETLINK_ROUTE, NETLINK_RDMA
  int socket_netns = 0;   // where the socket was opened
  int process_netns = 0;  // where the sender is
  unsigned type = 0;
  bool is_dump = false;
  ByteView payload;
};

// What the kernel says: messages, then an acknowledgement or the end of the dump.
struct ScriptedReply {
  int code = 0;       // errno; 0: success
  std::string said;   // NLMSGERR_ATTR_MSG
  unsigned type = 0;  // of the messages
  std::vector<Buffer> messages;
};

class ScriptedKernel {
 public:
  // Serves all scripted sockets of this process until it is destroyed; one at a time.
  ScriptedKernel();
  virtual ~ScriptedKernel();
  ScriptedKernel(const ScriptedKernel&) = delete;
  ScriptedKernel& operator=(const ScriptedKernel&) = delete;

  // A bound socket of this namespace, for Netlink::adopt().
  static fabric::UniqueFd open_socket(int protocol, int netns);
  // A descriptor that passes for one of the namespace: for IFLA_NET_NS_FD, RDMA_NLDEV_NET_NS_FD and setns(2).
  static fabric::UniqueFd open_netns(int netns);
  // Of which namespace a descriptor is; -1: of none.
  static int netns_of(int fd);

  virtual ScriptedReply answer(const ScriptedRequest& request) = 0;
};

}  // namespace test_support
