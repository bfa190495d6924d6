#include "init/ping/queue_pair.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/timing.hpp"

namespace init::ping {
namespace {

constexpr std::uint64_t kWrite = 1;
constexpr std::uint64_t kReceive = 2;
constexpr std::uint64_t kBandwidth = 3;
// Writes for bandwidth: 2 MB at a time keep a link of 400 Gb/s busy for 40 us, several round trips.
constexpr unsigned kOutstanding = 4;
constexpr std::uint32_t kBandwidthBytes = 512 << 10;
static_assert(kOutstanding + 2 <= OpenRail::kCompletions);

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

ibv_mtu mtu_of(unsigned bytes) {
  ibv_mtu mtu = IBV_MTU_256;
  while (mtu < IBV_MTU_4096 && (128U << static_cast<unsigned>(mtu)) < bytes)
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

}  // namespace

QueuePair::QueuePair(OpenRail& rail, const Connecting& connecting, std::uint32_t round, std::uint32_t bytes)
    : rail_(rail), connecting_(connecting), round_(round), bytes_(bytes) {
  ibv_wc completion{};
  while (ibv_poll_cq(rail_.queue(), 1, &completion) > 0) {
  }
  std::memset(rail_.received(), 0, bytes_);
  make();
  if (!failure_.failed()) to_init();
  if (!failure_.failed()) post_receive();
}

void QueuePair::fail(Layer layer, std::string detail) {
  if (!failure_.failed()) failure_ = {layer, std::move(detail)};
}

void QueuePair::make() {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = rail_.queue();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = kOutstanding + 1;
  attributes.cap.max_recv_wr = 1;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  pair_ = {rail_.verbs().create_qp(rail_.domain(), &attributes), rail_.verbs().destroy_qp};
  if (pair_) return;
  const int error = errno;
  fail(error == ENOMEM ? Layer::kMemlock : Layer::kVerbs,
       fmt::format("ibv_create_qp on {}: {}{}", rail_.name(), std::strerror(error), memlock_text(error)));
}

int QueuePair::modify(ibv_qp_attr& attributes, int mask) {
  return rail_.verbs().modify_qp(pair_.get(), &attributes, IBV_QP_STATE | mask);
}

void QueuePair::to_init() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = connecting_.pkey_index;
  attributes.port_num = rail_.port();
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (const int error = modify(attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) {
    fail(Layer::kVerbs, fmt::format("ibv_modify_qp of {} to INIT with P_Key index {}: {}", rail_.name(),
                                    connecting_.pkey_index, std::strerror(error)));
  }
}

void QueuePair::post_receive() {
  ibv_recv_wr receive{};
  receive.wr_id = kReceive;
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(pair_.get(), &receive, &bad))
    fail(Layer::kVerbs, fmt::format("ibv_post_recv on {}: {}", rail_.name(), std::strerror(error)));
}

Contact QueuePair::contact() const {
  Contact contact;
  contact.failure = failure_;
  if (pair_) contact.queue_pair = pair_->qp_num;
  contact.key = rail_.region().rkey;
  contact.address = reinterpret_cast<std::uintptr_t>(rail_.received());
  std::ranges::copy(rail_.gid().raw, contact.gid.bytes.begin());
  contact.lid = rail_.attributes().lid;
  contact.mtu = static_cast<std::uint16_t>(rail_.mtu());
  return contact;
}

void QueuePair::to_rtr() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = std::min(rail_.attributes().active_mtu, mtu_of(peer_.mtu));
  attributes.dest_qp_num = peer_.queue_pair;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  ibv_ah_attr& path = attributes.ah_attr;
  path.sl = connecting_.service_level;
  path.port_num = rail_.port();
  path.dlid = peer_.lid;
  // Bytes 6 and 7 of a GID are the end of the subnet prefix, by which NCCL decides whether a router is between two
  // ports. Bytes 4 and 5 are the FLID.
  const auto& theirs = peer_.gid.bytes;
  if (!rail_.is_infiniband() || !std::equal(theirs.begin() + 6, theirs.begin() + 8, rail_.gid().raw + 6)) {
    path.is_global = 1;
    std::ranges::copy(theirs, path.grh.dgid.raw);
    path.grh.sgid_index = rail_.gid_index();
    path.grh.hop_limit = 255;
    const auto flid = static_cast<std::uint16_t>(theirs[4] << 8 | theirs[5]);
    if (rail_.is_infiniband() && flid != 0) path.dlid = flid;
    if (!rail_.is_infiniband()) path.grh.traffic_class = connecting_.traffic_class;
  }
  const int error = modify(attributes, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error == 0) return;
  fail(layer_of(error), fmt::format("ibv_modify_qp of {} to RTR with GID index {} towards {}: {}", rail_.name(),
                                    rail_.gid_index(), to_string(peer_.gid), std::strerror(error)));
}

