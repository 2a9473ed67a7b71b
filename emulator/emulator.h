// SPDX-License-Identifier: BSD-2-Clause
//
// The adapter as the provider sees it: every verb that the emulated device offers, in the public types of
// <infiniband/verbs.h> only. It is the only header of emulator/ that provider/ includes for verbs. What lies
// behind it may change freely.
//
// Conventions, unless a function says otherwise:
// - A function that returns int returns 0, or the errno of the refusal; a refused call has changed nothing.
//   errno itself is preserved. Functions that cannot be refused return void.
// - Objects are owned by the caller from create/alloc/reg until the matching destroy/dealloc/dereg. A call on
//   a destroyed object is undefined, as in libibverbs.
// - All functions may be called from any thread, and at the same time on the same object
//   (ibv_open_device(3)). Exception: no thread may use an object while it is being destroyed.
// - No function throws. The provider calls with cancellation disabled. Posting, polling and requesting
//   notification are excepted: they are no cancellation points (no_cancellation.h).
// - In a forked child every object of the parent is dead: verbs return EIO. Destroying frees the child's copy
//   of the private memory and touches nothing shared. Exceptions: query_device(), query_port(), alloc_dm(),
//   and the functions for the device memory that the child has allocated, except reg_dm_mr().
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
struct Mw;
struct Dm;
struct SteeredFlow;
struct Wq;
struct RwqTable;
struct Counters;

// ---- device -----------------------------------------------------------------------------------------

// Makes the node at `path`, whose device tree is gone, again as the environment says (wire/node_recipe.h). 0;
// ENOENT: the environment does not say how; or another errno.
int restore_node(const char* path);

// Opens device `name` ("verbena0") of the node that VERBENA_NODE names (fabric/node.h). The process's first
// open takes a slot on the node and starts the adapter's service thread; the last close gives both back.
// - ENODEV: no such device or no node.
// - ENOMEM.
// - EMFILE: all slots of the node are taken.
// - EPROTO: another version of Verbena created the node.
int open_context(const char* name, Context** out);
// True: the program still has objects of the context. They may still be destroyed, so what they refer to must
// stay.
bool close_context(Context* context);

// Opens a second context on the device of `original`, with its own asynchronous descriptor. Handles of
// objects mean the same in both contexts (ibv_import_device(3)). errno as open_context().
int import_context(const Context* original, Context** out);

// The descriptor that ibv_get_async_event(3) reads: 16-byte records (u64 element, u32 type, u32 reserved), as
// struct ib_uverbs_async_event_desc. Readable, pollable, close-on-exec. The caller owns (and closes) it.
int context_async_fd(const Context* context);

int query_device(Context* context, ibv_device_attr_ex* attr);         // fills every field of the structure
int query_port(Context* context, uint8_t port, ibv_port_attr* attr);  // EINVAL: no such port

// The clock of completion time stamps, in nanoseconds (hca_core_clock is 1 GHz).
uint64_t device_clock(const Context* context);

// ---- protection domains, memory, address handles ------------------------------------------------------

int alloc_pd(Context* context, Pd** out);
int dealloc_pd(Pd* pd);  // EBUSY: objects still belong to it
// Names these objects in the log, and that `parent_domains` of the provider belong to it as well.
void log_busy_pd(const Pd* pd, uint32_t parent_domains);
uint32_t pd_handle(const Pd* pd);
bool is_of(const Pd* pd, const Context* context);  // handles belong to the file that a context has open

// The protection domain with this handle, as an object of `context` (ibv_import_pd(3)). One of the two
// objects is deallocated, the other one is unimported. ENOENT: no context of the same file has such a domain.
int import_pd(Context* context, uint32_t handle, Pd** out);
void unimport_pd(Pd* pd);  // frees `pd`; nothing that was created through it may be used afterwards

// `iova` is the address of the first byte as initiators give it (== addr unless ibv_reg_mr_iova or
// IBV_ACCESS_ZERO_BASED).
// - EINVAL: access flags that contradict each other (ibv_reg_mr(3)); or length 0 and `addr` begins a page. A
//   region of length 0 elsewhere gives access to no byte.
// - EFAULT: part of the range is not mapped, or not writable although the flags ask for writing. Not with
//   IBV_ACCESS_ON_DEMAND, whose pages are looked up at each access.
// Address 0, length SIZE_MAX and ON_DEMAND: the whole address space.
int reg_mr(Pd* pd, void* addr, size_t length, uint64_t iova, int access, Mr** out);

