#include "hook/rails/netlink/rdma_devices.hpp"

#include <rdma/rdma_netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <utility>

#include "base/result.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace hook {
namespace {

using base::netlink::Attributes;
using base::netlink::Bytes;

constexpr const char* kCount = "cannot count the contexts of RDMA devices";
constexpr std::size_t kBatch = 64;
constexpr std::size_t kLongestMessage = 1024;  // an answer has less than 500 bytes

// Buffers for recvmmsg(2), which receives many messages with one system call. They are small, because the kernel puts
// only one device into each message (_nldev_res_get_dumpit() returns the length).
struct Batch {
  struct alignas(nlmsghdr) Buffer {
    std::array<std::uint8_t, kLongestMessage> bytes;
  };
  std::array<Buffer, kBatch> buffers;
  std::array<iovec, kBatch> pieces;
  std::array<sockaddr_nl, kBatch> senders;
  std::array<mmsghdr, kBatch> messages;

  Batch() {
    for (std::size_t i = 0; i < kBatch; ++i) {
      pieces[i] = {buffers[i].bytes.data(), buffers[i].bytes.size()};
      messages[i] = {};
      messages[i].msg_hdr.msg_name = &senders[i];
      messages[i].msg_hdr.msg_namelen = sizeof senders[i];
      messages[i].msg_hdr.msg_iov = &pieces[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
  }
};

// Returns true if the kernel has no RDMA netlink, or does not know the command.
bool is_unknown(int code) {
  return code == EPROTONOSUPPORT || code == EAFNOSUPPORT || code == EINVAL || code == EOPNOTSUPP;
}

// Parses the messages of one datagram. Returns true at the end of the dump.
Result<bool> read_answers(Bytes rest, std::vector<RdmaUse>& devices) {
  while (rest.size() >= sizeof(nlmsghdr)) {
    const auto header = *base::netlink::value_of<nlmsghdr>(rest);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > rest.size()) return sys_error(EPROTO, "{}", kCount);
    const Bytes body = rest.subspan(NLMSG_HDRLEN, header.nlmsg_len - NLMSG_HDRLEN);
    rest = rest.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), rest.size()));
    if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR) {
      const int code = base::netlink::value_of<int>(body).value_or(-EPROTO);
      if (code < 0) return sys_error(base::netlink::errno_of(code), "{}", kCount);
      return true;
    }
    if (auto device = parse_rdma_use(Attributes(body))) devices.push_back(std::move(*device));
  }
  return false;
}

// Receives the dump. It never waits, because the kernel prepares each part within the calls of send(2) and recvmmsg(2).
Result<std::vector<RdmaUse>> receive(int socket) {
  const auto batch = std::make_unique<Batch>();
  std::vector<RdmaUse> devices;
  for (;;) {
    const int count = ::recvmmsg(socket, batch->messages.data(), kBatch, MSG_DONTWAIT, nullptr);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return sys_error(count < 0 ? errno : EPROTO, "{}", kCount);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      // Another process can send messages to this socket: only the kernel has port 0.
      if (batch->senders[i].nl_pid != 0) continue;
      // A truncated answer is an error, because it could hide a context.
      if ((batch->messages[i].msg_hdr.msg_flags & MSG_TRUNC) != 0) return sys_error(EMSGSIZE, "{}", kCount);
      if (TRY(read_answers({batch->buffers[i].bytes.data(), batch->messages[i].msg_len}, devices))) return devices;
    }
  }
}

// Calls use() with each attribute of type `entry` in the table.
void for_each_entry(Bytes table, unsigned entry, const std::function<void(const Attributes&)>& use) {
  while (const auto header = base::netlink::value_of<nlattr>(table)) {
    if (header->nla_len < sizeof *header || header->nla_len > table.size()) return;
    const Bytes body = table.subspan(NLA_HDRLEN, header->nla_len - NLA_HDRLEN);
    if ((header->nla_type & NLA_TYPE_MASK) == entry) use(Attributes(body));
    table = table.subspan(std::min<std::size_t>(NLA_ALIGN(header->nla_len), table.size()));
  }
}

struct ObjectKind {
  unsigned command;
  unsigned table;
  unsigned entry;
  void (RdmaContextTable::*add)(const Attributes&);
};

constexpr ObjectKind kObjectKinds[] = {
    {RDMA_NLDEV_CMD_RES_CTX_GET, RDMA_NLDEV_ATTR_RES_CTX, RDMA_NLDEV_ATTR_RES_CTX_ENTRY,
     &RdmaContextTable::add_context},
    {RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY, &RdmaContextTable::add_domain},
    {RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY, &RdmaContextTable::add_in_domain},
    {RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, &RdmaContextTable::add_in_domain},
};

NetlinkMessage objects_request(const ObjectKind& kind, std::uint32_t index) {
  const int type = static_cast<int>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, kind.command));
  RequestBuilder made(type, NLM_F_DUMP, Bytes());
  made.put(RDMA_NLDEV_ATTR_DEV_INDEX, index);
  return made.take();
}

}  // namespace

