// The state of the node, and what its kernel does by itself.
#include "unit/hook_infiniband_node.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace test_support {
namespace {

constexpr unsigned kLinkMtu = 4092;  // IPOIB_UD_MTU() of a 4096-byte link

template <std::size_t N>
void copy_name(std::array<char, N>& into, std::string_view name) {
  if (name.size() >= N) std::abort();
  into = {};
  std::copy(name.begin(), name.end(), into.begin());
}

}  // namespace

const char* shown(int netns) {
  return netns == kNodeNetns ? "node" : "container";
}

ScriptedReply refusal(int code, std::string said) {
  ScriptedReply reply;
  reply.code = code;
  reply.said = std::move(said);
  return reply;
}

void IbLink::rename(std::string_view to) {
  copy_name(name, to);
}

InfinibandNode::InfinibandNode() {
  void* memory = ::mmap(nullptr, sizeof(IbState), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  state_ = new (memory) IbState;
  state_->next_ifindex = 4;
  state_->next_queue_pair = 0x100;
  for (unsigned i = 0; i < state_->functions.size(); ++i) {
    IbFunction& function = state_->functions[i];
    copy_name(function.pci, fmt::format("0000:1a:00.{}", i));
    copy_name(function.rdma, fmt::format("mlx5_{}", i));
    function.rdma_index = i;
    function.node_guid = 0x0002c90000aa0000 + i;
    function.port_guid = 0x0002c90000bb0000 + i;
    IbLink& link = add_link(kNodeNetns, i == 0 ? "ibp0" : fmt::format("ibp0v{}", i - 1), static_cast<int>(i));
    link.mtu = 2044;
    link.up = true;
  }
}

InfinibandNode::~InfinibandNode() {
  ::munmap(state_, sizeof(IbState));
}

IbLink& InfinibandNode::add_link(int netns, std::string_view name, int function, int ifindex) {
  const auto free =
      std::find_if(state_->links.begin(), state_->links.end(), [](const IbLink& link) { return link.ifindex == 0; });
  if (free == state_->links.end()) std::abort();
  *free = {};
  free->ifindex = ifindex != 0 ? ifindex : state_->next_ifindex++;
  free->netns = netns;
  free->rename(name);
  free->function = function;
  free->mtu = function < 0 ? 1500 : kLinkMtu;
  free->queue_length = function < 0 ? 1000 : 512;  // ipoib_setup_common()
  if (function < 0) return *free;
  free->queue_pair = state_->next_queue_pair++;
  free->guid = state_->functions.at(static_cast<std::size_t>(function)).port_guid;
  return *free;
}

void InfinibandNode::add_ethernet(int netns, std::string_view name) {
  add_link(netns, name, -1);
}

IbLink* InfinibandNode::find_link(int netns, int ifindex) {
  const auto found = std::find_if(state_->links.begin(), state_->links.end(), [&](const IbLink& link) {
    return link.ifindex != 0 && link.ifindex == ifindex && link.netns == netns;
  });
  return found == state_->links.end() ? nullptr : &*found;
}

IbLink* InfinibandNode::find_link(int netns, std::string_view name) {
  const auto found = std::find_if(state_->links.begin(), state_->links.end(), [&](const IbLink& link) {
    return link.ifindex != 0 && link.name.data() == name && link.netns == netns;
  });
  return found == state_->links.end() ? nullptr : &*found;
}

IbLink& InfinibandNode::link(int netns, std::string_view name) {
  IbLink* found = find_link(netns, name);
  if (found == nullptr) std::abort();
  return *found;
}

bool InfinibandNode::is_taken(int netns, std::string_view name) const {
  return std::any_of(state_->links.begin(), state_->links.end(), [&](const IbLink& link) {
    return link.ifindex != 0 && link.name.data() == name && link.netns == netns;
  });
}

void InfinibandNode::note(const std::string& step) {
  auto& line = state_->steps.at(static_cast<std::size_t>(state_->count++));
  if (step.size() >= line.size()) std::abort();
  std::copy(step.begin(), step.end(), line.begin());
}

std::vector<std::string> InfinibandNode::take_steps() {
  std::vector<std::string> steps;
  steps.reserve(static_cast<std::size_t>(state_->count));
  for (int i = 0; i < state_->count; ++i)
    steps.emplace_back(state_->steps.at(static_cast<std::size_t>(i)).data());
  state_->count = 0;
  state_->steps = {};
  return steps;
}

std::string InfinibandNode::picture() const {
  std::vector<std::string> lines;
  for (const IbLink& link : state_->links) {
    if (link.ifindex == 0) continue;
    std::string line =
        fmt::format("{}: {}, {}, mtu {}", shown(link.netns), link.name.data(), link.up ? "up" : "down", link.mtu);
    if (link.function >= 0) line += fmt::format(", GUID {:#018x}, pkey {:#06x}", link.guid, link.pkey);
    lines.push_back(std::move(line));
  }
  for (const IbFunction& function : state_->functions) {
    lines.push_back(fmt::format("{}: {}, node GUID {:#018x}, port GUID {:#018x}", shown(function.netns),
                                function.rdma.data(), function.node_guid, function.port_guid));
  }
  std::sort(lines.begin(), lines.end());
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

// ipoib_remove_one() ends the netdev and its children, ipoib_add_one() makes another one: named ib%d, down, with the
// GUID that the port has then, in the initial namespace or (Linux 6.16, dev_net_set() in ipoib_add_port()) that of the
// RDMA device (drivers/infiniband/ulp/ipoib/ipoib_main.c).
void InfinibandNode::make_netdev_anew(int function, std::string& line) {
  for (IbLink& link : state_->links) {
    if (link.ifindex == 0 || link.function != function) continue;
    line += fmt::format("; {} ends", link.name.data());
    link = {};
  }
  const int netns =
      state_->netdev_follows ? state_->functions.at(static_cast<std::size_t>(function)).netns : kNodeNetns;
  int number = 0;
  while (is_taken(netns, fmt::format("ib{}", number)))
    ++number;
  add_link(netns, fmt::format("ib{}", number), function);
  line += fmt::format("; ib{} begins ({})", number, shown(netns));
}

// rdma_dev_exit_net() of drivers/infiniband/core/device.c comes first: it was registered after
// default_device_exit_batch() of net/core/dev.c, which sends home what is hardware or says netns_refund
// (ipoib_link_ops), as dev%d when its name is taken.
void InfinibandNode::end_container() {
  for (std::size_t i = 0; i < state_->functions.size(); ++i) {
    if (state_->functions[i].netns != kContainerNetns) continue;
    state_->functions[i].netns = kNodeNetns;
    std::string line = fmt::format("kernel: {} -> node", state_->functions[i].rdma.data());
    make_netdev_anew(static_cast<int>(i), line);
    note(line);
  }
  for (IbLink& link : state_->links) {
    if (link.ifindex == 0 || link.netns != kContainerNetns) continue;
    if (link.function < 0) {
      link = {};
      continue;
    }
    std::string line = fmt::format("kernel: {} -> node", link.name.data());
    if (is_taken(kNodeNetns, link.name.data())) link.rename(fmt::format("dev{}", link.ifindex));
    link.netns = kNodeNetns;
    link.up = false;
    note(line);
  }
}

ScriptedReply InfinibandNode::answer(const ScriptedRequest& request) {
  // A killed process leaves what its last message did; what only asks is never the last.
  const IbState before = *state_;
  ScriptedReply reply = request.protocol == NETLINK_RDMA ? answer_rdma(request) : answer_route(request);
  if (state_->kill_after >= 0 && state_->count > state_->kill_after) {
    *state_ = before;
    ::_exit(kKilled);
  }
  return reply;
}

}  // namespace test_support