// True: the program may have mapped [address, address + length) MAP_SHARED, so that peers can map it too. A
// hint: memory of which it says no is reached by system call. Called at registration, in any thread.
using SharedMemoryHint = bool (*)(uint64_t address, uint64_t length);
void set_shared_memory_hint(SharedMemoryHint hint);

// `flags`: IBV_REREG_MR_CHANGE_*. Attributes that they do not name stay, and so do the keys. Requests that
// use the region during the call fail.
// - EINVAL: no flag or an unknown one; not a region of reg_mr(); and as reg_mr().
// - EBUSY: a memory window is bound to the region.
int rereg_mr(Mr* mr, int flags, Pd* pd, void* addr, size_t length, int access);

// An lkey that takes any address, drops writes and reads as zeros (ibv_alloc_null_mr). Its rkey is 0.
int alloc_null_mr(Pd* pd, Mr** out);

// ibv_reg_dmabuf_mr(3). EBADF, EINVAL: not a dma-buf, or too short; EOPNOTSUPP: it cannot be mapped for the
// CPU.
int reg_dmabuf_mr(Pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, Mr** out);

int dereg_mr(Mr* mr);  // of any of these kinds. EBUSY: a memory window is bound to it

// ibv_import_mr(3): returns the region itself. ENOENT: the domain's file has no region with this handle.
int import_mr(Pd* pd, uint32_t handle, Mr** out);
size_t mr_length(const Mr* mr);

// ibv_advise_mr(3), which names the errno values.
int advise_mr(Pd* pd, ibv_advise_mr_advice advice, uint32_t flags, const ibv_sge* sges, uint32_t count);
uint32_t mr_lkey(const Mr* mr);
uint32_t mr_rkey(const Mr* mr);
uint32_t mr_handle(const Mr* mr);
bool is_of(const Mr* mr, const Context* context);

// Memory windows. EINVAL: no such type; ENOMEM: max_mw windows exist.
int alloc_mw(Pd* pd, ibv_mw_type type, Mw** out);
int dealloc_mw(Mw* mw);          // bound or not
uint32_t mw_rkey(const Mw* mw);  // the first one; binding gives others
uint32_t mw_handle(const Mw* mw);
bool is_of(const Mw* mw, const Context* context);

// Device memory. alloc_dm(): EINVAL: more than max_dm_size, or an alignment above a page; ENOMEM: not enough
// is left.
int alloc_dm(Context* context, const ibv_alloc_dm_attr* attr, Dm** out);
int free_dm(Dm* dm);  // EBUSY: memory regions of it are registered
uint32_t dm_handle(const Dm* dm);
bool is_of(const Dm* dm, const Context* context);
int import_dm(Context* context, uint32_t handle, Dm** out);  // as import_mr
// EFAULT: outside the allocation; EINVAL: offset or length is no multiple of 4 (as mlx5,
// providers/mlx5/verbs.c, mlx5_access_dm).
int copy_to_dm(Dm* dm, uint64_t offset, const void* from, size_t length);
int copy_from_dm(void* to, const Dm* dm, uint64_t offset, size_t length);
// EINVAL: no IBV_ACCESS_ZERO_BASED, flags for other memory, or outside the allocation.
int reg_dm_mr(Pd* pd, Dm* dm, uint64_t offset, size_t length, unsigned access, Mr** out);

int create_ah(Pd* pd, const ibv_ah_attr* attr, Ah** out);  // EINVAL: an address that cannot be, of this port
int destroy_ah(Ah* ah);

// The object that wr.ud.ah of a send request points to: libibverbs' part, then the handle.
struct AhOfProgram {
  ibv_ah base;
  Ah* emulated;
};

// Completion vectors of every device (ibv_context::num_comp_vectors). All of them are equivalent.
inline constexpr int kCompletionVectors = 4;

// ---- completion ---------------------------------------------------------------------------------------

