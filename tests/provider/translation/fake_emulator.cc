// SPDX-License-Identifier: BSD-2-Clause
#include "fake_emulator.h"

#include <fcntl.h>

#include <cstdio>
#include <cstring>

namespace verbena {

FakeEmulator fake;

struct Context {};
struct Pd {};
struct Mr {};
struct Cq {};
struct Qp {};
struct Ah {};
struct Srq {};

namespace {

Context the_context;
Pd the_pd;
Mr the_mr;
Cq the_cq;
Qp the_qp;
Ah the_ah;
Srq the_srq;

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
void close_context(Context*) { fake.contexts--; }
int context_async_fd(const Context*) { return fake.async_fd = open("/dev/null", O_RDONLY | O_CLOEXEC); }

int query_device(Context*, ibv_device_attr_ex* attr) {
  if (fake.error != 0) return fake.error;
  memset(attr, 0x5a, sizeof(*attr));
  return 0;
}
int query_port(Context*, uint8_t port, ibv_port_attr* attr) {
  attr->lid = port;
  return fake.error;
}

int alloc_pd(Context*, Pd** out) { return make(&the_pd, out); }
int dealloc_pd(Pd*) { return unmake(); }
uint32_t pd_handle(const Pd*) { return 11; }

int reg_mr(Pd*, void*, size_t, uint64_t iova, int access, Mr** out) {
  fake.iova = iova;
  fake.access = access;
  return make(&the_mr, out);
}
int dereg_mr(Mr*) { return unmake(); }
uint32_t mr_lkey(const Mr*) { return 0x100; }
uint32_t mr_rkey(const Mr*) { return 0x200; }
uint32_t mr_handle(const Mr*) { return 12; }

int create_ah(Pd*, const ibv_ah_attr*, Ah** out) { return make(&the_ah, out); }
int destroy_ah(Ah*) { return unmake(); }

int create_comp_channel(Context*, int* fd) {
  if (fake.error != 0) return fake.error;
  *fd = fake.channel_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return 0;
}

int create_cq(Context*, int, int channel_fd, int, uint64_t user_handle, Cq** out) {
  fake.cq_channel_fd = channel_fd;
  fake.user_handle = user_handle;
  return make(&the_cq, out);
}
int cq_capacity(const Cq*) { return 64; }
uint32_t cq_handle(const Cq*) { return 13; }
int poll_cq(Cq*, int num_entries, ibv_wc*) { return fake.error != 0 ? -fake.error : num_entries; }
int req_notify_cq(Cq*, bool solicited_only) {
  fake.solicited_only = solicited_only;
  return fake.error;
}
void cq_event(Cq*) {}
int destroy_cq(Cq*, uint32_t* comp_events, uint32_t* async_events) {
  *comp_events = fake.comp_events;
  *async_events = fake.async_events;
  return unmake();
}

int create_srq(Pd*, ibv_srq_attr* attr, const XrcPlace&, uint64_t user_handle, Srq** out) {
  fake.user_handle = user_handle;
  if (fake.error == 0) attr->max_wr = 256;
  return make(&the_srq, out);
}
uint32_t srq_number(const Srq*) { return 0x815; }
uint32_t srq_handle(const Srq*) { return 15; }
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

int post_send(Qp*, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  fake.sent = wr;
  if (fake.error != 0) *bad_wr = wr;
  return fake.error;
}
int post_recv(Qp*, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  fake.received = wr;
  if (fake.error != 0) *bad_wr = wr;
  return fake.error;
}

}  // namespace verbena