void QueuePair::to_rts() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = connecting_.timeout;
  attributes.retry_cnt = connecting_.retries;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 1;
  if (const int error = modify(
          attributes, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
    fail(Layer::kVerbs, fmt::format("ibv_modify_qp of {} to RTS: {}", rail_.name(), std::strerror(error)));
}

Failure QueuePair::connect(const Contact& peer) {
  peer_ = peer;
  if (!failure_.failed()) to_rtr();
  if (!failure_.failed()) to_rts();
  return failure_;
}

void QueuePair::post_write(std::uint64_t id, std::uint32_t bytes) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(rail_.to_send()), bytes, rail_.region().lkey};
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
    return fail(Layer::kVerbs, fmt::format("ibv_post_send on {}: {}", rail_.name(), std::strerror(error)));
  if (id == kWrite) is_write_acknowledged_ = false;
  if (id == kBandwidth) ++outstanding_;
}

void QueuePair::start_test() {
  each_word(round_, pair_->qp_num, bytes_, [&](std::size_t at, std::size_t count, std::uint64_t word) {
    std::memcpy(rail_.to_send() + at, &word, count);
  });
  is_write_received_ = false;
  post_write(kWrite, bytes_);
}

void QueuePair::start_bandwidth(double until) {
  if (failure_.failed()) return;
  bandwidth_since_ = clock_seconds();
  bandwidth_until_ = until;
  for (unsigned i = 0; i < kOutstanding; ++i)
    post_write(kBandwidth, kBandwidthBytes);
}

void QueuePair::check_data() {
  std::optional<std::size_t> wrong;
  each_word(round_, peer_.queue_pair, bytes_, [&](std::size_t at, std::size_t count, std::uint64_t word) {
    if (!wrong && std::memcmp(rail_.received() + at, &word, count) != 0) wrong = at;
  });
  if (wrong)
    fail(Layer::kData, fmt::format("{}: byte {} of {} differs from what the peer wrote", rail_.name(), *wrong, bytes_));
}

void QueuePair::take(const ibv_wc& completion) {
  if (completion.qp_num != pair_->qp_num) return;
  if (completion.status != IBV_WC_SUCCESS) {
    Layer layer = Layer::kVerbs;
    if (completion.status == IBV_WC_RETRY_EXC_ERR) layer = Layer::kRetry;
    if (completion.status == IBV_WC_RNR_RETRY_EXC_ERR) layer = Layer::kReceiver;
    return fail(layer, fmt::format("{} towards {}: {}", rail_.name(), to_string(peer_.gid),
                                   rail_.verbs().wc_status_str(completion.status)));
  }
  if (completion.wr_id == kWrite) is_write_acknowledged_ = true;
  if (completion.wr_id == kReceive) {
    is_write_received_ = true;
    if (ntohl(completion.imm_data) != round_)
      return fail(Layer::kData, fmt::format("{}: the immediate data is of another round", rail_.name()));
    check_data();
  }
  if (completion.wr_id == kBandwidth) take_bandwidth();
}

void QueuePair::take_bandwidth() {
  --outstanding_;
  bandwidth_bytes_ += kBandwidthBytes;
  bandwidth_end_ = clock_seconds();
  if (bandwidth_end_ < bandwidth_until_) post_write(kBandwidth, kBandwidthBytes);
}

bool QueuePair::take_completions() {
  std::array<ibv_wc, OpenRail::kCompletions> completions{};
  const int count = ibv_poll_cq(rail_.queue(), static_cast<int>(completions.size()), completions.data());
  if (count < 0) fail(Layer::kVerbs, fmt::format("ibv_poll_cq on {} failed", rail_.name()));
  for (int i = 0; i < count; ++i)
    take(completions[static_cast<std::size_t>(i)]);
  return count > 0;
}

bool QueuePair::is_done() const {
  return failure_.failed() || (is_write_acknowledged_ && is_write_received_ && outstanding_ == 0);
}

void QueuePair::end_test(double seconds) {
  if (is_done()) return;
  // Ignores outstanding writes for bandwidth: a slow link needs more time for them.
  if (is_write_acknowledged_ && is_write_received_) {
    if (bandwidth_bytes_ == 0)
      fail(Layer::kReceiver, fmt::format("{}: no write of {} kB is acknowledged by {} within {:.0f} s", rail_.name(),
                                         kBandwidthBytes >> 10, to_string(peer_.gid), seconds));
    outstanding_ = 0;
    return;
  }
  const double last = 4.096e-6 * static_cast<double>(1U << (connecting_.timeout & 31U)) * (connecting_.retries + 1);
  fail(Layer::kRetry, fmt::format("{}: no {} {} within {:.0f} s ({})", rail_.name(),
                                  is_write_acknowledged_ ? "write arrives from" : "acknowledgement from",
                                  to_string(peer_.gid), seconds,
                                  connecting_.timeout == 0 ? "NCCL_IB_TIMEOUT is 0, so NCCL waits without end"
                                                           : fmt::format("NCCL gives up after {:.0f} s", last)));
}

std::uint32_t QueuePair::mbps() const {
  const double seconds = bandwidth_end_ - bandwidth_since_;
  if (bandwidth_bytes_ == 0 || seconds <= 0) return 0;
  return static_cast<std::uint32_t>(static_cast<double>(bandwidth_bytes_) * 8 / seconds / 1e6);
}

}  // namespace init::ping
