// SPDX-License-Identifier: BSD-2-Clause
//
// The adapter as the provider sees it: every verb the emulated device offers, in the public types of
// <infiniband/verbs.h> and in nothing else. This is the only header of emulator/ that provider/ includes
// for verbs; what lies behind it may change freely.
//
// Conventions, unless a function says otherwise:
//  * A function that returns int answers 0, or the errno of the refusal, and has then changed nothing.
//    It does not touch errno. Functions that may be told nothing new return void.
//  * Objects are owned by the caller from create/alloc/reg until the matching destroy/dealloc/dereg; a call
//    on a destroyed object is undefined, as in libibverbs.
//  * All functions may be called from any thread, and at the same time on the same object
//    (ibv_open_device(3)), except that nobody may use an object while it is being destroyed.
//  * No function throws, and none is a cancellation point.
//  * In a forked child every object of the parent is dead: verbs answer EIO, destroying frees the child's
//    copy of the private memory and touches nothing that is shared.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace verbena {

struct Context;
struct Pd;
struct Mr;
struct CompChannel;
struct Cq;
struct Qp;
struct Ah;
struct Srq;
struct Xrcd;

// ---- device -----------------------------------------------------------------------------------------

// Opens device `name` ("verbena0") of the node that VERBENA_NODE names (fabric/node.h). The process's
// first open takes a slot on the node and starts the adapter's service thread; the last close gives both back.
// ENODEV: no such device or no node; ENOMEM; EMFILE: all slots of the node are taken;
// EPROTO: the node was made by another version of Verbena.
int open_context(const char* name, Context** out);
void close_context(Context* context);

// The descriptor ibv_get_async_event(3) reads: 16-byte records (u64 element, u32 type, u32 reserved), as
// struct ib_uverbs_async_event_desc. Readable, pollable, close-on-exec. The caller owns (and closes) it.
int context_async_fd(const Context* context);

int query_device(Context* context, ibv_device_attr_ex* attr);  // fills every field of the structure
int query_port(Context* context, uint8_t port, ibv_port_attr* attr);  // EINVAL: no such port

// ---- protection domains, memory, address handles ------------------------------------------------------

int alloc_pd(Context* context, Pd** out);
int dealloc_pd(Pd* pd);  // EBUSY: objects still belong to it
uint32_t pd_handle(const Pd* pd);

// `iova` is the address the initiators use for the first byte (== addr unless ibv_reg_mr_iova or
// IBV_ACCESS_ZERO_BASED). EINVAL: access flags that contradict each other (ibv_reg_mr(3)); EOPNOTSUPP: flags
// not built; EFAULT: part of the range is not mapped, or not writable where the flags ask for writing.
int reg_mr(Pd* pd, void* addr, size_t length, uint64_t iova, int access, Mr** out);
int dereg_mr(Mr* mr);
uint32_t mr_lkey(const Mr* mr);
uint32_t mr_rkey(const Mr* mr);
uint32_t mr_handle(const Mr* mr);

int create_ah(Pd* pd, const ibv_ah_attr* attr, Ah** out);  // EINVAL: an address that cannot be, of this port
int destroy_ah(Ah* ah);

// What wr.ud.ah of a send request points to: libibverbs' part of the caller's object, then the handle.
struct AhOfProgram {
  ibv_ah base;
  Ah* emulated;
};

// Completion vectors of every device (ibv_context::num_comp_vectors); there is nothing to choose between them.
inline constexpr int kCompletionVectors = 4;

// ---- completion ---------------------------------------------------------------------------------------

// *fd is what ibv_comp_channel::fd becomes: it yields one 8-byte record per event, the `user_handle` of the
// CQ. The caller owns (and closes) *fd; the channel ends when the fd is closed and no CQ uses it.
int create_comp_channel(Context* context, int* fd);