// *fd becomes ibv_comp_channel::fd. It yields one 8-byte record per event, the `user_handle` of the CQ. The
// caller owns (and closes) *fd. The channel ends when the fd is closed and no CQ uses it.
int create_comp_channel(Context* context, int* fd);

// `channel_fd` is a descriptor of create_comp_channel(), or -1. The CQ holds at least `cqe` entries;
// cq_capacity() returns how many (ibv_create_cq(3): "the actual size"). EINVAL: cqe < 1 or above max_cqe,
// comp_vector out of range.
struct CqOptions {
  bool stamped = false;         // poll_cq() can return the publication time of each completion
  bool ignore_overrun = false;  // completions that do not fit are lost; the CQ stays (ibv_create_cq_ex(3))
};
int create_cq(Context* context, int cqe, int channel_fd, int comp_vector, uint64_t user_handle, Cq** out,
              const CqOptions& options = {});
int cq_capacity(const Cq* cq);

// ibv_resize_cq(3). EINVAL: cqe as in create_cq(), or more completions than that wait to be polled; ENOMEM.
// Returns when no process appends to the old ring any more. Like teardown, the call waits for a peer that is
// stopped while it appends.
int resize_cq(Cq* cq, int cqe);
uint32_t cq_handle(const Cq* cq);
bool is_of(const Cq* cq, const Context* context);

// Returns the number of entries written, or < 0: -EINVAL; -EIO in a forked child. `stamps`, only for a
// stamped CQ, is as long as `wc`: the device_clock() of each completion. `tag`, only with
// num_entries 1: what a completion of tag matching tells of the message; by others it is left alone.
int poll_cq(Cq* cq, int num_entries, ibv_wc* wc, uint64_t* stamps = nullptr, ibv_wc_tm_info* tag = nullptr);
int req_notify_cq(Cq* cq, bool solicited_only);

// ibv_modify_cq(3): the event of an armed CQ comes after `count` completions or `period` microseconds. 0: no
// such limit.
int modify_cq(Cq* cq, uint16_t count, uint16_t period);
void cq_event(Cq* cq);  // libibverbs has just read one event of this CQ from its channel

// EBUSY: QPs still use it. On success every unread event has been taken out of the channel. *comp_events and
// *async_events are the numbers of events that the program has read since the CQ was created; the caller
// waits until these are acknowledged (ibv_destroy_cq(3), ibv_ack_cq_events(3)).
int destroy_cq(Cq* cq, uint32_t* comp_events, uint32_t* async_events);

// ---- shared receive queues ----------------------------------------------------------------------------

// The domain and the CQ of an XRC SRQ; both null: a basic SRQ.
struct XrcPlace {
  Xrcd* xrcd = nullptr;
  Cq* cq = nullptr;
};

// `attr->max_wr` and `attr->max_sge` become the actual sizes (never less); the limit is not armed
// (ibv_create_srq(3)). `user_handle` comes back in asynchronous events. EINVAL: an attribute above the
// device's limit, or only half of an XrcPlace; ENOMEM.
int create_srq(Pd* pd, ibv_srq_attr* attr, const XrcPlace& xrc, uint64_t user_handle, Srq** out);

// The same for an SRQ that matches tags (IBV_SRQT_TM), whose completions go to `cq`. EINVAL also: no tags, or
// more tags or operations than the device has; EOPNOTSUPP: it has none. One operation at least.
int create_tag_srq(Pd* pd, ibv_srq_attr* attr, const ibv_tm_cap& tags, Cq* cq, uint64_t user_handle, Srq** out);

// ibv_post_srq_ops(3). EINVAL: an SRQ without tags, an unknown operation, a handle that is none, more than one
// SGE; ENOMEM: no room for a tag, or the completions of max_ops operations are not polled. What was carried out
// before stays.
int post_srq_ops(Srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr);
uint32_t srq_number(const Srq* srq);  // ibv_get_srq_num(3): unique on the node
uint32_t srq_handle(const Srq* srq);
bool is_of(const Srq* srq, const Context* context);
// EINVAL: a limit above max_wr, unknown bits of the mask; a max_wr that is 0, above the device's, below the
// limit, or below the number of requests that are posted or whose completions were not polled. ENOMEM.
// If fewer requests than the limit are posted already, the event comes at once.
int modify_srq(Srq* srq, const ibv_srq_attr* attr, int attr_mask);
int query_srq(Srq* srq, ibv_srq_attr* attr);                         // srq_limit is 0 once it was reached
int post_srq_recv(Srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);  // as post_recv
// EBUSY: QPs still use it; *async_events as in destroy_cq()
int destroy_srq(Srq* srq, uint32_t* async_events);

