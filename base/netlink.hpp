// A small netlink client: one request, several at once, or a dump.
//
// rdma-init uses it in place of libnl-3. Linked statically, libnl-3 brings getaddrinfo() and NSS, 400 kB in every image
// with rdma-init, and a constructor that reads /proc/net/psched at each start.
#pragma once

#include <linux/netlink.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace base::netlink {

using Bytes = std::span<const std::uint8_t>;

// Returns the value at the start of the bytes, nullopt if there are too few.
template <typename T>
std::optional<T> value_of(Bytes bytes) {
  T value{};
  if (bytes.size() < sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// Returns the errno of the code at the start of NLMSG_ERROR and NLMSG_DONE, 0 for success. The lowest code of the
// kernel is -MAX_ERRNO (include/linux/err.h). A lower code is garbage and yields EPROTO: INT_MIN, for one, cannot be
// negated.
constexpr int errno_of(int code) {
  constexpr int kMaxErrno = 4095;
  if (code >= 0) return 0;
  return code >= -kMaxErrno ? -code : EPROTO;
}

// The attributes of a message, by type. Parsing ends at a malformed attribute; the attributes before it are kept.
class Attributes {
 public:
  explicit Attributes(Bytes bytes);

  // Returns the payload of the attribute, empty if the attribute is missing.
  Bytes get(unsigned type) const;
  bool has(unsigned type) const { return get(type).data() != nullptr; }
  // Return the integer in host byte order, nullopt if the attribute is missing or too short.
  std::optional<std::uint32_t> u32(unsigned type) const { return value_of<std::uint32_t>(get(type)); }
  std::optional<std::uint64_t> u64(unsigned type) const { return value_of<std::uint64_t>(get(type)); }
  std::optional<std::uint8_t> u8(unsigned type) const { return value_of<std::uint8_t>(get(type)); }
  // Returns the text without the terminating zero, nullopt if the attribute is missing or empty.
  std::optional<std::string> text(unsigned type) const;

 private:
  std::vector<std::pair<unsigned, Bytes>> entries_;
};

struct Message {
  unsigned type = 0;
  Bytes payload;

  // Returns the fixed header before the attributes, nullptr if the message is too short for it.
  template <typename Header>
  const Header* header() const {
    return payload.size() < sizeof(Header) ? nullptr : reinterpret_cast<const Header*>(payload.data());
  }
  // Returns the attributes after a header of that size, which netlink aligns to four bytes.
  Attributes attributes(std::size_t header_size) const {
    const std::size_t skip = NLMSG_ALIGN(header_size);
    return Attributes(payload.size() < skip ? Bytes() : payload.subspan(skip));
  }
};

struct NextMessage {
  nlmsghdr header;
  Bytes body;
};

// Takes the next message of a datagram. Returns nullopt at its end, or if the length of the message is wrong.
std::optional<NextMessage> next_message(Bytes& rest);

class Socket {
 public:
  // Opens a socket with a receive timeout. protocol: NETLINK_ROUTE or NETLINK_RDMA. Errors: the errno of socket(2),
  // such as EPROTONOSUPPORT, or EPERM under seccomp.
  static Result<Socket> open(int protocol);

  // Sends one request and passes each answer to the handler, until the answer or dump ends or the handler returns
  // false. A handler that returns false leaves messages unread: do not use the socket again. flags: NLM_F_DUMP or 0.
  // Errors: the errno of the kernel, or EAGAIN if no answer arrives within the receive timeout. EINTR means that the
  // table changed during the dump; the caller must repeat the dump.
  Result<void> request(unsigned type, unsigned flags, Bytes payload,
                       const std::function<bool(const Message&)>& handler);

  // Makes the kernel refuse a request with a field or attribute that it would ignore, so that a dump of the addresses
  // of one netdev has no other addresses. Returns false before Linux 4.20 (NETLINK_GET_STRICT_CHK).
  bool set_strict();

  // One request of request_all().
  struct Query {
    unsigned type = 0;
    unsigned flags = 0;  // NLM_F_DUMP or 0
    Bytes payload;
  };
  // Requests that request_all() accepts at once. The answers must fit into the socket's receive buffer together.
  static constexpr std::size_t kMostQueries = 8;
  // Sends the queries in one message, reads the answers with as few system calls as possible, and passes each answer
  // with the position of its query to the handler. The kernel makes one dump of a socket at a time, so a dump must be
  // the only query. Returns the errno of each query, 0 for success. Errors: the errno of sending or receiving; EMSGSIZE
  // for an answer that does not fit into the buffer; EINTR if the table changed during a dump. After an error, do not
  // use the socket again.
  Result<std::vector<int>> request_all(std::span<const Query> queries,
                                       const std::function<void(std::size_t query, const Message&)>& handler);

 private:
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  std::uint32_t sequence_ = 0;
};

// Makes one dump of NETLINK_ROUTE on a new socket, so that an early stop leaves no messages for the next dump. Calls
// restart() before each attempt, so that the caller drops the results of the attempt before. If the kernel reports that
// the table changed during the dump, repeats the dump, up to five attempts in all.
Result<void> dump(unsigned type, Bytes header, const std::function<void()>& restart,
                  const std::function<bool(const Message&)>& handler);

// Returns the bytes of a plain struct, which must outlive the result.
template <typename T>
Bytes bytes_of(const T& value) {
  return {reinterpret_cast<const std::uint8_t*>(&value), sizeof value};
}

}  // namespace base::netlink
