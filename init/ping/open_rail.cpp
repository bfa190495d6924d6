#include "init/ping/open_rail.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "fabric/text.hpp"

namespace init::ping {
namespace {

constexpr std::uint64_t kWrite = 1;
constexpr std::uint64_t kReceive = 2;
constexpr std::uint64_t kBandwidth = 3;
// Writes for bandwidth: 2 MB at a time keep a link of 400 Gb/s busy for 40 us, several round trips.
constexpr unsigned kOutstanding = 4;
constexpr std::uint32_t kBandwidthBytes = 512 << 10;
// NCCL registers a buffer of NCCL_BUFFSIZE for each connection; default of src/include/comm.h, 2.30.7.
constexpr std::size_t kNcclBuffer = 4 << 20;
constexpr std::size_t kPage = 64 << 10;

// A word of the data that the owner of a queue pair writes in a round (splitmix64).
std::uint64_t word_of(std::uint32_t round, std::uint32_t queue_pair, std::size_t at) {
  std::uint64_t word = (std::uint64_t{round} << 32 | queue_pair) + (at + 1) * 0x9E3779B97F4A7C15U;
  word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9U;
  word = (word ^ word >> 27) * 0x94D049BB133111EBU;
  return word ^ word >> 31;
}

// Calls use(offset, bytes, word) for each word of `bytes` bytes; the last word may be shorter.
void each_word(std::uint32_t round, std::uint32_t queue_pair, std::size_t bytes, auto use) {
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t))
    use(at, std::min(sizeof(std::uint64_t), bytes - at), word_of(round, queue_pair, at));
}

unsigned bytes_of(ibv_mtu mtu) {
  return 128U << static_cast<unsigned>(mtu);
}

ibv_mtu mtu_of(unsigned bytes) {
  ibv_mtu mtu = IBV_MTU_256;
  while (mtu < IBV_MTU_4096 && bytes_of(mtu) < bytes)
    mtu = static_cast<ibv_mtu>(mtu + 1);
  return mtu;
}

// Returns the layer of a failed ibv_modify_qp() to RTR, for which the kernel looks up the route and the MAC address.
Layer layer_of(int error) {
  switch (error) {
    case ENETUNREACH:
      return Layer::kRoute;
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ETIMEDOUT:
      return Layer::kNeighbour;
    case ENODEV:
    case EINVAL:
      return Layer::kGid;
    default:
      return Layer::kVerbs;
  }
}

std::string memlock_text() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format("; RLIMIT_MEMLOCK is {} kB", limit.rlim_cur >> 10);
}

}  // namespace

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

OpenRail::~OpenRail() {
  pair_.reset();
  region_.reset();
  if (buffer_ != MAP_FAILED) munmap(buffer_, 2 * half_);
}

void OpenRail::fail(Layer layer, std::string detail) {
  if (!failure_.failed()) failure_ = {layer, std::move(detail)};
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
                      std::strerror(error), is_limit ? memlock_text() : "")};
}

Failure OpenRail::read_port(Rail& rail) {
  if (const int error = verbs_.query_port(context_.get(), port_, &attributes_))
    return {Layer::kVerbs, fmt::format("ibv_query_port: {}", std::strerror(error))};
  if (verbs_.query_gid(context_.get(), port_, gid_index_, &gid_) != 0)
    return {Layer::kGid, fmt::format("ibv_query_gid of index {}: {}", gid_index_, std::strerror(errno))};
  std::ranges::copy(gid_.raw, rail.gid.bytes.begin());
  rail.mtu = bytes_of(attributes_.active_mtu);
  if (rail.gid.is_zero()) return {Layer::kGid, fmt::format("the GID at index {} is empty", gid_index_)};
  return {};
}

Failure OpenRail::open(Rail& rail, std::uint32_t bytes) {
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
  channel_ = {verbs_.create_comp_channel(context_.get()), verbs_.destroy_comp_channel};
  if (!channel_) return {Layer::kVerbs, fmt::format("ibv_create_comp_channel: {}", std::strerror(errno))};
  queue_ = {verbs_.create_cq(context_.get(), kOutstanding + 2, nullptr, channel_.get(), 0), verbs_.destroy_cq};
  if (!queue_) {
    const int error = errno;
    return {error == ENOMEM ? Layer::kMemlock : Layer::kVerbs,
            fmt::format("ibv_create_cq: {}{}", std::strerror(error), error == ENOMEM ? memlock_text() : "")};
  }
  return read_port(rail);
}

Failure OpenRail::to_init() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = connecting_.pkey_index;
  attributes.port_num = port_;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int error =
      verbs_.modify_qp(pair_.get(), &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error == 0) return {};
  return {Layer::kVerbs, fmt::format("ibv_modify_qp of {} to INIT with P_Key index {}: {}", name_,
                                     connecting_.pkey_index, std::strerror(error))};
}

