// SPDX-License-Identifier: BSD-2-Clause
#include "line.h"

#include <cstring>

#include "meeting.h"

namespace verbena::network {
namespace {

constexpr uint64_t kWindow = 16;    // operations under way
constexpr uint64_t kReceives = 16;  // posted by the target
// A WRITE may come before its receive is posted: then the message kReceives before it has not been checked
// yet.
constexpr uint64_t kSlots = 2 * kReceives;
constexpr size_t kSlot = 80 * 1024;  // the longest message, and some
// Inline in the frame, in a receive slot, in pages, in chunks.
constexpr std::array<uint32_t, 4> kSizes = {8, 200, 4096, 70000};

Kind kind(uint64_t number) { return static_cast<Kind>(number % kKinds); }
uint32_t size_of(uint64_t number) { return kSizes[number / kKinds % kSizes.size()]; }

// How many of the operations before `number` are of this kind.
uint64_t before(uint64_t number, Kind wanted) {
  const uint64_t place = static_cast<uint64_t>(wanted);
  return number / kKinds + (number % kKinds > place ? 1 : 0);
}

// The messages that take a receive: of five operations the first two.
uint64_t arrival(uint64_t index) { return index / 2 * kKinds + index % 2; }
uint64_t arrivals_before(uint64_t number) {
  return before(number, Kind::kSend) + before(number, Kind::kWrite);
}

// Every second addition waits for the READs before it.
constexpr uint64_t kAddAfterRead =
    kKinds - static_cast<uint64_t>(Kind::kRead) + static_cast<uint64_t>(Kind::kAdd);
bool is_fenced(uint64_t number) { return kind(number) == Kind::kAdd && number / kKinds % 2 == 0; }

uint8_t pattern(uint64_t number, size_t offset) {
  return static_cast<uint8_t>(number * 131 + offset * 7 + (offset >> 8));
}

void fill(uint8_t* bytes, uint64_t number, size_t size) {
  std::memcpy(bytes, &number, sizeof number);
  for (size_t i = sizeof number; i < size; ++i) bytes[i] = pattern(number, i);
}

}  // namespace

// The counters are in the first slot, messages and answers in the others.
Line::Line(const Devices& devices, uint32_t number, bool initiator)
    : initiator_(initiator), number_(number), memory_((kSlots + 1) * kSlot), devices_(devices) {
  const int access =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  region_ = ibv_reg_mr(devices.pd, memory_.data(), memory_.size(), access);
  if (region_ == nullptr) give_up("ibv_reg_mr");
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = devices.cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = kWindow,
              .max_recv_wr = kReceives,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  qp_ = ibv_create_qp(devices.pd, &init);
  if (qp_ == nullptr) give_up("ibv_create_qp");
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = static_cast<unsigned>(access);
  if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
    give_up("ibv_modify_qp to INIT");
  if (!initiator_)
    while (receives_ < kReceives) post_receive(receives_++);
}

Address Line::address() const {
  Address own = {};
  if (ibv_query_gid(devices_.context, 1, devices_.gid_index, &own.gid) != 0) give_up("ibv_query_gid");
  ibv_port_attr port = {};
  if (ibv_query_port(devices_.context, 1, &port) != 0) give_up("ibv_query_port");
  own.memory = reinterpret_cast<uintptr_t>(memory_.data());
  own.rkey = region_->rkey;
  own.qpn = qp_->qp_num;
  own.psn = (qp_->qp_num * 7919) & 0xffffff;
  own.mtu = port.active_mtu;
  return own;
}

void Line::connect(const Address& peer, const Timing& timing) {
  peer_ = peer;
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = static_cast<ibv_mtu>(peer.mtu);
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh = {.dgid = peer.gid,
                      .flow_label = 0,
                      .sgid_index = static_cast<uint8_t>(devices_.gid_index),
                      .hop_limit = 64,
                      .traffic_class = 0};
  if (ibv_modify_qp(qp_, &attr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
    give_up("ibv_modify_qp to RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = address().psn;
  attr.timeout = timing.timeout;
  attr.retry_cnt = timing.retry_count;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  if (ibv_modify_qp(qp_, &attr,
                    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_MAX_QP_RD_ATOMIC) != 0)
    give_up("ibv_modify_qp to RTS");
}

uint8_t* Line::slot(uint64_t number) const { return memory_.data() + kSlot * (1 + number % kSlots); }

void Line::post_receive(uint64_t number) {
  ibv_sge sge = {reinterpret_cast<uintptr_t>(slot(number)), kSlot, region_->lkey};
  ibv_recv_wr wr = {}, *bad = nullptr;
  wr.wr_id = uint64_t{number_} << 32 | (number & UINT32_MAX);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  if (ibv_post_recv(qp_, &wr, &bad) != 0) give_up("ibv_post_recv");
}

// A WRITE goes into the buffer of the receive that it takes.
void Line::post_operation(uint64_t number) {
  const Kind what = kind(number);
  const bool message = what == Kind::kSend || what == Kind::kWrite;
  ibv_sge sge = {reinterpret_cast<uintptr_t>(slot(number)), message ? size_of(number) : 8, region_->lkey};
  ibv_send_wr wr = {}, *bad = nullptr;
  wr.wr_id = uint64_t{number_} << 32 | (number & UINT32_MAX);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED | (is_fenced(number) ? IBV_SEND_FENCE : 0);
  constexpr std::array<ibv_wr_opcode, kKinds> kOpcodes = {IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM,
                                                          IBV_WR_ATOMIC_FETCH_AND_ADD,
                                                          IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_RDMA_READ};
  wr.opcode = kOpcodes[static_cast<size_t>(what)];
  wr.imm_data = static_cast<uint32_t>(number);
  if (message) fill(slot(number), number, sge.length);
  const uint64_t target_slot = peer_.memory + kSlot * (1 + arrivals_before(number) % kSlots);
  const uint64_t counter = peer_.memory + (what == Kind::kSwap ? 8 : 0);
  if (what == Kind::kAdd || what == Kind::kSwap) {
    const uint64_t earlier = before(number, what);
    wr.wr.atomic = {.remote_addr = counter,
                    .compare_add = what == Kind::kAdd ? 1 : earlier,
                    .swap = earlier + 1,
                    .rkey = peer_.rkey};
  } else {
    wr.wr.rdma = {.remote_addr = what == Kind::kWrite ? target_slot : counter, .rkey = peer_.rkey};
  }
  if (ibv_post_send(qp_, &wr, &bad) != 0) give_up("ibv_post_send");
}

bool Line::post(uint64_t end) {
  while (!failed() && account_.posted < end && account_.posted < account_.completed + kWindow)
    post_operation(account_.posted++);
  return !failed();
}

void Line::check_answer(uint64_t number) {
  uint64_t answer;
  std::memcpy(&answer, slot(number), sizeof answer);
  const Kind counted = kind(number) == Kind::kRead ? Kind::kAdd : kind(number);
  const uint64_t wanted = before(number, counted);
  // A READ that is repeated is executed again, and then sees the results of later requests (InfiniBand
  // specification, 9.4.4), unless they have waited for it.
  const bool exact = kind(number) != Kind::kRead || is_fenced(number + kAddAfterRead);
  const uint64_t most = exact ? wanted : before(account_.posted, counted);
  if (answer < wanted || answer > most)
    complain("operation " + std::to_string(number) + " brought " + std::to_string(answer) + ", not " +
             std::to_string(wanted));
}

void Line::check_arrival(uint64_t number, const uint8_t* bytes, size_t size) {
  uint64_t said;
  std::memcpy(&said, bytes, sizeof said);
  if (said != number)
    return complain("message " + std::to_string(number) + " is number " + std::to_string(said));
  if (size != size_of(number)) return complain("message " + std::to_string(number) + " has another size");
  for (size_t i = sizeof said; i < size; ++i)
    if (bytes[i] != pattern(number, i))
      return complain("message " + std::to_string(number) + " has wrong bytes from " + std::to_string(i));
}

void Line::complete(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) {
    if (status_ == IBV_WC_SUCCESS) status_ = wc.status;
    return;
  }
  if (failed()) return complain("success after a failure");
  if (initiator_) {
    const uint64_t number = account_.completed++;
    if ((wc.wr_id & UINT32_MAX) != (number & UINT32_MAX)) return complain("completions are out of order");
    const Kind what = kind(number);
    if (what != Kind::kSend && what != Kind::kWrite) check_answer(number);
    return;
  }
  const uint64_t index = received_++;
  const uint64_t number = arrival(index);
  const bool write = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  if (write != (kind(number) == Kind::kWrite))
    complain("message " + std::to_string(number) + " came as another operation");
  else if (write && wc.imm_data != static_cast<uint32_t>(number))
    complain("message " + std::to_string(number) + " brought " + std::to_string(wc.imm_data));
  else
    check_arrival(number, slot(index), write ? size_of(number) : wc.byte_len);
  post_receive(receives_++);
}

void Line::compare(const Account& initiator, bool known) {
  const struct {
    const char* what;
    uint64_t seen, least, most;
  } rows[] = {
      {"messages", received_, arrivals_before(initiator.completed), arrivals_before(initiator.posted)},
      {"additions", added(), before(initiator.completed, Kind::kAdd), before(initiator.posted, Kind::kAdd)},
      {"exchanges", swapped(), before(initiator.completed, Kind::kSwap),
       before(initiator.posted, Kind::kSwap)},
  };
  for (const auto& row : rows)
    if (known && (row.seen < row.least || row.seen > row.most))
      complain(std::to_string(row.seen) + " " + row.what + ", of " + std::to_string(row.least) +
               " completed and " + std::to_string(row.most) + " posted");
}

void Line::complain(const std::string& sentence) {
  if (fault_.empty()) fault_ = "line " + std::to_string(number_) + ": " + sentence;
}

}  // namespace verbena::network
