// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/wr.h"

#include <algorithm>
#include <cstring>

#include "observe/log.h"
#include "rdma_core/qp_mark.h"
#include "verbs/domain.h"
#include "verbs/objects.h"

namespace verbena::verbs {

struct WrArena {
  VerbsPd* pd;
  bool from_domain;  // this memory is the PD's, which is a parent domain
  bool alone;
  pthread_mutex_t mutex;
  bool open;       // between start and complete or abort
  int error;       // of the batch: the first mistake
  uint32_t count;  // work requests of the batch
  uint32_t max_wr;
  uint32_t max_sge;
  uint32_t max_inline;
  size_t sges_used;
  size_t inline_used;
  ibv_send_wr* wrs;
  ibv_sge* sges;
  char* bytes;  // inline data
};

namespace {

// An atomic write copies its 8 bytes when it is built, whatever max_inline_data is.
constexpr uint32_t kAtomicWriteSize = 8;

WrArena& arena_of(ibv_qp_ex* qp) { return *to_qp(&qp->qp_base)->arena; }

void fail(WrArena& arena, int error) {
  if (arena.error == 0) arena.error = error;
}

// ---- the batch ----

void start(ibv_qp_ex* qp) {
  WrArena& arena = arena_of(qp);
  if (!arena.alone) pthread_mutex_lock(&arena.mutex);
  arena.open = true;
  arena.error = 0;
  arena.count = 0;
  arena.sges_used = arena.inline_used = 0;
}

void end(WrArena& arena) {
  arena.open = false;
  if (!arena.alone) pthread_mutex_unlock(&arena.mutex);
}

int complete(ibv_qp_ex* qp) {
  WrArena& arena = arena_of(qp);
  if (!arena.open) {  // the lock is not ours
    VERBENA_WARN(send_batch, "ibv_wr_complete: QP 0x%06x: ibv_wr_start has not been called",
                 qp->qp_base.qp_num);
    return EINVAL;
  }
  int error = arena.error;
  if (ibv_send_wr* const list = open_batch(qp); list != nullptr)
    error = post_send_batch(to_qp(&qp->qp_base)->emulated, list);
  end(arena);
  return error;
}

void abort(ibv_qp_ex* qp) {
  WrArena& arena = arena_of(qp);
  if (arena.open) end(arena);
}

// ---- operations ----

// The next work request of the batch, without data yet. If none is left, a dummy that is not posted.
ibv_send_wr& begin(ibv_qp_ex* qp, ibv_wr_opcode opcode) {
  WrArena& arena = arena_of(qp);
  if (arena.count == arena.max_wr) {
    fail(arena, ENOMEM);  // as of a full send queue
    --arena.count;
  }
  ibv_send_wr& wr = arena.wrs[arena.count++];
  wr.wr_id = qp->wr_id;
  wr.next = &wr + 1;
  wr.sg_list = nullptr;
  wr.num_sge = 0;
  wr.opcode = opcode;
  wr.send_flags = qp->wr_flags & ~static_cast<unsigned>(IBV_SEND_INLINE);  // the setter says so
  wr.imm_data = 0;
  wr.wr.atomic = {};  // nothing of an earlier batch is left if the program omits a setter
  wr.qp_type.xrc.remote_srqn = 0;
  return wr;
}

void send(ibv_qp_ex* qp) { begin(qp, IBV_WR_SEND); }
void send_imm(ibv_qp_ex* qp, __be32 imm_data) { begin(qp, IBV_WR_SEND_WITH_IMM).imm_data = imm_data; }
void send_inv(ibv_qp_ex* qp, uint32_t rkey) { begin(qp, IBV_WR_SEND_WITH_INV).invalidate_rkey = rkey; }
void local_inv(ibv_qp_ex* qp, uint32_t rkey) { begin(qp, IBV_WR_LOCAL_INV).invalidate_rkey = rkey; }

ibv_send_wr& begin_rdma(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote_addr) {
  ibv_send_wr& wr = begin(qp, opcode);
  wr.wr.rdma.remote_addr = remote_addr;
  wr.wr.rdma.rkey = rkey;
  return wr;
}
void rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
  begin_rdma(qp, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}
void rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, __be32 imm_data) {
  begin_rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr).imm_data = imm_data;
}
void rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
  begin_rdma(qp, IBV_WR_RDMA_READ, rkey, remote_addr);
}

void begin_atomic(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote_addr,
                  uint64_t compare_add, uint64_t swap) {
  ibv_send_wr& wr = begin(qp, opcode);
  wr.wr.atomic.remote_addr = remote_addr;
  wr.wr.atomic.compare_add = compare_add;
  wr.wr.atomic.swap = swap;
  wr.wr.atomic.rkey = rkey;
}
void atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t compare, uint64_t swap) {
  begin_atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}
void atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t add) {
  begin_atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add, 0);
}