// ---- extended reliable connection ---------------------------------------------------------------------

// ibv_open_xrcd(3). `flags`: O_CREAT and O_EXCL. `fd` -1: a domain without a file.
// - EBADF.
// - EAGAIN: the file has no domain yet, and O_CREAT is not set.
// - EINVAL: the file has a domain, and O_EXCL is set.
// - ENOMEM.
int open_xrcd(Context* context, int fd, int flags, Xrcd** out);
int close_xrcd(Xrcd* xrcd);  // EBUSY: SRQs or QPs of the domain still exist

// The receiving end, which has no PD, no queues and no CQs: ibv_create_qp_ex(3) with IBV_QP_INIT_ATTR_XRCD.
// It is modified, queried and destroyed like any QP.
int create_xrc_recv_qp(Xrcd* xrcd, uint64_t user_handle, Qp** out);
// Creates another handle of the XRC_RECV QP with number `qpn`, which any process may have created. Events go
// to the `user_handle` of every handle. The QP lives until its last handle is destroyed, or the process of
// that handle ends. In a process that does not own the QP, modify_qp() may return ETIMEDOUT: the owner is
// stopped. EINVAL: the domain has no such QP.
int open_qp(Context* context, Xrcd* xrcd, uint32_t qpn, uint64_t user_handle, Qp** out);
// As destroy_qp(), for the handle with `user_handle`.
int close_qp(Qp* qp, uint64_t user_handle, uint32_t* async_events);

// ---- queue pairs --------------------------------------------------------------------------------------

// `attr->cap` becomes the actual capacity (never less). `send_cq` and `recv_cq` are the CQs that `attr` names
// in libibverbs' terms. `user_handle` comes back in asynchronous events. With `srq`, the receive queue
// attributes of `attr` are ignored: max_recv_wr and max_recv_sge become 0.
// - EINVAL: a capability above the device's limit, or no CQ.
// - EOPNOTSUPP: an unsupported QP type.
// - ENOMEM.
int create_qp(Pd* pd, ibv_qp_init_attr* attr, Cq* send_cq, Cq* recv_cq, uint64_t user_handle, Qp** out,
              Srq* srq = nullptr);
// For a UD QP, before it is used: it does not receive its own messages to a group
// (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB).
void block_own_multicast(Qp* qp);
uint32_t qp_number(const Qp* qp);
uint32_t qp_handle(const Qp* qp);
bool is_of(const Qp* qp, const Context* context);
int modify_qp(Qp* qp, const ibv_qp_attr* attr, int attr_mask);
// EINVAL: an unsupported rate, a burst or packet size without a rate, a comp_mask, a QP that does not send or
// is not in RTS; EOPNOTSUPP: the profile has no pacing.
int modify_qp_rate_limit(Qp* qp, const ibv_qp_rate_limit_attr* attr);
// the caller fills the objects and the context of `init`
int query_qp(Qp* qp, ibv_qp_attr* attr, ibv_qp_init_attr* init);
ibv_qp_state qp_state(const Qp* qp);
// ibv_set_ece(3), ibv_query_ece(3); engine/queue_pair/ece.cc lists the options. *ece becomes the accepted
// options. EINVAL: another vendor, bits in comp_mask, or the QP is in RTR or beyond, where options have no
// effect any more.
int set_ece(Qp* qp, ibv_ece* ece);
int query_ece(Qp* qp, ibv_ece* ece);
// EBUSY: attached to a multicast group. *async_events as in destroy_cq().
int destroy_qp(Qp* qp, uint32_t* async_events);

// EINVAL: not a multicast GID, not a UD queue pair, or on InfiniBand not a multicast LID. attach_mcast():
// ENOMEM: a limit of the device is reached. detach_mcast(): EINVAL: the QP is not attached to that group with
// that LID.
int attach_mcast(Qp* qp, const ibv_gid* gid, uint16_t lid);
int detach_mcast(Qp* qp, const ibv_gid* gid, uint16_t lid);