// `channel_fd` is a descriptor from create_comp_channel, or -1. The CQ holds at least `cqe` entries;
// cq_capacity tells how many (ibv_create_cq(3): "the actual size"). EINVAL: cqe < 1 or above max_cqe,
// comp_vector out of range.
int create_cq(Context* context, int cqe, int channel_fd, int comp_vector, uint64_t user_handle, Cq** out);
int cq_capacity(const Cq* cq);
uint32_t cq_handle(const Cq* cq);
int poll_cq(Cq* cq, int num_entries, ibv_wc* wc);  // entries written, or < 0: -EINVAL; -EIO in a forked child
int req_notify_cq(Cq* cq, bool solicited_only);
void cq_event(Cq* cq);  // libibverbs has just read one event of this CQ from its channel

// EBUSY: QPs still use it. On success every event not yet read has been taken out of the channel, and
// *comp_events / *async_events tell how many the program has read in its life, so that the caller can wait
// until they are acknowledged (ibv_destroy_cq(3), ibv_ack_cq_events(3)).
int destroy_cq(Cq* cq, uint32_t* comp_events, uint32_t* async_events);

// ---- shared receive queues ----------------------------------------------------------------------------

// Where an XRC SRQ belongs and completes; both null: a basic SRQ.
struct XrcPlace {
  Xrcd* xrcd = nullptr;
  Cq* cq = nullptr;
};

// `attr->max_wr` and `attr->max_sge` become what was really given (never less); the limit is not armed
// (ibv_create_srq(3)). `user_handle` comes back in asynchronous events. EINVAL: an attribute above the device's, or
// only half of an XrcPlace; ENOMEM.
int create_srq(Pd* pd, ibv_srq_attr* attr, const XrcPlace& xrc, uint64_t user_handle, Srq** out);
uint32_t srq_number(const Srq* srq);  // ibv_get_srq_num(3): unique on the node
uint32_t srq_handle(const Srq* srq);
// EINVAL: resizing (IBV_DEVICE_SRQ_RESIZE is not claimed), a limit above max_wr, unknown bits of the mask. When fewer
// requests than the limit are posted already, the event comes at once.
int modify_srq(Srq* srq, const ibv_srq_attr* attr, int attr_mask);
int query_srq(Srq* srq, ibv_srq_attr* attr);  // srq_limit is 0 once it was reached
int post_srq_recv(Srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);  // as post_recv
int destroy_srq(Srq* srq, uint32_t* async_events);  // EBUSY: QPs still use it; *async_events as in destroy_cq

// ---- queue pairs --------------------------------------------------------------------------------------

// `attr->cap` becomes what was really given (never less). `send_cq` and `recv_cq` stand for the CQs that
// `attr` names in libibverbs' terms. `user_handle` comes back in asynchronous events.
// EINVAL: a capability above the device's, no CQ; EOPNOTSUPP: a QP type not built; ENOMEM. With `srq`, what `attr`
// says of a receive queue is ignored: max_recv_wr and max_recv_sge become 0.
int create_qp(Pd* pd, ibv_qp_init_attr* attr, Cq* send_cq, Cq* recv_cq, uint64_t user_handle, Qp** out,
              Srq* srq = nullptr);
uint32_t qp_number(const Qp* qp);
uint32_t qp_handle(const Qp* qp);
int modify_qp(Qp* qp, const ibv_qp_attr* attr, int attr_mask);
int query_qp(Qp* qp, ibv_qp_attr* attr, ibv_qp_init_attr* init);  // init's objects and context are the caller's
ibv_qp_state qp_state(const Qp* qp);
// EBUSY: attached to a multicast group. *async_events as in destroy_cq.
int destroy_qp(Qp* qp, uint32_t* async_events);

// EINVAL: no multicast GID, no UD queue pair, on InfiniBand no multicast LID; attaching: ENOMEM: a limit of the device
// is reached; detaching: EINVAL: it is not attached to that group with that LID.
int attach_mcast(Qp* qp, const ibv_gid* gid, uint16_t lid);
int detach_mcast(Qp* qp, const ibv_gid* gid, uint16_t lid);

// bad_wr points at the first WR not taken; those before it are posted.
int post_send(Qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv(Qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

}  // namespace verbena
