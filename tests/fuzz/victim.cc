// SPDX-License-Identifier: BSD-2-Clause
#include "victim.h"

#include <fcntl.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "loopback_node.h"

namespace verbena::fuzz {
namespace {

constexpr size_t kGuard = 4096;
constexpr uint32_t kReceiveRoom = 40960, kReceiveStride = 49152, kReceives = 12;
constexpr int kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

ibv_ah_attr address_of(const uint8_t* gid) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.sgid_index = 1;
  attr.grh.hop_limit = 64;
  std::copy_n(gid, 16, attr.grh.dgid.raw);
  return attr;
}

}  // namespace

const std::array<uint8_t, 16>& Victim::secret() {
  static constexpr std::array<uint8_t, 16> kSecret{0x9e, 0x37, 0x79, 0xb9, 0x7f, 0x4a, 0x7c, 0x15,
                                                   0xf3, 0x9c, 0xc0, 0x60, 0x5c, 0xed, 0xc8, 0x34};
  return kSecret;
}

Victim::Victim(NetworkKind network)
    : folder_(make_folder()), node_(make_node(folder_, kVictim, kPort, network)) {
  setenv(kNodeVariable, node_.c_str(), 1);
  require(open_context("verbena0", &context_) == 0, "the device opens");
  for (Pd** const pd : {&pd_, &honest_pd_})
    require(alloc_pd(context_, pd) == 0, "there is a protection domain");
  lay_out();
  register_part(pd_, open, kAll);
  register_part(pd_, readable, IBV_ACCESS_REMOTE_READ);
  register_part(pd_, windowed, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  register_part(pd_, closed, IBV_ACCESS_LOCAL_WRITE);
  register_part(pd_, receives, IBV_ACCESS_LOCAL_WRITE);
  register_part(honest_pd_, honest, kAll);
  for (Cq** const cq : {&sends_, &receives_, &for_honest_})
    require(create_cq(context_, 4096, -1, 0, 0, cq) == 0, "there is a completion queue");
  if (network == NetworkKind::kRoce)  // of the IP version of the node's address
    group = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 192, 0, 77}};
  else
    group.raw[0] = 0xff, group.raw[1] = 0x0e, group.raw[15] = 77;
  make_queues();
}

// The secret everywhere; memory that may be read or written is cleared.
void Victim::lay_out() {
  struct {
    Part* part;
    size_t size;
  } const parts[] = {{&open, 1 << 20},
                     {&readable, 1 << 16},
                     {&windowed, 1 << 16},
                     {&closed, 4096},
                     {&receives, kReceives * kReceiveStride},
                     {&honest, 4096}};
  size_t size = kGuard;
  for (const auto& [part, bytes] : parts) size += bytes + kGuard;
  arena_.resize(size);
  for (size_t i = 0; i < size; ++i) arena_[i] = secret()[i % 16];
  uint8_t* next = arena_.data() + kGuard;
  for (const auto& [part, bytes] : parts) {
    part->bytes = next;
    part->size = bytes;
    next += bytes + kGuard;
  }
  std::memset(open.bytes, 0, open.size);
  std::memset(honest.bytes, 0, honest.size);
  std::memset(readable.bytes, 0x33, readable.size);
  std::memset(windowed.bytes + kBound, 0, kBoundSize);
  then_ = arena_;
}

void Victim::register_part(Pd* pd, Part& part, int access) {
  require(reg_mr(pd, part.bytes, part.size, part.address(), access, &part.mr) == 0, "memory is registered");
}

void Victim::make_queues() {
  ibv_srq_attr shared{64, 4, 0};
  require(create_srq(pd_, &shared, {}, 0, &shared_) == 0, "there is a shared receive queue");
  require(open_xrcd(context_, -1, O_CREAT, &domain_) == 0, "there is an XRC domain");
  ibv_srq_attr small{16, 2, 0}, large{512, 4, 0};
  require(create_srq(pd_, &small, {domain_, receives_}, 0, &small_shared) == 0, "there is an XRC SRQ");
  require(create_srq(pd_, &large, {domain_, receives_}, 0, &large_shared) == 0, "there is an XRC SRQ");
  queues[kOrdinary] = {nullptr, IBV_QPT_RC, kAll};
  queues[kWriteOnly] = {nullptr, IBV_QPT_RC, IBV_ACCESS_REMOTE_WRITE};
  queues[kUnreliable] = {nullptr, IBV_QPT_UC, IBV_ACCESS_REMOTE_WRITE};
  queues[kExtended] = {nullptr, IBV_QPT_XRC_RECV, kAll};
  queues[kExtendedSender] = {nullptr, IBV_QPT_XRC_SEND, kAll};
  queues[kDatagrams] = {nullptr, IBV_QPT_UD, 0};
  queues[kForHonest] = {nullptr, IBV_QPT_RC, kAll, kHonest};
  for (Queue& queue : queues) make_queue(queue);
  connect(queues[kForHonest]);
  connect(queues[kDatagrams]);
  require(attach_mcast(queues[kDatagrams].qp, &group, 0) == 0, "a queue pair is a member of a group");
  ibv_ah_attr address = address_of(loopback(kStrangers).bytes.data());
  require(create_ah(pd_, &address, &to_stranger_.emulated) == 0, "there is an address handle");
  address = address_of(group.raw);
  require(create_ah(pd_, &address, &to_group_.emulated) == 0, "there is an address handle");
}

