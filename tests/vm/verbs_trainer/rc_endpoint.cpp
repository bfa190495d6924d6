#include "rc_endpoint.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace trainer {

using namespace fabric;

namespace {

constexpr int kQueueDepth = 4;

Gid to_gid(const ibv_gid& gid) {
  Gid result;
  std::copy(std::begin(gid.raw), std::end(gid.raw), result.begin());
  return result;
}

int version_of(std::uint32_t gid_type) {
  if (gid_type == IBV_GID_TYPE_ROCE_V2) return 2;
  return gid_type == IBV_GID_TYPE_ROCE_V1 ? 1 : 0;
}

// Turns the return code of a verb into a Result. what: the verb, for the message.
Result<void> checked(int code, const std::string& what) {
  if (code != 0) return sys_error(code, "{}", what);
  return {};
}

// Returns a byte of a message. It differs between bytes and between rounds, so that stale memory is detected.
std::uint8_t pattern(std::uint32_t round, std::size_t position) {
  return static_cast<std::uint8_t>(std::size_t{round} * 131U + position * 7U + (position >> 8U));
}

ibv_qp_attr rtr_attributes(const EndpointAddress& twin, std::uint8_t port, int gid_index, bool ethernet, ibv_mtu mtu) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = mtu;
  attributes.dest_qp_num = twin.qp_number;
  attributes.rq_psn = twin.packet_sequence;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.port_num = port;
  attributes.ah_attr.dlid = twin.lid;
  attributes.ah_attr.is_global = ethernet ? 1 : 0;  // RoCE has no LIDs and is routed by GID
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
  attributes.ah_attr.grh.hop_limit = 64;
  std::copy(twin.gid.begin(), twin.gid.end(), std::begin(attributes.ah_attr.grh.dgid.raw));
  return attributes;
}

}  // namespace

std::string gid_text(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  return text;
}

fabric::Port read_gid_table(ibv_context& context, std::uint8_t port, int length) {
  fabric::Port table;
  for (int index = 0; index < length; ++index) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(&context, port, static_cast<std::uint32_t>(index), &entry, 0) != 0) continue;
    table.gids.push_back({static_cast<unsigned>(index),
                          {to_gid(entry.gid)},
                          version_of(entry.gid_type) == 2 ? "RoCE v2" : "IB/RoCE v1",
                          {}});
  }
  return table;
}

void Unmap::operator()(std::uint8_t* memory) const {
  munmap(memory, bytes);
}

Result<std::unique_ptr<RcEndpoint>> RcEndpoint::create(ibv_context& context, const Settings& settings) {
  std::unique_ptr<RcEndpoint> endpoint(new RcEndpoint(settings));
  TRY_VOID(endpoint->query_gid(context));
  endpoint->domain_.reset(ibv_alloc_pd(&context));
  if (!endpoint->domain_) return sys_error(errno, "ibv_alloc_pd");
  TRY_VOID(endpoint->register_memory());
  TRY_VOID(endpoint->make_queue_pair(context));
  TRY_VOID(endpoint->to_init());
  return endpoint;
}

Result<void> RcEndpoint::query_gid(ibv_context& context) {
  ibv_port_attr port{};
  TRY_VOID(checked(ibv_query_port(&context, settings_.port, &port), fmt::format("ibv_query_port {}", settings_.port)));
  if (port.state != IBV_PORT_ACTIVE) return make_error("the port is not active");
  mtu_ = port.active_mtu;
  ethernet_ = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  address_.lid = port.lid;
  if (settings_.gid_index >= port.gid_tbl_len || settings_.gid_index > 255)
    return make_error("GID index {} is beyond the table of {} entries", settings_.gid_index, port.gid_tbl_len);
  ibv_gid_entry entry{};
  TRY_VOID(
      checked(ibv_query_gid_ex(&context, settings_.port, static_cast<std::uint32_t>(settings_.gid_index), &entry, 0),
              fmt::format("query the GID at index {}", settings_.gid_index)));
  address_.gid = to_gid(entry.gid);
  roce_version_ = version_of(entry.gid_type);
  return {};
}

