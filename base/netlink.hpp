// A small netlink client: one request, several at once, or a dump.
//
// The programs of the node make their messages with libnl-3 (hook/rails/netlink/netlink.hpp), but this client exchanges
// them. rdma-init has no libnl-3. Linked statically, libnl-3 brings getaddrinfo() and NSS, 400 kB in every image with
// rdma-init, and a constructor that reads /proc/net/psched at each start.
#pragma once

#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

// Returns the bytes of a plain struct, which must outlive the result.
Bytes bytes_of(const auto& value) {
  return {reinterpret_cast<const std::uint8_t*>(&value), sizeof value};
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
  unsigned flags = 0;
  std::uint32_t sequence = 0;

  // Returns true for the last message of an answer. A last message with the code 0 is an acknowledgement.
  bool ends() const { return type == NLMSG_DONE || type == NLMSG_ERROR; }
  // Returns the errno in the last message, 0 for success; nullopt if the message is too short.
  std::optional<int> code() const;
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

// Takes the next message of a datagram. Returns nullopt at its end, or if the length of the message is wrong.
std::optional<Message> next_message(Bytes& rest);

// A request of this client: a fixed header, then attributes in the order of the calls.
class Query {
 public:
  Query(unsigned type, unsigned flags, const auto& header) : Query(type, flags, bytes_of(header)) {}
  Query(unsigned type, unsigned flags, Bytes header);

  void put(unsigned type, Bytes value);
  void put(unsigned type, std::string_view text);  // adds a terminating zero
  void put(unsigned type, std::uint32_t value) { put(type, bytes_of(value)); }

  nlmsghdr& header() { return *reinterpret_cast<nlmsghdr*>(bytes_.data()); }
  Bytes bytes() const { return bytes_; }

 private:
  void append(Bytes bytes);
  std::vector<std::uint8_t> bytes_;
};

// Receives datagrams and passes each message of the kernel to take(), until take() returns false. Passes over messages
// of other processes: any process can send them to this socket, and only the kernel has port 0.
// count: the most datagrams that one system call receives: recvfrom(2) for 1, recvmmsg(2) for more.
// room(): called before each system call; returns a std::span with `count` parts of the same length, one for each
// datagram, or an empty one with the reason in errno.
// Returns 0, or the errno of receiving. EMSGSIZE: a datagram is longer than its part. EPROTO: a message has a wrong
// length.
template <std::size_t count, typename Room, typename Take>
int receive_messages(int fd, int flags, Room room, Take take) {
  std::array<iovec, count> parts;
  std::array<sockaddr_nl, count> senders{};
  std::array<mmsghdr, count> datagrams{};
  for (;;) {
    const std::span<std::uint8_t> whole = room();
    if (whole.empty()) return errno;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t size = whole.size() / count;
      parts[i] = {whole.data() + i * size, size};
      datagrams[i].msg_hdr = {&senders[i], sizeof senders[i], &parts[i], 1, nullptr, 0, 0};
    }
    ssize_t received = 0;
    if constexpr (count > 1) {
      received = TEMP_FAILURE_RETRY(::recvmmsg(fd, datagrams.data(), count, flags, nullptr));
    } else {
      auto& [datagram, length] = datagrams[0];
      const ssize_t size =
          TEMP_FAILURE_RETRY(::recvfrom(fd, whole.data(), whole.size(), flags | MSG_TRUNC,
                                        reinterpret_cast<sockaddr*>(senders.data()), &datagram.msg_namelen));
      length = static_cast<unsigned>(size);
      if (size > static_cast<ssize_t>(whole.size())) datagram.msg_flags = MSG_TRUNC;
      received = std::min<ssize_t>(size, 1);
    }
    if (received <= 0) return received < 0 ? errno : EPROTO;
    for (std::size_t i = 0; i < static_cast<std::size_t>(received); ++i) {
      if (senders[i].nl_pid != 0) continue;
      // A cut datagram is an error: its lost part could have any message.
      if ((datagrams[i].msg_hdr.msg_flags & MSG_TRUNC) != 0) return EMSGSIZE;
      Bytes rest(static_cast<const std::uint8_t*>(parts[i].iov_base), datagrams[i].msg_len);
      while (const auto message = next_message(rest))
        if (!take(*message)) return 0;
      if (rest.size() >= sizeof(nlmsghdr)) return EPROTO;
    }
  }
}