void bind_mw(ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* bind_info) {
  ibv_send_wr& wr = begin(qp, IBV_WR_BIND_MW);
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = rkey;
  wr.bind_mw.bind_info = *bind_info;
}

// ---- setters: of the last work request built ----

ibv_send_wr* last(WrArena& arena) {
  if (arena.count != 0) return &arena.wrs[arena.count - 1];
  fail(arena, EINVAL);
  return nullptr;
}

void set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) {
  if (ibv_send_wr* wr = last(arena_of(qp)); wr != nullptr) {
    wr->wr.ud.ah = ah;
    wr->wr.ud.remote_qpn = remote_qpn;
    wr->wr.ud.remote_qkey = remote_qkey;
  }
}

void set_xrc_srqn(ibv_qp_ex* qp, uint32_t remote_srqn) {
  if (ibv_send_wr* wr = last(arena_of(qp)); wr != nullptr) wr->qp_type.xrc.remote_srqn = remote_srqn;
}

// Gives the last work request a list of `count` SGEs. nullptr: it cannot have one.
ibv_sge* give_list(WrArena& arena, size_t count) {
  ibv_send_wr* wr = last(arena);
  if (wr == nullptr) return nullptr;
  if (count > arena.max_sge || arena.sges_used + count > size_t{arena.max_wr} * arena.max_sge) {
    fail(arena, ENOMEM);
    return nullptr;
  }
  wr->sg_list = arena.sges + arena.sges_used;
  wr->num_sge = static_cast<int>(count);
  arena.sges_used += count;
  return wr->sg_list;
}

void set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t addr, uint32_t length) {
  if (ibv_sge* list = give_list(arena_of(qp), 1); list != nullptr) *list = {addr, length, lkey};
}

void set_sge_list(ibv_qp_ex* qp, size_t num_sge, const ibv_sge* sg_list) {
  if (ibv_sge* list = give_list(arena_of(qp), num_sge); list != nullptr) std::copy_n(sg_list, num_sge, list);
}

// The bytes are copied now: the program may reuse its buffers at once. They become one SGE, whatever the
// number of buffers.
void take_bytes(WrArena& arena, size_t count, const ibv_data_buf* buffers, size_t limit) {
  size_t length = 0;
  for (size_t i = 0; i < count; ++i) {
    if (buffers[i].length > limit - length) return fail(arena, ENOMEM);
    length += buffers[i].length;
  }
  if (arena.inline_used + length > size_t{arena.max_wr} * std::max(arena.max_inline, kAtomicWriteSize))
    return fail(arena, ENOMEM);
  ibv_sge* list = give_list(arena, 1);
  if (list == nullptr) return;
  char* to = arena.bytes + arena.inline_used;
  arena.inline_used += length;
  *list = {reinterpret_cast<uintptr_t>(to), static_cast<uint32_t>(length), 0};
  arena.wrs[arena.count - 1].send_flags |= IBV_SEND_INLINE;
  for (size_t i = 0; i < count; to += buffers[i++].length)
    if (buffers[i].length != 0) memcpy(to, buffers[i].addr, buffers[i].length);
}

void set_inline_data_list(ibv_qp_ex* qp, size_t num_buf, const ibv_data_buf* buf_list) {
  WrArena& arena = arena_of(qp);
  take_bytes(arena, num_buf, buf_list, arena.max_inline);
}

void set_inline_data(ibv_qp_ex* qp, void* addr, size_t length) {
  const ibv_data_buf buffer = {.addr = addr, .length = length};
  set_inline_data_list(qp, 1, &buffer);
}

void atomic_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, const void* atomic_wr) {
  begin_rdma(qp, kAtomicWrite, rkey, remote_addr);
  const ibv_data_buf buffer = {.addr = const_cast<void*>(atomic_wr), .length = kAtomicWriteSize};
  take_bytes(arena_of(qp), 1, &buffer, kAtomicWriteSize);
}

// ---- which functions a QP has ----

constexpr uint64_t kWithAtomicWrite = 1 << 12;  // IBV_QP_EX_WITH_ATOMIC_WRITE of rdma-core 43

// The member is part of struct ibv_qp_ex since rdma-core 43. The installed library may be older.
template <typename QpEx>
void define_atomic_write(QpEx* qp) {
  if constexpr (requires { qp->wr_atomic_write; }) qp->wr_atomic_write = atomic_write;
}
bool library_has_atomic_write() {
  constexpr size_t kEnd = offsetof(ibv_qp_ex, wr_abort) + 2 * sizeof(void*);
  return sizeof(ibv_qp_ex) >= kEnd && rdma_core::installed_qp_mark_offset() >= kEnd;
}

struct SendOp {
  uint64_t flag;  // enum ibv_qp_create_send_ops_flags
  ibv_wr_opcode opcode;
  void (*define)(ibv_qp_ex* qp);
};