void Victim::make_queue(Queue& queue) {
  ibv_qp_init_attr init{};
  init.cap = {64, 64, 4, 4, 0};
  init.qp_type = queue.type;
  init.sq_sig_all = 1;
  Srq* const from = &queue == &queues[kWriteOnly] ? shared_ : nullptr;
  const bool to_honest = queue.peer == kHonest;
  const int error = queue.type == IBV_QPT_XRC_RECV
                        ? create_xrc_recv_qp(domain_, 0, &queue.qp)
                        : create_qp(to_honest ? honest_pd_ : pd_, &init, to_honest ? for_honest_ : sends_,
                                    to_honest ? for_honest_ : receives_, 0, &queue.qp, from);
  require(error == 0, "there is a queue pair");
}

bool Victim::replace(Queue& queue) {
  if (queue.type == IBV_QPT_UD || queue.peer == kHonest) return false;
  uint32_t events = 0;
  const int error =
      queue.type == IBV_QPT_XRC_RECV ? close_qp(queue.qp, 0, &events) : destroy_qp(queue.qp, &events);
  require(error == 0, "a queue pair goes, whatever is under way");
  make_queue(queue);
  connect(queue);
  return true;
}

void Victim::connect(const Queue& queue) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!connected(queue))
    require(std::chrono::steady_clock::now() < deadline, "a peer that has hung up does no more harm");
}

void Victim::begin_again() {
  for (const Queue& queue : queues)
    if (queue.peer == kStrangers) connect(queue);
  next_receive_ = 0;
  bind_window();
  post_receives();
  poll();
}