// Returns true if the answer may have several messages. NLM_F_DUMP consists of two bits, and one of them alone is
// NLM_F_ROOT. So both bits must be set.
inline bool is_dump(const nlmsghdr& request) {
  return (request.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
}

class Socket {
 public:
  using Handler = std::function<bool(const Message&)>;

  // Sets the receive timeout. The kernel makes an answer during send(2), so an answer that is missing later never
  // arrives; a container must start even then.
  explicit Socket(UniqueFd fd);
  // Opens a socket. protocol: NETLINK_ROUTE or NETLINK_RDMA. Errors: the errno of socket(2), such as EPROTONOSUPPORT,
  // or EPERM under seccomp.
  static Result<Socket> open(int protocol);
  int fd() const { return fd_.get(); }

  // Sends a request. Returns 0, or the errno of send(2).
  int send(nlmsghdr& request);
  // The content of an answer's last message.
  struct Ending {
    std::optional<int> code = 0;  // errno, 0 for success; nullopt: the message is too short
    std::string text;  // text of the extended acknowledgement (Linux 4.12), without its last dot; empty: none
    bool is_interrupted = false;  // NLM_F_DUMP_INTR: the table changed during the dump; any part may report it
  };
  // Receives the answer to the last request as receive_messages<1>() does. Calls use() with each message but the last,
  // until use() returns false. A dump ends with NLMSG_DONE, a request with NLM_F_ACK with its acknowledgement, and
  // another request with its first answer. Passes over answers to earlier requests, which timed out.
  int receive(const nlmsghdr& request, const std::function<std::span<std::uint8_t>()>& room, const Handler& use,
              Ending& ending);

  // Sends one request and passes each answer to the handler, until the answer or dump ends or the handler returns
  // false. A handler that returns false leaves messages unread: do not use the socket again.
  // Errors: the errno of the kernel, or EAGAIN if no answer arrives within the receive timeout. EINTR means that the
  // table changed during the dump; the caller must repeat the dump.
  Result<void> request(Query query, const Handler& handler);

  // Turns on an option, such as NETLINK_GET_STRICT_CHK. Returns false if the kernel does not have it.
  bool turn_on(int option);

  // Most queries of one request_all(). Their answers must fit into the socket's receive buffer together.
  static constexpr std::size_t kMostQueries = 8;
  // Sends the queries together. Reads the answers with as few system calls as possible, and passes each answer with the
  // position of its query to the handler. The kernel makes one dump of a socket at a time, so a dump must be the only
  // query. Returns the errno of each query, 0 for success. Errors: the errno of sending or receiving; EMSGSIZE for an
  // answer that does not fit into the buffer; EINTR if the table changed during a dump. After an error, do not use the
  // socket again.
  Result<std::vector<int>> request_all(std::span<Query> queries,
                                       const std::function<void(std::size_t query, const Message&)>& handler);

 private:
  UniqueFd fd_;
  std::uint32_t sequence_ = 0;
};

// Makes a dump, and makes it again if it fails with EINTR: the kernel reports that the table changed during the dump.
// On a busy node this may happen each time, so the fifth attempt is the last.
Result<void> repeat_interrupted(const std::function<Result<void>()>& dump);

// Makes one dump of NETLINK_ROUTE as repeat_interrupted() does, each time on a new socket, so that an early stop leaves
// no messages for the next dump. Calls restart() before each attempt, so that the caller drops the results of the
// attempt before.
Result<void> dump(unsigned type, Bytes header, const std::function<void()>& restart, const Socket::Handler& handler);

}  // namespace base::netlink