Result<void> RcEndpoint::register_memory() {
  // Populated pages of its own: registered memory is pinned, so that a limit of locked memory has an effect here.
  void* memory =
      mmap(nullptr, settings_.memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return sys_error(errno, "mmap {} bytes", settings_.memory);
  memory_ = {static_cast<std::uint8_t*>(memory), Unmap{settings_.memory}};
  // An int, because the macro of ibv_reg_mr mixes two enumerations, and clang warns about that.
  const int access = IBV_ACCESS_LOCAL_WRITE;
  region_.reset(ibv_reg_mr(domain_.get(), memory, settings_.memory, access));
  if (!region_) {
    auto error = sys_error(errno, "ibv_reg_mr of {} bytes", settings_.memory);
    if (error.code == ENOMEM) error.hint = "raise RLIMIT_MEMLOCK or grant CAP_IPC_LOCK";
    return error;
  }
  return {};
}

Result<void> RcEndpoint::make_queue_pair(ibv_context& context) {
  channel_.reset(ibv_create_comp_channel(&context));
  if (!channel_) return sys_error(errno, "ibv_create_comp_channel");
  completions_.reset(ibv_create_cq(&context, 2 * kQueueDepth, nullptr, channel_.get(), 0));
  if (!completions_) return sys_error(errno, "ibv_create_cq");
  TRY_VOID(checked(ibv_req_notify_cq(completions_.get(), 0), "ibv_req_notify_cq"));
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = completions_.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = kQueueDepth;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  queue_pair_.reset(ibv_create_qp(domain_.get(), &attributes));
  if (!queue_pair_) return sys_error(errno, "ibv_create_qp");
  address_.qp_number = queue_pair_->qp_num;
  return {};
}

Result<void> RcEndpoint::to_init() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = settings_.port;
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  return checked(ibv_modify_qp(queue_pair_.get(), &attributes, mask), "ibv_modify_qp to INIT");
}

Result<void> RcEndpoint::to_rts(const EndpointAddress& twin) {
  ibv_qp_attr attributes = rtr_attributes(twin, settings_.port, settings_.gid_index, ethernet_, mtu_);
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER;
  TRY_VOID(checked(ibv_modify_qp(queue_pair_.get(), &attributes, mask),
                   fmt::format("ibv_modify_qp to RTR towards {}", gid_text(twin.gid))));
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = address_.packet_sequence;
  attributes.timeout = 14;  // 4.096 us * 2^14 = 67 ms for each of the retries
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;  // without limit, because the twin can be slow
  attributes.max_rd_atomic = 1;
  mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  return checked(ibv_modify_qp(queue_pair_.get(), &attributes, mask), "ibv_modify_qp to RTS");
}

// The lower half of the memory has the sent messages, the upper half the received messages, in the order of the rounds.
std::span<std::uint8_t> RcEndpoint::send_buffer(std::uint32_t round) const {
  const std::size_t slots = settings_.memory / 2 / settings_.message;
  return {memory_.get() + (round % slots) * settings_.message, settings_.message};
}

std::span<std::uint8_t> RcEndpoint::receive_buffer(std::uint32_t round) const {
  return {send_buffer(round).data() + settings_.memory / 2, settings_.message};
}

Result<void> RcEndpoint::post_receive(std::uint32_t round) {
  const auto buffer = receive_buffer(round);
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(buffer.data()), settings_.message, region_->lkey};
  ibv_recv_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return checked(ibv_post_recv(queue_pair_.get(), &request, &bad), "ibv_post_recv");
}

Result<void> RcEndpoint::post_send(std::uint32_t round) {
  const auto buffer = send_buffer(round);
  for (std::size_t position = 0; position < buffer.size(); ++position)
    buffer[position] = pattern(round, position);
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(buffer.data()), settings_.message, region_->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  return checked(ibv_post_send(queue_pair_.get(), &request, &bad), "ibv_post_send");
}

// Sleeps on the completion channel, because a busy loop would use the only CPU of the guest, which the soft device
// needs.
Result<ibv_wc_opcode> RcEndpoint::wait_for_completion() {
  while (true) {
    ibv_wc completion{};
    const int count = ibv_poll_cq(completions_.get(), 1, &completion);
    if (count < 0) return make_error("ibv_poll_cq failed");
    if (count == 1) {
      if (completion.status == IBV_WC_SUCCESS) return completion.opcode;
      return make_error("completion with error {} ({})", static_cast<int>(completion.status),
                        ibv_wc_status_str(completion.status));
    }
    pollfd event{channel_->fd, POLLIN, 0};
    const int ready = poll(&event, 1, settings_.timeout * 1000);
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return sys_error(errno, "poll the completion channel");
    if (ready == 0)
      return make_error("no completion within {} s: nothing arrives with GID index {}", settings_.timeout,
                        settings_.gid_index);
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel_.get(), &queue, &context) != 0) return sys_error(errno, "ibv_get_cq_event");
    ibv_ack_cq_events(queue, 1);
    // Requested again before the next poll, so that no completion in between is missed.
    TRY_VOID(checked(ibv_req_notify_cq(queue, 0), "ibv_req_notify_cq"));
  }
}

Result<void> RcEndpoint::wait_for_round(std::uint32_t round) {
  while (sent_ <= round || received_ <= round) {
    const auto what = TRY(wait_for_completion());
    if (what == IBV_WC_RECV) {
      ++received_;
    } else {
      ++sent_;
    }
  }
  return {};
}

Result<void> RcEndpoint::check_received(std::uint32_t round) const {
  const auto buffer = receive_buffer(round);
  for (std::size_t position = 0; position < buffer.size(); ++position) {
    if (buffer[position] != pattern(round, position))
      return make_error("byte {} of round {} is not what the twin sent", position, round);
  }
  return {};
}

}  // namespace trainer
