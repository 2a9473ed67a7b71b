// SPDX-License-Identifier: BSD-2-Clause
#include "endpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace verbena::crash {
namespace {

// A flow's region of the memory, in pages.
constexpr size_t kPage = 4096;
constexpr size_t kSendPages = kWindow;
constexpr size_t kReceiveAt = kSendPages;
constexpr size_t kWriteAt = kReceiveAt + kReceives + 1;  // one to spare
constexpr size_t kWritePages = kWriteSlots * kWriteSize / kPage;
constexpr size_t kReadAt = kWriteAt + kWritePages;
constexpr size_t kCounterAt = kReadAt + 1;
constexpr size_t kRegionSize = 32 * kPage;
static_assert((kCounterAt + 1) * kPage <= kRegionSize);

// An address where nothing is mapped otherwise, so that a program executed later can put a canary there.
constexpr uintptr_t kMemoryAddress = 0x2000'0000'0000;

constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint32_t kFirstPsn = 7;
constexpr uint64_t kReadNumber = UINT64_MAX;  // of the content that READs find

// CRASH_MEMORY=shared: of a file, so that peers map the memory as well and copy.
void* map_memory(size_t size) {
  const char* kind = getenv("CRASH_MEMORY");
  const bool is_shared = kind != nullptr && strcmp(kind, "shared") == 0;
  const int file = is_shared ? memfd_create("crash", MFD_CLOEXEC) : -1;
  if (is_shared && ftruncate(file, static_cast<off_t>(size)) != 0) return MAP_FAILED;
  return mmap(reinterpret_cast<void*>(kMemoryAddress), size, PROT_READ | PROT_WRITE,
              is_shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file, 0);
}

constexpr uint64_t kReceiveBit = uint64_t{1} << 63;
uint64_t id_of(int flow, uint64_t number) { return static_cast<uint64_t>(flow) << 56 | number; }

}  // namespace

size_t Endpoint::memory_size() const { return kRegionSize * kFlows; }
char* Endpoint::region(int flow) const {
  return static_cast<char*>(memory_) + static_cast<size_t>(flow) * kRegionSize;
}

uint64_t Endpoint::counter(int flow) const {
  return __atomic_load_n(reinterpret_cast<uint64_t*>(region(flow) + kCounterAt * kPage), __ATOMIC_ACQUIRE);
}

void Endpoint::report(const char* format, ...) {
  if (block_.has_problem.load() != 0) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(block_.problem, sizeof block_.problem, format, arguments);
  va_end(arguments);
  block_.has_problem.store(1);
}

bool Endpoint::open(int cqe, bool with_channel) {
  ibv_device** list = ibv_get_device_list(nullptr);
  if (list == nullptr || list[0] == nullptr) return report("no device"), false;
  context_ = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  if (context_ == nullptr) return report("ibv_open_device: errno %d", errno), false;
  pd_ = ibv_alloc_pd(context_);
  if (with_channel) channel_ = ibv_create_comp_channel(context_);
  cq_ = ibv_create_cq(context_, cqe, nullptr, channel_, 0);
  memory_ = map_memory(memory_size());
  if (pd_ == nullptr || cq_ == nullptr || memory_ == MAP_FAILED || (with_channel && channel_ == nullptr))
    return report("making objects: errno %d", errno), false;
  mr_ = ibv_reg_mr(pd_, memory_, memory_size(), kAccess);
  if (mr_ == nullptr) return report("ibv_reg_mr: errno %d", errno), false;
  if (ibv_query_gid(context_, 1, 0, &gid_) != 0 || ibv_query_port(context_, 1, &port_) != 0)
    return report("asking for the port: errno %d", errno), false;
  return true;
}