Contact OpenRail::make_queue_pair(std::uint32_t round, std::uint32_t bytes) {
  pair_.reset();
  // Completions of the former queue pair.
  ibv_wc completion{};
  while (ibv_poll_cq(queue_.get(), 1, &completion) > 0) {
  }
  failure_ = {};
  round_ = round;
  bytes_ = bytes;
  is_write_acknowledged_ = is_write_received_ = true;
  outstanding_ = 0;
  bandwidth_bytes_ = 0;
  bandwidth_since_ = bandwidth_until_ = bandwidth_end_ = 0;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = queue_.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = kOutstanding + 1;
  attributes.cap.max_recv_wr = 1;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  pair_ = {verbs_.create_qp(domain_.get(), &attributes), verbs_.destroy_qp};
  Contact contact;
  if (!pair_) {
    const int error = errno;
    contact.failure = {
        error == ENOMEM ? Layer::kMemlock : Layer::kVerbs,
        fmt::format("ibv_create_qp on {}: {}{}", name_, std::strerror(error), error == ENOMEM ? memlock_text() : "")};
    return contact;
  }
  contact.failure = to_init();
  ibv_recv_wr receive{};
  receive.wr_id = kReceive;
  ibv_recv_wr* bad = nullptr;
  if (const int error = contact.failure.failed() ? 0 : ibv_post_recv(pair_.get(), &receive, &bad))
    contact.failure = {Layer::kVerbs, fmt::format("ibv_post_recv on {}: {}", name_, std::strerror(error))};
  std::memset(received(), 0, bytes);
  contact.queue_pair = pair_->qp_num;
  contact.key = region_->rkey;
  contact.address = reinterpret_cast<std::uintptr_t>(received());
  std::ranges::copy(gid_.raw, contact.gid.bytes.begin());
  contact.lid = attributes_.lid;
  contact.mtu = static_cast<std::uint16_t>(bytes_of(attributes_.active_mtu));
  failure_ = contact.failure;
  return contact;
}

Failure OpenRail::to_rtr(const Contact& peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = std::min(attributes_.active_mtu, mtu_of(peer.mtu));
  attributes.dest_qp_num = peer.queue_pair;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.sl = connecting_.service_level;
  attributes.ah_attr.port_num = port_;
  attributes.ah_attr.dlid = peer.lid;
  // Bytes 6 and 7 of a GID are the end of the subnet prefix, by which NCCL decides whether a router is between two
  // ports. Bytes 4 and 5 are the FLID.
  const auto& theirs = peer.gid.bytes;
  if (!infiniband_ || !std::equal(theirs.begin() + 6, theirs.begin() + 8, gid_.raw + 6)) {
    attributes.ah_attr.is_global = 1;
    std::ranges::copy(theirs, attributes.ah_attr.grh.dgid.raw);
    attributes.ah_attr.grh.sgid_index = gid_index_;
    attributes.ah_attr.grh.hop_limit = 255;
    const auto flid = static_cast<std::uint16_t>(theirs[4] << 8 | theirs[5]);
    if (infiniband_ && flid != 0) attributes.ah_attr.dlid = flid;
    if (!infiniband_) attributes.ah_attr.grh.traffic_class = connecting_.traffic_class;
  }
  const int error = verbs_.modify_qp(pair_.get(), &attributes,
                                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error == 0) return {};
  return {layer_of(error), fmt::format("ibv_modify_qp of {} to RTR with GID index {} towards {}: {}", name_, gid_index_,
                                       to_string(peer.gid), std::strerror(error))};
}

Failure OpenRail::to_rts() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = connecting_.timeout;
  attributes.retry_cnt = connecting_.retries;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 1;
  const int error = verbs_.modify_qp(
      pair_.get(), &attributes,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error == 0) return {};
  return {Layer::kVerbs, fmt::format("ibv_modify_qp of {} to RTS: {}", name_, std::strerror(error))};
}

Failure OpenRail::connect(const Contact& peer) {
  peer_ = peer;
  if (!failure_.failed()) failure_ = to_rtr(peer);
  if (!failure_.failed()) failure_ = to_rts();
  return failure_;
}

void OpenRail::post_write(std::uint64_t id, std::uint32_t bytes) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(buffer_), bytes, region_->lkey};
  ibv_send_wr write{};
  write.wr_id = id;
  write.sg_list = &piece;
  write.num_sge = 1;
  write.opcode = id == kWrite ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  write.send_flags = IBV_SEND_SIGNALED;
  write.imm_data = htonl(round_);
  write.wr.rdma.remote_addr = peer_.address;
  write.wr.rdma.rkey = peer_.key;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(pair_.get(), &write, &bad))
    return fail(Layer::kVerbs, fmt::format("ibv_post_send on {}: {}", name_, std::strerror(error)));
  if (id == kWrite) is_write_acknowledged_ = false;
  if (id == kBandwidth) ++outstanding_;
}