std::optional<RdmaUse> parse_rdma_use(const Attributes& device) {
  const auto index = device.u32(RDMA_NLDEV_ATTR_DEV_INDEX);
  auto name = device.text(RDMA_NLDEV_ATTR_DEV_NAME);
  if (!index || !name || !device.has(RDMA_NLDEV_ATTR_RES_SUMMARY)) return std::nullopt;
  RdmaUse use{*index, std::move(*name), 0};
  for_each_entry(device.get(RDMA_NLDEV_ATTR_RES_SUMMARY), RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY,
                 [&](const Attributes& entry) {
                   if (entry.text(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME) == "ctx")
                     use.contexts = entry.u64(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR).value_or(0);
                 });
  return use;
}

void RdmaContextTable::add(std::optional<std::uint32_t> context, const Attributes& entry) {
  // Objects of the kernel have a name and no PID. PID 0 means that the process has ended or is of another PID
  // namespace.
  const auto pid = static_cast<pid_t>(entry.u32(RDMA_NLDEV_ATTR_RES_PID).value_or(0));
  if (pid <= 0) return;
  const auto add_to = [&](std::vector<pid_t>& known) {
    const auto place = std::ranges::lower_bound(known, pid);
    if (place == known.end() || *place != pid) known.insert(place, pid);
  };
  add_to(all_);
  if (!context) return;
  const auto found = contexts_.find(*context);
  // If the context ended between two dumps, the table does not have it, and its PDs, QPs and MRs are dropped.
  if (found != contexts_.end()) add_to(found->second);
}

void RdmaContextTable::add_context(const Attributes& entry) {
  const auto id = entry.u32(RDMA_NLDEV_ATTR_RES_CTXN);
  if (id) contexts_.try_emplace(*id);
  add(id, entry);
}

void RdmaContextTable::add_domain(const Attributes& entry) {
  const auto id = entry.u32(RDMA_NLDEV_ATTR_RES_PDN);
  const auto context = entry.u32(RDMA_NLDEV_ATTR_RES_CTXN);
  if (id && context) domains_.emplace(*id, *context);
  add(context, entry);
}

// A QP or MR names only its PD, and the PD names the context.
void RdmaContextTable::add_in_domain(const Attributes& entry) {
  const auto id = entry.u32(RDMA_NLDEV_ATTR_RES_PDN);
  const auto domain = id ? domains_.find(*id) : domains_.end();
  add(domain == domains_.end() ? std::nullopt : std::optional(domain->second), entry);
}

std::vector<RdmaContext> RdmaContextTable::take() && {
  std::vector<RdmaContext> contexts;
  for (auto& [id, processes] : contexts_)
    contexts.push_back({id, std::move(processes)});
  return contexts;
}

std::vector<RdmaContext> RdmaContextTable::number(std::uint64_t count) && {
  std::vector<RdmaContext> contexts;
  for (std::uint32_t id = 0; id < count; ++id)
    contexts.push_back({id, all_});
  return contexts;
}

Result<std::optional<std::vector<RdmaUse>>> rdma_use() {
  using Uses = std::optional<std::vector<RdmaUse>>;
  const base::UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
  if (!socket.ok()) return is_unknown(errno) ? Result<Uses>(Uses()) : sys_error(errno, "{}", kCount);
  nlmsghdr request{};
  request.nlmsg_len = NLMSG_LENGTH(0);
  request.nlmsg_type = static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_GET));
  request.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  if (::send(socket.get(), &request, sizeof request, 0) < 0) return sys_error(errno, "{}", kCount);
  auto devices = receive(socket.get());
  if (devices) return Uses(std::move(*devices));
  return is_unknown(devices.error().code) ? Result<Uses>(Uses()) : devices.error();
}

Result<std::vector<RdmaContext>> rdma_contexts(const RdmaUse& device) {
  auto rdma = TRY(Netlink::open(NETLINK_RDMA));
  RdmaContextTable table;
  bool has_contexts = true;
  // kObjectKinds has the necessary order: contexts before PDs, and PDs before the QPs and MRs in them.
  for (const ObjectKind& kind : kObjectKinds) {
    const auto add = [&](const nlmsghdr* answer) {
      for_each_entry(to_message(answer).attributes(0).get(kind.table), kind.entry,
                     [&](const Attributes& entry) { (table.*kind.add)(entry); });
    };
    const auto listed =
        rdma.read(objects_request(kind, device.index), fmt::format("list the users of `{}`", device.name), add);
    if (!listed && !is_unknown(listed.error().code)) return listed.error();
    if (!listed && kind.command == RDMA_NLDEV_CMD_RES_CTX_GET) has_contexts = false;
  }
  return has_contexts ? std::move(table).take() : std::move(table).number(device.contexts);
}

}  // namespace hook