void Endpoint::close() {
  if (context_ == nullptr) return;
  for (int i = 0; i < kFlows; ++i)
    if (flows_[i].qp != nullptr) drop(i);
  int error = ibv_dereg_mr(mr_);
  if (error == 0) error = ibv_destroy_cq(cq_);
  if (error == 0 && channel_ != nullptr) error = ibv_destroy_comp_channel(channel_);
  if (error == 0) error = ibv_dealloc_pd(pd_);
  if (error == 0) error = ibv_close_device(context_);
  if (error != 0) report("teardown: errno %d", error);
  munmap(memory_, memory_size());
  context_ = nullptr;
}

bool Endpoint::make_qp(int f, PeerAddress* own) {
  Flow& flow = flows_[f];
  if (flow.qp != nullptr) return report("flow %d has a queue pair", f), false;
  flow = {};
  std::memset(region(f), 0, kRegionSize);
  FlowReport& told = block_.flows[f];
  for (auto* word : {&told.posted, &told.acknowledged, &told.flushed_sends, &told.receives_posted,
                     &told.received, &told.flushed_receives})
    word->store(0);
  told.first_failure.store(0);
  told.vendor_error.store(0);
  told.first_post_ns.store(0);
  told.failed_ns.store(0);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq_;
  init.cap.max_send_wr = kWindow;
  init.cap.max_recv_wr = kReceives;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  init.qp_type = IBV_QPT_RC;
  flow.qp = ibv_create_qp(pd_, &init);
  if (flow.qp == nullptr) return report("ibv_create_qp: errno %d", errno), false;
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAccess;
  if (int error =
          ibv_modify_qp(flow.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    return report("to INIT: errno %d", error), false;
  *own = {flow.qp->qp_num, mr_->rkey, reinterpret_cast<uint64_t>(region(f))};
  return true;
}

bool Endpoint::connect(int f, const PeerAddress& peer, uint8_t timeout, uint8_t retry_count) {
  Flow& flow = flows_[f];
  flow.peer = peer;
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = port_.active_mtu;
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = kFirstPsn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = gid_;
  attr.ah_attr.grh.hop_limit = 1;
  attr.ah_attr.dlid = port_.lid;
  attr.ah_attr.port_num = 1;
  if (int error = ibv_modify_qp(flow.qp, &attr,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    return report("to RTR: errno %d", error), false;
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = timeout;
  attr.retry_cnt = retry_count;
  attr.rnr_retry = 7;  // for ever
  attr.sq_psn = kFirstPsn;
  attr.max_rd_atomic = 1;
  if (int error = ibv_modify_qp(flow.qp, &attr,
                                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
    return report("to RTS: errno %d", error), false;
  return true;
}

bool Endpoint::start(int f, const FlowPlan& plan) {
  Flow& flow = flows_[f];
  flow.plan = plan;
  flow.active = plan.initiator;
  flow.running = true;
  while (!takes_receive(kind_of(plan.kind, flow.next_receive)) && plan.kind == Kind::kMixed)
    ++flow.next_receive;
  if (plan.initiator) return true;
  fill(region(f) + kReadAt * kPage, kBigSize, plan.salt, kReadNumber);
  for (uint64_t i = 0; i < kReceives; ++i)
    if (!post_receive(f, i)) return false;
  return true;
}

bool Endpoint::post_receive(int f, uint64_t buffer, void (*mark)()) {
  ibv_sge sge = {reinterpret_cast<uint64_t>(region(f) + (kReceiveAt + buffer) * kPage), kBigSize, mr_->lkey};
  ibv_recv_wr wr = {};
  wr.wr_id = kReceiveBit | id_of(f, buffer);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  block_.flows[f].receives_posted.fetch_add(1);
  if (mark != nullptr) mark();
  if (int error = ibv_post_recv(flows_[f].qp, &wr, &bad))
    return report("flow %d: ibv_post_recv: errno %d", f, error), false;
  return true;
}

bool Endpoint::post_next(int f, void (*mark)()) {
  Flow& flow = flows_[f];
  const uint64_t number = flow.posted;
  const Kind kind = kind_of(flow.plan.kind, number);
  const uint32_t size = size_of(kind, number);
  char* buffer = region(f) + number % kWindow * kPage;
  constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND,       IBV_WR_SEND,
                                        IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                        IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_FETCH_AND_ADD};
  ibv_sge sge = {reinterpret_cast<uint64_t>(buffer), size, mr_->lkey};
  ibv_send_wr wr = {};
  wr.wr_id = id_of(f, number);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = kOpcodes[static_cast<uint32_t>(kind)];
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.imm_data = static_cast<uint32_t>(number);
  switch (kind) {
    case Kind::kFetchAndAdd:
      wr.wr.atomic.remote_addr = flow.peer.address + kCounterAt * kPage;
      wr.wr.atomic.rkey = flow.peer.rkey;
      wr.wr.atomic.compare_add = 1;
      break;
    case Kind::kRead:
      std::memset(buffer, 0, size);
      wr.wr.rdma.remote_addr = flow.peer.address + kReadAt * kPage;
      break;
    default:
      fill(buffer, size, flow.plan.salt, number);
      wr.wr.rdma.remote_addr = flow.peer.address + kWriteAt * kPage + number % kWriteSlots * kWriteSize;
      break;
  }
  if (kind != Kind::kFetchAndAdd) wr.wr.rdma.rkey = flow.peer.rkey;
  flow.post_ns[number % kWindow] = now_ns();
  block_.flows[f].posted.store(++flow.posted);
  ibv_send_wr* bad = nullptr;
  if (mark != nullptr) mark();
  if (int error = ibv_post_send(flow.qp, &wr, &bad)) {
    flow.active = false;
    return report("flow %d: ibv_post_send of message %llu: errno %d", f,
                  static_cast<unsigned long long>(number), error),
           false;
  }
  return true;
}

void Endpoint::check_answer(int f, uint64_t number) {
  Flow& flow = flows_[f];
  const char* buffer = region(f) + number % kWindow * kPage;
  const Kind kind = kind_of(flow.plan.kind, number);
  if (kind == Kind::kRead && !holds(buffer, kBigSize, flow.plan.salt, kReadNumber))
    report("flow %d: READ %llu brought other bytes", f, static_cast<unsigned long long>(number));
  if (kind != Kind::kFetchAndAdd) return;
  uint64_t before;
  std::memcpy(&before, buffer, 8);
  // No other process adds there: each addition finds the value of the one before it.
  if (before != flow.fetched)
    report("flow %d: addition %llu found %llu instead of %llu", f, static_cast<unsigned long long>(number),
           static_cast<unsigned long long>(before), static_cast<unsigned long long>(flow.fetched));
  flow.fetched = before + 1;
}

bool Endpoint::handle_send(int f, const ibv_wc& wc) {
  Flow& flow = flows_[f];
  FlowReport& told = block_.flows[f];
  const uint64_t number = wc.wr_id & 0xff'ffff'ffff'ffff;
  if (number != flow.polled)
    return report("flow %d: completion of message %llu, expected %llu", f,
                  static_cast<unsigned long long>(number), static_cast<unsigned long long>(flow.polled)),
           false;
  ++flow.polled;
  if (wc.status == IBV_WC_SUCCESS) {
    if (told.first_failure.load() != 0)
      return report("flow %d: message %llu succeeded after a failure", f,
                    static_cast<unsigned long long>(number)),
             false;
    check_answer(f, number);
    told.acknowledged.fetch_add(1);
    return true;
  }
  flow.active = false;
  if (wc.status == IBV_WC_WR_FLUSH_ERR) told.flushed_sends.fetch_add(1);
  if (told.first_failure.load() == 0) {
    told.first_post_ns.store(flow.post_ns[number % kWindow]);
    told.failed_ns.store(now_ns());
    told.vendor_error.store(wc.vendor_err);
    told.first_failure.store(wc.status);
  } else if (wc.status != IBV_WC_WR_FLUSH_ERR) {
    return report("flow %d: %s after the first failure", f, ibv_wc_status_str(wc.status)), false;
  }
  return true;
}

bool Endpoint::handle_receive(int f, const ibv_wc& wc) {
  Flow& flow = flows_[f];
  FlowReport& told = block_.flows[f];
  const uint64_t buffer = wc.wr_id & 0xff;
  if (wc.status == IBV_WC_WR_FLUSH_ERR) return told.flushed_receives.fetch_add(1), true;
  if (wc.status != IBV_WC_SUCCESS)
    return report("flow %d: receive: %s", f, ibv_wc_status_str(wc.status)), false;
  if (told.flushed_receives.load() != 0)
    return report("flow %d: a message after a flushed receive", f), false;
  const uint64_t number = flow.next_receive;
  const Kind kind = kind_of(flow.plan.kind, number);
  const char* place = kind == Kind::kWriteWithImmediate
                          ? region(f) + kWriteAt * kPage + number % kWriteSlots * kWriteSize
                          : region(f) + (kReceiveAt + buffer) * kPage;
  if (!takes_receive(kind)) return report("flow %d: a message that nobody sends", f), false;
  const bool right_opcode =
      wc.opcode == (kind == Kind::kWriteWithImmediate ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
  if (!right_opcode || wc.byte_len != size_of(kind, number) ||
      !holds(place, wc.byte_len, flow.plan.salt, number)) {
    uint64_t other = number + 2 * kReceives;  // of which message are these bytes?
    while (other > 0 && !holds(place, 8, flow.plan.salt, other)) --other;
    uint32_t right = 0;
    while (right < wc.byte_len &&
           reinterpret_cast<const uint64_t*>(place)[right / 8] == word_of(flow.plan.salt, number, right / 8))
      right += 8;
    report(
        "flow %d: message %llu is not as it was sent: opcode %d, %u bytes, the first %u are right, they "
        "begin like "
        "message %llu",
        f, static_cast<unsigned long long>(number), wc.opcode, wc.byte_len, right,
        static_cast<unsigned long long>(other));
    return false;
  }
  told.received.fetch_add(1);
  do ++flow.next_receive;
  while (!takes_receive(kind_of(flow.plan.kind, flow.next_receive)));
  return post_receive(f, buffer);
}

bool Endpoint::handle(const ibv_wc& wc) {
  const int f = static_cast<int>(wc.wr_id >> 56 & 0x7f);
  if (f >= kFlows || flows_[f].qp == nullptr || flows_[f].qp->qp_num != wc.qp_num)
    return report("a completion of nobody: wr_id 0x%llx, QP 0x%x", static_cast<unsigned long long>(wc.wr_id),
                  wc.qp_num),
           false;
  return (wc.wr_id & kReceiveBit) != 0 ? handle_receive(f, wc) : handle_send(f, wc);
}

int Endpoint::poll_once(void (*mark)()) {
  ibv_wc wc[16];
  if (mark != nullptr) mark();
  const int count = ibv_poll_cq(cq_, 16, wc);
  if (mark != nullptr) mark();
  if (count < 0) report("ibv_poll_cq: %d", count);
  for (int i = 0; i < count; ++i) handle(wc[i]);
  return count;
}

int64_t Endpoint::pump() {
  int64_t wait_us = poll_once() > 0 ? 0 : -1;
  const int64_t now = now_ns();
  for (int f = 0; f < kFlows; ++f) {
    Flow& flow = flows_[f];
    const uint64_t window = flow.plan.kind == Kind::kFetchAndAdd ? 1 : kWindow;
    if (!flow.active || flow.posted - flow.polled >= window || flow.posted >= flow.plan.limit) continue;
    if (flow.next_post_ns > now) {
      const int64_t left = (flow.next_post_ns - now) / 1000 + 1;
      wait_us = wait_us < 0 ? left : std::min(wait_us, left);
      continue;
    }
    post_next(f);
    flow.next_post_ns = now + int64_t{flow.plan.pace_us} * 1000;
    wait_us = 0;
  }
  return wait_us;
}

bool Endpoint::has_active_flow() const {
  for (const Flow& flow : flows_)
    if (flow.running) return true;
  return false;
}

bool Endpoint::verify(int f, uint64_t acknowledged, uint64_t posted) {
  Flow& flow = flows_[f];
  const Kind kind = flow.plan.kind;
  uint64_t messages = 0, additions = 0, maybe_messages = 0, maybe_additions = 0;
  uint64_t newest[kWriteSlots];
  std::fill_n(newest, kWriteSlots, UINT64_MAX);
  for (uint64_t n = 0; n < posted; ++n) {
    const Kind what = kind_of(kind, n);
    const bool certain = n < acknowledged;
    if (takes_receive(what)) ++(certain ? messages : maybe_messages);
    if (what == Kind::kFetchAndAdd) ++(certain ? additions : maybe_additions);
    if (writes(what) && certain) newest[n % kWriteSlots] = n;
  }
  const uint64_t received = block_.flows[f].received.load();
  if (received < messages || received > messages + maybe_messages)
    return report("flow %d: %llu messages received, %llu acknowledged, %llu more posted", f,
                  static_cast<unsigned long long>(received), static_cast<unsigned long long>(messages),
                  static_cast<unsigned long long>(maybe_messages)),
           false;
  const uint64_t sum = counter(f);
  if (sum < additions || sum > additions + maybe_additions)
    return report("flow %d: the counter says %llu, %llu additions acknowledged, %llu more posted", f,
                  static_cast<unsigned long long>(sum), static_cast<unsigned long long>(additions),
                  static_cast<unsigned long long>(maybe_additions)),
           false;
  int torn = 0;
  for (uint64_t slot = 0; slot < kWriteSlots; ++slot) {
    const char* place = region(f) + kWriteAt * kPage + slot * kWriteSize;
    const uint64_t found = find_write(place, flow.plan.salt, slot, posted);
    if (found != UINT64_MAX && (newest[slot] == UINT64_MAX || found >= newest[slot])) continue;
    if (found == UINT64_MAX && newest[slot] == UINT64_MAX &&
        std::count(place, place + kWriteSize, 0) == kWriteSize)
      continue;
    bool in_doubt = false;  // an unacknowledged WRITE may lie there in part
    for (uint64_t n = acknowledged; n < posted; ++n)
      in_doubt = in_doubt || (writes(kind_of(kind, n)) && n % kWriteSlots == slot);
    if (found != UINT64_MAX || !in_doubt || ++torn > 1)
      return report("flow %d: slot %llu does not hold WRITE %llu or a later one (%d torn)", f,
                    static_cast<unsigned long long>(slot), static_cast<unsigned long long>(newest[slot]),
                    torn),
             false;
  }
  return true;
}

ibv_qp_state Endpoint::state(int f) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  if (flows_[f].qp == nullptr || ibv_query_qp(flows_[f].qp, &attr, IBV_QP_STATE, &init) != 0)
    return IBV_QPS_UNKNOWN;
  return attr.qp_state;
}

void Endpoint::turn(int f) { flows_[f].plan.kind = Kind::kSmallSend; }

bool Endpoint::drop(int f) {
  Flow& flow = flows_[f];
  if (flow.qp == nullptr) return true;
  if (int error = ibv_destroy_qp(flow.qp))
    return report("flow %d: ibv_destroy_qp: errno %d", f, error), false;
  flow = {};
  return true;
}

bool Endpoint::arm() {
  if (int error = ibv_req_notify_cq(cq_, 0)) return report("ibv_req_notify_cq: errno %d", error), false;
  return poll_once() == 0;
}

bool Endpoint::take_event() {
  ibv_cq* cq = nullptr;
  void* of = nullptr;
  if (ibv_get_cq_event(channel_, &cq, &of) != 0) return report("ibv_get_cq_event: errno %d", errno), false;
  ibv_ack_cq_events(cq, 1);
  return true;
}

}  // namespace verbena::crash
