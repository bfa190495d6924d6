#include "hook/rails/netlink/rdma_devices.hpp"

#include <rdma/rdma_netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "base/result.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace hook {
namespace {

using base::netlink::Attributes;
using base::netlink::Bytes;
using base::netlink::Message;

constexpr const char* kCount = "cannot count the contexts of RDMA devices";
// Many small parts for recvmmsg(2), because the kernel puts only one device into each message (_nldev_res_get_dumpit()
// returns the length).
constexpr std::size_t kBatch = 64;
constexpr std::size_t kLongestMessage = 1024;  // an answer has less than 500 bytes

// Returns true if the kernel has no RDMA netlink, or does not know the command.
bool is_unknown(int code) {
  return code == EPROTONOSUPPORT || code == EAFNOSUPPORT || code == EINVAL || code == EOPNOTSUPP;
}

// Calls use() with each attribute of type `entry` in the table.
void for_each_entry(Bytes table, unsigned entry, const std::function<void(const Attributes&)>& use) {
  each_attribute(table, [&](unsigned type, Bytes body) {
    if ((type & kTypeMask) == entry) use(Attributes(body));
  });
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
  const RequestBuilder list = rdma_request(RDMA_NLDEV_CMD_RES_GET, NLM_F_DUMP);
  if (list.header() == nullptr) return sys_error(ENOMEM, "{}", kCount);
  if (::send(socket.get(), list.header(), list.header()->nlmsg_len, 0) < 0) return sys_error(errno, "{}", kCount);
  std::vector<RdmaUse> devices;
  int refusal = 0;
  const auto take = [&](const Message& answer) {
    if (answer.ends()) refusal = answer.code().value_or(EPROTO);
    auto device = answer.ends() ? std::nullopt : parse_rdma_use(answer.attributes(0));
    if (device) devices.push_back(std::move(*device));
    return !answer.ends();
  };
  // recvmmsg(2) never waits here, because the kernel prepares each part within the calls of send(2) and recvmmsg(2).
  constexpr std::size_t kRoom = kBatch * kLongestMessage;
  const auto room = std::make_unique_for_overwrite<std::uint8_t[]>(kRoom);
  const int code = base::netlink::receive_messages<kBatch>(
      socket.get(), MSG_DONTWAIT, [&] { return std::span(room.get(), kRoom); }, take);
  if (code != 0) refusal = code;
  if (is_unknown(refusal)) return Uses();
  if (refusal != 0) return sys_error(refusal, "{}", kCount);
  return Uses(std::move(devices));
}

Result<std::vector<RdmaContext>> rdma_contexts(const RdmaUse& device) {
  auto rdma = TRY(Netlink::open(NETLINK_RDMA));
  RdmaContextTable table;
  bool has_contexts = true;
  // kObjectKinds has the necessary order: contexts before PDs, and PDs before the QPs and MRs in them.
  for (const ObjectKind& kind : kObjectKinds) {
    const auto add = [&](const Message& answer) {
      for_each_entry(answer.attributes(0).get(kind.table), kind.entry,
                     [&](const Attributes& entry) { (table.*kind.add)(entry); });
    };
    RequestBuilder objects = rdma_request(kind.command, NLM_F_DUMP);
    objects.put(RDMA_NLDEV_ATTR_DEV_INDEX, device.index);
    const auto listed = rdma.read(objects, fmt::format("list the users of `{}`", device.name), add);
    if (!listed && !is_unknown(listed.error().code)) return listed.error();
    if (!listed && kind.command == RDMA_NLDEV_CMD_RES_CTX_GET) has_contexts = false;
  }
  return has_contexts ? std::move(table).take() : std::move(table).number(device.contexts);
}

}  // namespace hook