// ---- work queues --------------------------------------------------------------------------------------

// ibv_create_wq(3): `attr->max_wr` and `attr->max_sge` become the actual sizes. EINVAL: another type than
// IBV_WQT_RQ, or above the device's limits; EOPNOTSUPP: creation flags, or the profile has no flows; ENOMEM:
// max_qp, which counts work queues as well.
int create_wq(Pd* pd, ibv_wq_init_attr* attr, Cq* cq, uint64_t user_handle, Wq** out);
uint32_t wq_number(const Wq* wq);
uint32_t wq_handle(const Wq* wq);
bool is_of(const Wq* wq, const Context* context);
ibv_wq_state wq_state(const Wq* wq);
// EINVAL: it is not in curr_wq_state, or there is no way to wq_state; EOPNOTSUPP: flags.
int modify_wq(Wq* wq, const ibv_wq_attr* attr);
int post_wq_recv(Wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);  // as post_recv
int destroy_wq(Wq* wq, uint32_t* async_events);  // EBUSY: a table has it. *async_events as in destroy_cq()

// 1 << log_size queues. EINVAL: more than 512; EOPNOTSUPP: the profile has no flows; ENOMEM.
int create_rwq_table(Context* context, Wq* const* queues, uint32_t log_size, RwqTable** out);
int destroy_rwq_table(RwqTable* table);  // EBUSY: a QP uses it
// A raw packet QP that receives through the table: rules give it frames, and the hash chooses the queue. It
// does not send, and has no states. EINVAL, EOPNOTSUPP: a hash that the device does not have; EPERM: without
// CAP_NET_RAW; ENOMEM.
int create_rss_qp(Pd* pd, const ibv_rx_hash_conf* hash, RwqTable* table, uint64_t user_handle, Qp** out);

// ---- flow rules and counters ----------------------------------------------------------------------------

// The object that ibv_flow_spec_counter_action::counters points to: libibverbs' part, then the handle.
struct CountersOfProgram {
  ibv_counters base;
  Counters* emulated;
};

// ibv_create_flow(3), for a raw packet QP; the frames that match go to its receive queue
// (engine/ethernet/frame_sender.h).
// - EINVAL: attributes that contradict each other (engine/rules/flow_specs.h), or a QP of another type.
// - EOPNOTSUPP: a specification that the device does not have, a UD QP, or the profile has no flows.
// - EPERM: without CAP_NET_RAW. ENOMEM: max_flow rules exist.
int create_flow(Qp* qp, const ibv_flow_attr* attr, SteeredFlow** out);
int destroy_flow(SteeredFlow* flow);  // after its return the rule gives no frame any more

// ibv_create_counters(3) and the pages that it names. Counters are bound by ACTION_COUNT when a flow is
// created. EOPNOTSUPP: the profile has no flows, or bits in comp_mask.
int create_counters(Context* context, const ibv_counters_init_attr* attr, Counters** out);
int destroy_counters(Counters* counters);  // EBUSY: a flow counts with it
// `flow` is null: points are named before the counters are bound. ENOTSUP: another flow, or no such
// description; EBUSY: a flow counts with it; EINVAL: an index above 1023; EOPNOTSUPP: bits in comp_mask;
// ENOMEM.
int attach_counters(Counters* counters, const ibv_counter_attach_attr* attr, const ibv_flow* flow);
// EINVAL: fewer than the highest index that is attached, or unknown flags. Values that no point names are 0.
int read_counters(Counters* counters, uint64_t* values, uint32_t count, uint32_t flags);

// *bad_wr points to the first WR that is not posted; all WRs before it are posted.
int post_send(Qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv(Qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

// ibv_wr_complete(3): posts the whole list or nothing. Errors as post_send().
int post_send_batch(Qp* qp, ibv_send_wr* wr);

// IBV_WR_ATOMIC_WRITE of rdma-core 43.
inline constexpr auto kAtomicWrite = static_cast<ibv_wr_opcode>(15);

// 0: the device offers `opcode` on QPs of `type`. EOPNOTSUPP: it does not; the log says so.
int check_send_operation(ibv_qp_type type, ibv_wr_opcode opcode);

}  // namespace verbena