void OpenRail::start_test() {
  each_word(round_, pair_->qp_num, bytes_, [&](std::size_t at, std::size_t count, std::uint64_t word) {
    std::memcpy(static_cast<char*>(buffer_) + at, &word, count);
  });
  is_write_received_ = false;
  post_write(kWrite, bytes_);
}

void OpenRail::start_bandwidth(double until) {
  if (failure_.failed()) return;
  bandwidth_since_ = clock_seconds();
  bandwidth_until_ = until;
  for (unsigned i = 0; i < kOutstanding; ++i)
    post_write(kBandwidth, kBandwidthBytes);
}

void OpenRail::check_data() {
  std::optional<std::size_t> wrong;
  each_word(round_, peer_.queue_pair, bytes_, [&](std::size_t at, std::size_t count, std::uint64_t word) {
    if (!wrong && std::memcmp(received() + at, &word, count) != 0) wrong = at;
  });
  if (wrong)
    fail(Layer::kData, fmt::format("{}: byte {} of {} differs from what the peer wrote", name_, *wrong, bytes_));
}

void OpenRail::take(const ibv_wc& completion) {
  if (completion.qp_num != pair_->qp_num) return;
  if (completion.status != IBV_WC_SUCCESS) {
    Layer layer = Layer::kVerbs;
    if (completion.status == IBV_WC_RETRY_EXC_ERR) layer = Layer::kRetry;
    if (completion.status == IBV_WC_RNR_RETRY_EXC_ERR) layer = Layer::kReceiver;
    return fail(layer,
                fmt::format("{} towards {}: {}", name_, to_string(peer_.gid), verbs_.wc_status_str(completion.status)));
  }
  if (completion.wr_id == kWrite) is_write_acknowledged_ = true;
  if (completion.wr_id == kReceive) {
    is_write_received_ = true;
    if (ntohl(completion.imm_data) != round_)
      return fail(Layer::kData, fmt::format("{}: the immediate data is of another round", name_));
    check_data();
  }
  if (completion.wr_id == kBandwidth) {
    --outstanding_;
    bandwidth_bytes_ += kBandwidthBytes;
    bandwidth_end_ = clock_seconds();
    if (bandwidth_end_ < bandwidth_until_) post_write(kBandwidth, kBandwidthBytes);
  }
}

bool OpenRail::take_completions() {
  std::array<ibv_wc, kOutstanding> completions{};
  const int count = ibv_poll_cq(queue_.get(), kOutstanding, completions.data());
  if (count < 0) fail(Layer::kVerbs, fmt::format("ibv_poll_cq on {} failed", name_));
  for (int i = 0; i < count; ++i)
    take(completions[static_cast<std::size_t>(i)]);
  return count > 0;
}

int OpenRail::arm() {
  if (ibv_req_notify_cq(queue_.get(), 0) != 0)
    fail(Layer::kVerbs, fmt::format("ibv_req_notify_cq on {} failed", name_));
  return channel_->fd;
}

void OpenRail::take_event() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (verbs_.get_cq_event(channel_.get(), &queue, &context) == 0) verbs_.ack_cq_events(queue, 1);
}

bool OpenRail::is_done() const {
  return failure_.failed() || (is_write_acknowledged_ && is_write_received_ && outstanding_ == 0);
}

void OpenRail::give_up(double seconds) {
  if (is_done()) return;
  const bool is_sent = is_write_acknowledged_ && outstanding_ == 0;
  const double last = 4.096e-6 * static_cast<double>(1U << connecting_.timeout) * (connecting_.retries + 1);
  fail(Layer::kRetry,
       fmt::format("{}: no {} {} within {:.0f} s ({})", name_, is_sent ? "write arrives from" : "acknowledgement from",
                   to_string(peer_.gid), seconds,
                   connecting_.timeout == 0 ? "NCCL_IB_TIMEOUT is 0, so NCCL waits without end"
                                            : fmt::format("NCCL gives up after {:.0f} s", last)));
}

std::uint32_t OpenRail::mbps() const {
  const double seconds = bandwidth_end_ - bandwidth_since_;
  if (bandwidth_bytes_ == 0 || seconds <= 0) return 0;
  return static_cast<std::uint32_t>(static_cast<double>(bandwidth_bytes_) * 8 / seconds / 1e6);
}

}  // namespace init::ping
