#include "init/ping/open_rail.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/inventory.hpp"

namespace init::ping {
namespace {

// NCCL registers a buffer of NCCL_BUFFSIZE for each connection; default of src/include/comm.h, 2.30.7.
constexpr std::size_t kNcclBuffer = 4 << 20;
constexpr std::size_t kPage = 64 << 10;

}  // namespace

std::string memlock_text(int error) {
  rlimit limit{};
  if (error != ENOMEM || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format("; RLIMIT_MEMLOCK is {} kB", limit.rlim_cur >> 10);
}

OpenRail::~OpenRail() {
  region_.reset();
  if (buffer_ != MAP_FAILED) munmap(buffer_, 2 * half_);
}

Failure OpenRail::open_port(const Rail& rail) {
  int count = 0;
  ibv_device** const devices = verbs_.get_device_list(&count);
  if (devices == nullptr) return {Layer::kProvider, fmt::format("ibv_get_device_list: {}", std::strerror(errno))};
  ibv_device** const end = devices + count;
  ibv_device** const found =
      std::find_if(devices, end, [&](ibv_device* device) { return rail.device == verbs_.get_device_name(device); });
  Failure failure;
  if (found == end) {
    failure = {Layer::kProvider, fmt::format("libibverbs does not offer {}: it has no provider for it, or refuses the "
                                             "kernel's ABI version",
                                             rail.device)};
  } else {
    context_ = {verbs_.open_device(*found), verbs_.close_device};
    if (!context_)
      failure = {Layer::kProvider, fmt::format("ibv_open_device of {}: {}", rail.device, std::strerror(errno))};
  }
  verbs_.free_device_list(devices);
  return failure;
}

Failure OpenRail::register_buffer(std::uint32_t bytes) {
  half_ = std::max((bytes + kPage - 1) / kPage * kPage, kNcclBuffer / 2);
  buffer_ = mmap(nullptr, 2 * half_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer_ == MAP_FAILED)
    return {Layer::kVerbs, fmt::format("mmap of {} bytes: {}", 2 * half_, std::strerror(errno))};
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  region_ = {verbs_.reg_mr(domain_.get(), buffer_, 2 * half_, kAccess), verbs_.dereg_mr};
  if (region_) return {};
  const int error = errno;
  const bool is_limit = error == ENOMEM || error == EAGAIN || error == EPERM;
  return {is_limit ? Layer::kMemlock : Layer::kVerbs,
          fmt::format("ibv_reg_mr of {} kB, as NCCL registers for a connection: {}{}", 2 * half_ >> 10,
                      std::strerror(error), memlock_text(is_limit ? ENOMEM : error))};
}

Failure OpenRail::make_queue() {
  channel_ = {verbs_.create_comp_channel(context_.get()), verbs_.destroy_comp_channel};
  if (!channel_) return {Layer::kVerbs, fmt::format("ibv_create_comp_channel: {}", std::strerror(errno))};
  queue_ = {verbs_.create_cq(context_.get(), kCompletions, nullptr, channel_.get(), 0), verbs_.destroy_cq};
  if (queue_) return {};
  const int error = errno;
  return {error == ENOMEM ? Layer::kMemlock : Layer::kVerbs,
          fmt::format("ibv_create_cq: {}{}", std::strerror(error), memlock_text(error))};
}

Failure OpenRail::read_port(Rail& rail, std::uint16_t pkey_index) {
  if (const int error = verbs_.query_port(context_.get(), port_, &attributes_))
    return {Layer::kVerbs, fmt::format("ibv_query_port: {}", std::strerror(error))};
  if (verbs_.query_gid(context_.get(), port_, gid_index_, &gid_) != 0)
    return {Layer::kGid, fmt::format("ibv_query_gid of index {}: {}", gid_index_, std::strerror(errno))};
  std::ranges::copy(gid_.raw, rail.gid.bytes.begin());
  rail.mtu = mtu();
  // An index beyond the table is an error of ibv_modify_qp(), which names it.
  __be16 pkey = 0;
  const bool has_pkey = infiniband_ && verbs_.query_pkey(context_.get(), port_, pkey_index, &pkey) == 0;
  rail.pkey = has_pkey ? ntohs(pkey) : std::uint16_t{0};
  if (rail.gid.is_zero()) return {Layer::kGid, fmt::format("the GID at index {} is empty", gid_index_)};
  return {};
}

Failure OpenRail::open(Rail& rail, std::uint32_t bytes, std::uint16_t pkey_index) {
  name_ = fmt::format("{}:{}", rail.device, rail.port);
  port_ = static_cast<std::uint8_t>(rail.port);
  infiniband_ = rail.infiniband;
  if (rail.gid_index >= fabric::kUsableGids)
    return {Layer::kGid, fmt::format("GID index {} is above {}, which no queue pair can use", rail.gid_index,
                                     fabric::kUsableGids - 1)};
  gid_index_ = static_cast<std::uint8_t>(rail.gid_index);
  if (Failure failure = open_port(rail); failure.failed()) return failure;
  domain_ = {verbs_.alloc_pd(context_.get()), verbs_.dealloc_pd};
  if (!domain_) return {Layer::kVerbs, fmt::format("ibv_alloc_pd: {}", std::strerror(errno))};
  if (Failure failure = register_buffer(bytes); failure.failed()) return failure;
  if (Failure failure = make_queue(); failure.failed()) return failure;
  return read_port(rail, pkey_index);
}

int OpenRail::arm() {
  // A failure shows in the next poll of the queue.
  ibv_req_notify_cq(queue_.get(), 0);
  return channel_->fd;
}

void OpenRail::take_event() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (verbs_.get_cq_event(channel_.get(), &queue, &context) == 0) verbs_.ack_cq_events(queue, 1);
}

}  // namespace init::ping
