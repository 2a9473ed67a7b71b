// SPDX-License-Identifier: BSD-2-Clause
#include "fake_emulator.h"

#include <fcntl.h>

#include <cstdio>
#include <cstring>

#include "insight.h"
#include "program_memory.h"
#include "sigbus.h"

namespace verbena {

FakeEmulator fake;

struct Context {};
struct Pd {};
struct Mr {};
struct Cq {};
struct Qp {};
struct Ah {};
struct Srq {};
struct Xrcd {};
struct Mw {};
struct Dm {};
struct SteeredFlow {};
struct Wq {};
struct RwqTable {};
struct Counters {};

namespace {

Context the_context;
Pd the_pd;
Mr the_mr;
Cq the_cq;
Qp the_qp;
Ah the_ah;
Srq the_srq;
Xrcd the_xrcd;
Mw the_mw;
Dm the_dm;
SteeredFlow the_flow;
Wq the_wq;
RwqTable the_table;
Counters the_counters;

template <typename Object>
int make(Object* object, Object** out) {
  if (fake.error != 0) return fake.error;
  fake.objects++;
  *out = object;
  return 0;
}

int unmake() {
  if (fake.error != 0) return fake.error;
  fake.objects--;
  return 0;
}

}  // namespace

int open_context(const char* name, Context** out) {
  snprintf(fake.device, sizeof(fake.device), "%s", name);
  if (fake.error != 0) return fake.error;
  fake.contexts++;
  *out = &the_context;
  return 0;
}
int import_context(const Context*, Context** out) {
  if (fake.error != 0) return fake.error;
  fake.contexts++;
  *out = &the_context;
  return 0;
}
bool close_context(Context*) {
  fake.contexts--;
  return fake.objects_left;
}
int context_async_fd(const Context*) { return fake.async_fd = open("/dev/null", O_RDONLY | O_CLOEXEC); }

int query_device(Context*, ibv_device_attr_ex* attr) {
  if (fake.error != 0) return fake.error;
  memset(attr, 0x5a, sizeof(*attr));
  return 0;
}
int query_port(Context*, uint8_t port, ibv_port_attr* attr) {
  attr->lid = port;
  attr->active_speed = fake.active_speed;
  attr->active_width = fake.active_width;
  return fake.error;
}
uint64_t device_clock(const Context*) { return fake.clock; }

int alloc_pd(Context*, Pd** out) { return make(&the_pd, out); }
int dealloc_pd(Pd*) { return unmake(); }
void log_busy_pd(const Pd*, uint32_t) {}
uint32_t pd_handle(const Pd*) { return 11; }
bool is_of(const Pd*, const Context*) { return true; }

int reg_mr(Pd*, void*, size_t, uint64_t iova, int access, Mr** out) {
  fake.iova = iova;
  fake.access = access;
  return make(&the_mr, out);
}
int dereg_mr(Mr*) { return unmake(); }
uint32_t mr_lkey(const Mr*) { return 0x100; }
uint32_t mr_rkey(const Mr*) { return 0x200; }
uint32_t mr_handle(const Mr*) { return 12; }
bool is_of(const Mr*, const Context*) { return true; }

size_t mr_length(const Mr*) { return 100; }
int rereg_mr(Mr*, int flags, Pd* pd, void*, size_t, int access) {
  fake.rereg_flags = flags;
  fake.rereg_pd = pd;
  fake.access = access;
  return fake.error;
}
int alloc_null_mr(Pd*, Mr** out) { return make(&the_mr, out); }
int reg_dmabuf_mr(Pd*, uint64_t, size_t, uint64_t iova, int, int access, Mr** out) {
  fake.iova = iova;
  fake.access = access;
  return make(&the_mr, out);
}
int advise_mr(Pd*, ibv_advise_mr_advice, uint32_t, const ibv_sge*, uint32_t) { return fake.error; }

int import_pd(Context*, uint32_t, Pd** out) {
  *out = &the_pd;
  return fake.error;
}
void unimport_pd(Pd*) { fake.unimported++; }
int import_mr(Pd*, uint32_t, Mr** out) {
  *out = &the_mr;
  return fake.error;
}
int import_dm(Context*, uint32_t, Dm** out) {
  *out = &the_dm;
  return fake.error;
}

int alloc_mw(Pd*, ibv_mw_type, Mw** out) { return make(&the_mw, out); }
int dealloc_mw(Mw*) { return unmake(); }
uint32_t mw_rkey(const Mw*) { return 0x3ff; }
uint32_t mw_handle(const Mw*) { return 15; }
bool is_of(const Mw*, const Context*) { return true; }

int alloc_dm(Context*, const ibv_alloc_dm_attr*, Dm** out) { return make(&the_dm, out); }
int free_dm(Dm*) { return unmake(); }
uint32_t dm_handle(const Dm*) { return 16; }
bool is_of(const Dm*, const Context*) { return true; }
int copy_to_dm(Dm*, uint64_t offset, const void*, size_t) {
  fake.iova = offset;
  return fake.error;
}
int copy_from_dm(void*, const Dm*, uint64_t offset, size_t) {
  fake.iova = offset;
  return fake.error;
}
int reg_dm_mr(Pd*, Dm*, uint64_t, size_t, unsigned access, Mr** out) {
  fake.access = static_cast<int>(access);
  return make(&the_mr, out);
}

int create_ah(Pd*, const ibv_ah_attr*, Ah** out) { return make(&the_ah, out); }
int destroy_ah(Ah*) { return unmake(); }

int create_comp_channel(Context*, int* fd) {
  if (fake.error != 0) return fake.error;
  *fd = fake.channel_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return 0;
}

int create_cq(Context*, int, int channel_fd, int, uint64_t user_handle, Cq** out, const CqOptions&) {
  fake.cq_channel_fd = channel_fd;
  fake.user_handle = user_handle;
  return make(&the_cq, out);
}
int cq_capacity(const Cq*) { return 64; }
uint32_t cq_handle(const Cq*) { return 13; }
bool is_of(const Cq*, const Context*) { return true; }
int poll_cq(Cq*, int num_entries, ibv_wc*, uint64_t*, ibv_wc_tm_info*) {
  return fake.error != 0 ? -fake.error : num_entries;
}
uint32_t count_completions(Cq*) { return 0; }
bool is_flushing(const Qp*) { return false; }
uint32_t count_rnr_naks(const Qp*) { return 0; }
bool find_peer_attributes(Qp*, PeerAttributes*) { return false; }
bool read_target(Qp*, uint64_t, uint32_t, void*, uint32_t) { return false; }
bool has_overrun(const Cq*) { return false; }
int req_notify_cq(Cq*, bool solicited_only) {
  fake.solicited_only = solicited_only;
  return fake.error;
}
int resize_cq(Cq*, int) { return fake.error; }
int modify_cq(Cq*, uint16_t, uint16_t) { return fake.error; }
void cq_event(Cq*) {}
int destroy_cq(Cq*, uint32_t* comp_events, uint32_t* async_events) {
  *comp_events = fake.comp_events;
  *async_events = fake.async_events;
  return unmake();
}

int open_xrcd(Context*, int fd, int flags, Xrcd** out) {
  fake.xrcd_fd = fd;
  fake.xrcd_flags = flags;
  return make(&the_xrcd, out);
}
int close_xrcd(Xrcd*) { return unmake(); }
int create_xrc_recv_qp(Xrcd*, uint64_t user_handle, Qp** out) {
  fake.user_handle = user_handle;
  return make(&the_qp, out);
}
int open_qp(Context*, Xrcd*, uint32_t qpn, uint64_t user_handle, Qp** out) {
  fake.opened_qpn = qpn;
  fake.user_handle = user_handle;
  return make(&the_qp, out);
}
int close_qp(Qp*, uint64_t user_handle, uint32_t* async_events) {
  fake.closed_handle = user_handle;
  *async_events = fake.async_events;
  return unmake();
}

int create_srq(Pd*, ibv_srq_attr* attr, const XrcPlace& xrc, uint64_t user_handle, Srq** out) {
  fake.srq_is_xrc = xrc.xrcd == &the_xrcd && xrc.cq == &the_cq;
  fake.user_handle = user_handle;
  if (fake.error == 0) attr->max_wr = 256;
  return make(&the_srq, out);
}
int create_tag_srq(Pd*, ibv_srq_attr*, const ibv_tm_cap&, Cq*, uint64_t user_handle, Srq** out) {
  fake.user_handle = user_handle;
  return make(&the_srq, out);
}
int post_srq_ops(Srq*, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) {
  if (fake.error != 0) *bad_wr = wr;
  return fake.error;
}
uint32_t srq_number(const Srq*) { return 0x815; }
uint32_t srq_handle(const Srq*) { return 15; }
bool is_of(const Srq*, const Context*) { return true; }
int modify_srq(Srq*, const ibv_srq_attr* attr, int) {
  fake.srq_limit = attr->srq_limit;
  return fake.error;
}
int query_srq(Srq*, ibv_srq_attr* attr) {
  attr->srq_limit = fake.srq_limit;
  return fake.error;
}
int post_srq_recv(Srq*, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  fake.received = wr;
  if (fake.error != 0) *bad_wr = wr;
  return fake.error;
}
int destroy_srq(Srq*, uint32_t* async_events) {
  *async_events = fake.async_events;
  return unmake();
}

int create_qp(Pd*, ibv_qp_init_attr* attr, Cq*, Cq*, uint64_t user_handle, Qp** out, Srq* srq) {
  fake.user_handle = user_handle;
  fake.qp_has_srq = srq == &the_srq;
  if (fake.error == 0) attr->cap.max_send_wr = 128;
  return make(&the_qp, out);
}
uint32_t qp_number(const Qp*) { return 0x4711; }
uint32_t qp_handle(const Qp*) { return 14; }
bool is_of(const Qp*, const Context*) { return true; }
void block_own_multicast(Qp*) { fake.blocks_own_multicast = true; }

int modify_qp(Qp*, const ibv_qp_attr* attr, int attr_mask) {
  fake.modify_attr = *attr;
  fake.modify_mask = attr_mask;
  return fake.error;
}
int query_qp(Qp*, ibv_qp_attr* attr, ibv_qp_init_attr* init) {
  attr->qp_state = IBV_QPS_RTS;
  *init = fake.query_init;
  return fake.error;
}
int set_ece(Qp*, ibv_ece*) { return fake.error; }
int modify_qp_rate_limit(Qp*, const ibv_qp_rate_limit_attr*) { return fake.error; }
int query_ece(Qp*, ibv_ece*) { return fake.error; }
ibv_qp_state qp_state(const Qp*) { return IBV_QPS_RTS; }
int destroy_qp(Qp*, uint32_t* async_events) {
  *async_events = fake.async_events;
  return unmake();
}

int attach_mcast(Qp*, const ibv_gid* gid, uint16_t lid) {
  fake.gid = gid;
  fake.lid = lid;
  return fake.error;
}
int detach_mcast(Qp* qp, const ibv_gid* gid, uint16_t lid) { return attach_mcast(qp, gid, lid); }

int create_wq(Pd*, ibv_wq_init_attr* attr, Cq*, uint64_t user_handle, Wq** out) {
  fake.user_handle = user_handle;
  if (fake.error == 0) attr->max_wr = 128;
  return make(&the_wq, out);
}
uint32_t wq_number(const Wq*) { return 0x4712; }
uint32_t wq_handle(const Wq*) { return 16; }
bool is_of(const Wq*, const Context*) { return true; }
ibv_wq_state wq_state(const Wq*) { return IBV_WQS_RDY; }
int modify_wq(Wq*, const ibv_wq_attr*) { return fake.error; }
int post_wq_recv(Wq*, ibv_recv_wr* wr, ibv_recv_wr**) {
  fake.received = wr;
  return fake.error;
}
int destroy_wq(Wq*, uint32_t* async_events) {
  *async_events = fake.async_events;
  return unmake();
}
int create_rwq_table(Context*, Wq* const* queues, uint32_t log_size, RwqTable** out) {
  fake.table_is_whole = true;
  for (uint32_t i = 0; i < 1u << log_size; i++) fake.table_is_whole &= queues[i] == &the_wq;
  return make(&the_table, out);
}
int destroy_rwq_table(RwqTable*) { return unmake(); }
int create_rss_qp(Pd*, const ibv_rx_hash_conf*, RwqTable* table, uint64_t user_handle, Qp** out) {
  fake.user_handle = user_handle;
  fake.table_is_whole = table == &the_table;
  return make(&the_qp, out);
}

int create_flow(Qp*, const ibv_flow_attr* attr, SteeredFlow** out) {
  fake.flow = attr;
  return make(&the_flow, out);
}
int destroy_flow(SteeredFlow*) { return unmake(); }
int create_counters(Context*, const ibv_counters_init_attr*, Counters** out) {
  return make(&the_counters, out);
}
int destroy_counters(Counters*) { return unmake(); }
int attach_counters(Counters*, const ibv_counter_attach_attr* attr, const ibv_flow*) {
  fake.counter_index = attr->index;
  return fake.error;
}
int read_counters(Counters*, uint64_t* values, uint32_t count, uint32_t) {
  for (uint32_t i = 0; i < count; i++) values[i] = i + 1;
  return fake.error;
}

int post_send_batch(Qp*, ibv_send_wr* wr) {
  fake.sent = wr;
  return fake.error;
}
int check_send_operation(ibv_qp_type, ibv_wr_opcode) { return fake.error; }
int post_send(Qp*, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  fake.sent = wr;
  fake.sent_copy = *wr;
  if (fake.error != 0) *bad_wr = wr;
  return fake.error;
}
int post_recv(Qp*, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  fake.received = wr;
  if (fake.error != 0) *bad_wr = wr;
  return fake.error;
}

int exchange_sigbus_action(const struct sigaction*, struct sigaction*) { return 0; }
void signal_mask_changed() {}
void set_shared_memory_hint(SharedMemoryHint) {}
void set_program_memory(const ProgramMemory&) {}
void memory_changes(uint64_t, uint64_t) {}
void memory_changed(uint64_t, uint64_t) {}
void memory_leaves(uint64_t, uint64_t) {}

}  // namespace verbena