// From RESET through INIT and RTR to RTS; false: a request that came in RTR has taken it to ERR.
bool Victim::connected(const Queue& queue) {
  Qp* const qp = queue.qp;
  const bool datagrams = queue.type == IBV_QPT_UD;
  const bool acknowledged = queue.type != IBV_QPT_UC && !datagrams;
  const bool sends = queue.type != IBV_QPT_XRC_RECV, receives_too = queue.type != IBV_QPT_XRC_SEND;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  require(modify_qp(qp, &attr, IBV_QP_STATE) == 0, "to RESET");
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = queue.access;
  attr.qkey = kQkey;
  require(modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                        (datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0,
          "to INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = theirs(static_cast<uint32_t>(&queue - queues.data()));
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr = address_of(loopback(queue.peer).bytes.data());
  int mask = IBV_QP_STATE;
  if (!datagrams) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (acknowledged && receives_too) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  require(modify_qp(qp, &attr, mask) == 0, "to RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.rnr_retry = attr.retry_cnt = 7;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (acknowledged) mask |= IBV_QP_TIMEOUT;
  if (acknowledged && sends) mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  if (modify_qp(qp, &attr, mask) == 0) return true;
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  require(query_qp(qp, &now, &init) == 0 && now.qp_state == IBV_QPS_ERR, "to RTS");
  return false;
}

// Each receive request has a place of its own, as many as there are places.
void Victim::post_receives() {
  const auto post = [&](int times, auto post_one) {
    const uint64_t place = uint64_t{next_receive_++ % kReceives} * kReceiveStride;
    ibv_sge sge{receives.address() + place, kReceiveRoom, mr_lkey(receives.mr)};
    ibv_recv_wr request{0, nullptr, &sge, 1}, *bad;
    for (int i = 0; i < times; ++i) post_one(&request, &bad);
  };
  for (const QueueName name : {kOrdinary, kUnreliable, kDatagrams})
    post(2, [&](ibv_recv_wr* request, ibv_recv_wr** bad) { post_recv(queues[name].qp, request, bad); });
  for (Srq* const srq : {shared_, small_shared, large_shared})
    post(srq == large_shared ? 4 : 1,
         [&](ibv_recv_wr* request, ibv_recv_wr** bad) { post_srq_recv(srq, request, bad); });
}

void Victim::post_receive_for_honest() {
  ibv_sge sge{honest.address() + kReceivesAt, 1024, mr_lkey(honest.mr)};
  ibv_recv_wr request{0, nullptr, &sge, 1}, *bad;
  require(post_recv(queues[kForHonest].qp, &request, &bad) == 0, "a receive request");
}

void Victim::post_request(const Queue& queue, ibv_send_wr request, Part& part, uint64_t offset,
                          uint32_t size) {
  ibv_sge sge{part.address() + offset, size, mr_lkey(part.mr)};
  ibv_send_wr* bad;
  request.sg_list = &sge;
  request.num_sge = 1;
  post_send(queue.qp, &request, &bad);  // it may be in ERR by now, or full
}

void Victim::post_requests(Input& input) {
  struct Row {
    QueueName queue;
    ibv_wr_opcode opcode;
    uint32_t size;
  };
  static constexpr Row kRows[] = {
      {kOrdinary, IBV_WR_RDMA_READ, 64},
      {kOrdinary, IBV_WR_RDMA_READ, 100'000},
      {kOrdinary, IBV_WR_RDMA_WRITE, 64},
      {kOrdinary, IBV_WR_RDMA_WRITE, 300'000},
      {kOrdinary, IBV_WR_ATOMIC_FETCH_AND_ADD, 8},
      {kOrdinary, IBV_WR_ATOMIC_CMP_AND_SWP, 8},
      {kOrdinary, IBV_WR_SEND, 20'000},
      {kWriteOnly, IBV_WR_SEND_WITH_IMM, 200},
      {kUnreliable, IBV_WR_RDMA_WRITE, 40'000},
      {kUnreliable, IBV_WR_SEND, 100},
      {kExtendedSender, IBV_WR_SEND, 30'000},
      {kExtendedSender, IBV_WR_RDMA_READ, 2000},
      {kDatagrams, IBV_WR_SEND, 500},
      {kDatagrams, IBV_WR_SEND_WITH_IMM, 60},
  };
  const Row& row = kRows[input.below(std::size(kRows))];
  ibv_send_wr request{};
  request.opcode = row.opcode;
  request.wr.rdma.remote_addr = 4096;
  if (row.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || row.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
    request.wr.atomic = {4096, 1, 2, 3};
  if (row.queue == kExtendedSender) request.qp_type.xrc.remote_srqn = 5;
  if (row.queue == kDatagrams) {
    const bool to_all = row.opcode == IBV_WR_SEND_WITH_IMM;
    request.wr.ud = {&(to_all ? to_group_ : to_stranger_).base, to_all ? 0xffffffu : theirs(input.below(16)),
                     kQkey};
  }
  post_request(queues[row.queue], request, open, 0, row.size);
}

// Allocates a new window, since the stranger may have invalidated the key of the last one.
void Victim::bind_window() {
  if (window_ != nullptr) require(dealloc_mw(window_) == 0, "a window goes, bound or not");
  require(alloc_mw(pd_, IBV_MW_TYPE_2, &window_) == 0, "there is a memory window");
  ibv_mr region{};
  region.lkey = mr_lkey(windowed.mr);
  ibv_mw handle{};
  handle.type = IBV_MW_TYPE_2;
  handle.rkey = mw_rkey(window_);
  window_key = ibv_inc_rkey(handle.rkey);
  ibv_send_wr request{}, *bad;
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw = {
      &handle,
      window_key,
      {&region, windowed.address() + kBound, kBoundSize, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ}};
  post_send(queues[kOrdinary].qp, &request, &bad);  // it may be in ERR by now
}

void Victim::register_again() {
  require(dereg_mr(open.mr) == 0, "memory is deregistered");
  register_part(pd_, open, kAll);
}

void Victim::poll() {
  ibv_wc wc[16];
  for (Cq* const cq : {sends_, receives_})
    while (poll_cq(cq, 16, wc) > 0) {
    }
}

void Victim::require_same(const uint8_t* from, const uint8_t* to) const {
  require(std::memcmp(from, then_.data() + (from - arena_.data()), static_cast<size_t>(to - from)) == 0,
          "memory changes only where its owner allows it");
}

void Victim::require_untouched() const {
  require_same(arena_.data(), open.bytes);
  require_same(open.bytes + open.size, windowed.bytes + kBound);
  require_same(windowed.bytes + kBound + kBoundSize, receives.bytes);
  for (uint32_t i = 0; i < kReceives; ++i)
    require_same(receives.bytes + uint64_t{i} * kReceiveStride + kReceiveRoom,
                 receives.bytes + uint64_t{i + 1} * kReceiveStride);
  require_same(receives.bytes + receives.size, honest.bytes);
  require_same(honest.bytes + honest.size, arena_.data() + arena_.size());
}

}  // namespace verbena::fuzz