const SendOp kSendOps[] = {
    {IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE, [](ibv_qp_ex* qp) { qp->wr_rdma_write = rdma_write; }},
    {IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
     [](ibv_qp_ex* qp) { qp->wr_rdma_write_imm = rdma_write_imm; }},
    {IBV_QP_EX_WITH_SEND, IBV_WR_SEND, [](ibv_qp_ex* qp) { qp->wr_send = send; }},
    {IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM, [](ibv_qp_ex* qp) { qp->wr_send_imm = send_imm; }},
    {IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ, [](ibv_qp_ex* qp) { qp->wr_rdma_read = rdma_read; }},
    {IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP,
     [](ibv_qp_ex* qp) { qp->wr_atomic_cmp_swp = atomic_cmp_swp; }},
    {IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD,
     [](ibv_qp_ex* qp) { qp->wr_atomic_fetch_add = atomic_fetch_add; }},
    {IBV_QP_EX_WITH_LOCAL_INV, IBV_WR_LOCAL_INV, [](ibv_qp_ex* qp) { qp->wr_local_inv = local_inv; }},
    {IBV_QP_EX_WITH_BIND_MW, IBV_WR_BIND_MW, [](ibv_qp_ex* qp) { qp->wr_bind_mw = bind_mw; }},
    {IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_SEND_WITH_INV, [](ibv_qp_ex* qp) { qp->wr_send_inv = send_inv; }},
    {kWithAtomicWrite, kAtomicWrite, [](ibv_qp_ex* qp) { define_atomic_write(qp); }},
};

}  // namespace

ibv_send_wr* open_batch(ibv_qp_ex* qp) {
  WrArena& arena = arena_of(qp);
  if (!arena.open || arena.error != 0 || arena.count == 0) return nullptr;
  arena.wrs[arena.count - 1].next = nullptr;
  return arena.wrs;
}

WrArena* make_wr_arena(const ibv_qp_cap& cap, VerbsPd* pd) {
  const size_t max_wr = std::max(cap.max_send_wr, 1u);
  const size_t max_sge = std::max(cap.max_send_sge, 1u);
  const size_t wr_bytes = max_wr * sizeof(ibv_send_wr);
  const size_t sge_bytes = max_wr * max_sge * sizeof(ibv_sge);
  const size_t data_bytes = max_wr * std::max(cap.max_inline_data, kAtomicWriteSize);
  bool from_domain = false;
  void* memory = allocate_in(pd, sizeof(WrArena) + wr_bytes + sge_bytes + data_bytes, Resource::kSendQueue,
                             &from_domain);
  if (memory == nullptr) return nullptr;
  auto* arena = static_cast<WrArena*>(memory);
  arena->pd = pd;
  arena->from_domain = from_domain;
  arena->alone = has_thread_domain(*pd);
  pthread_mutex_init(&arena->mutex, nullptr);
  arena->max_wr = static_cast<uint32_t>(max_wr);
  arena->max_sge = static_cast<uint32_t>(max_sge);
  arena->max_inline = cap.max_inline_data;
  char* behind = reinterpret_cast<char*>(arena + 1);
  arena->wrs = reinterpret_cast<ibv_send_wr*>(behind);
  arena->sges = reinterpret_cast<ibv_sge*>(behind + wr_bytes);
  arena->bytes = behind + wr_bytes + sge_bytes;
  return arena;
}

void free_wr_arena(WrArena* arena) {
  if (arena != nullptr) free_in(arena->pd, arena, Resource::kSendQueue, arena->from_domain);
}

int check_send_ops(ibv_qp_type type, uint64_t send_ops_flags) {
  for (const SendOp& op : kSendOps) {
    if ((send_ops_flags & op.flag) == 0) continue;
    if (const int error = check_send_operation(type, op.opcode); error != 0) return error;
    if (op.flag == kWithAtomicWrite && !library_has_atomic_write()) break;
    send_ops_flags &= ~op.flag;
  }
  if (send_ops_flags == 0) return 0;
  VERBENA_WARN(qp_operations,
               "ibv_create_qp_ex: send_ops_flags: the bits 0x%llx are of no operation of device and library",
               static_cast<unsigned long long>(send_ops_flags));
  return EOPNOTSUPP;
}

void define_send_ops(ibv_qp_ex* qp, ibv_qp_type type, uint64_t send_ops_flags) {
  for (const SendOp& op : kSendOps)
    if ((send_ops_flags & op.flag) != 0) op.define(qp);
  if (type == IBV_QPT_UD) qp->wr_set_ud_addr = set_ud_addr;
  if (type == IBV_QPT_XRC_SEND) qp->wr_set_xrc_srqn = set_xrc_srqn;
  qp->wr_set_sge = set_sge;
  qp->wr_set_sge_list = set_sge_list;
  qp->wr_set_inline_data = set_inline_data;
  qp->wr_set_inline_data_list = set_inline_data_list;
  qp->wr_start = start;
  qp->wr_complete = complete;
  qp->wr_abort = abort;
}

}  // namespace verbena::verbs
