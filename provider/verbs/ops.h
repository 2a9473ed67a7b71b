// SPDX-License-Identifier: BSD-2-Clause
//
// The operations of a context, one file per object. Any thread may call them. The conventions are those of
// libibverbs: functions that return an object return nullptr and set errno on failure; functions that return
// int return 0 or an errno value (poll_cq: entries, or a negative errno value).
#pragma once

#include "emulator.h"
#include "rdma_core/structures.h"

namespace verbena::verbs {

struct VerbsContext;  // objects.h

// device.cc
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t attr_size);
int query_device(ibv_context* context, ibv_device_attr* attr);
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr);
int query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed);
int query_rt_values(ibv_context* context, ibv_values_ex* values);

// pd.cc
ibv_pd* alloc_pd(ibv_context* context);
int dealloc_pd(ibv_pd* pd);

// domain.cc
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);

// mr.cc
ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access);
ibv_mr* reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr);
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access);
ibv_mr* alloc_null_mr(ibv_pd* pd);
int rereg_mr(pabi_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access);
int dereg_mr(pabi_mr* mr);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges, uint32_t count);

// mw.cc
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
int dealloc_mw(ibv_mw* mw);

// dm.cc
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr);
int free_dm(ibv_dm* dm);
ibv_dm* wrap_dm(ibv_context* context, Dm* emulated);  // nullptr and ENOMEM

// import.cc: objects of one context in another one on the same command descriptor.
ibv_pd* import_pd(ibv_context* context, uint32_t handle);
void unimport_pd(ibv_pd* pd);
void free_unimported(VerbsContext* context);
ibv_mr* import_mr(ibv_pd* pd, uint32_t handle);
void unimport_mr(ibv_mr* mr);
ibv_dm* import_dm(ibv_context* context, uint32_t handle);
void unimport_dm(ibv_dm* dm);
int answer_control(void* verbs_context, unsigned long request,
                   void* argument);  // the ioctl that import needs

// ah.cc
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr);
int destroy_ah(ibv_ah* ah);

// comp_channel.cc: the write(2) on a command descriptor that only the kernel would answer.
ssize_t answer_command(void* verbs_context, const void* command, size_t length);

// cq.cc
ibv_cq* create_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector);
int destroy_cq(ibv_cq* cq);
void cq_event(ibv_cq* cq);
int poll_cq(ibv_cq* cq, int num_entries, ibv_wc* wc);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);
int resize_cq(ibv_cq* cq, int cqe);
int req_notify_cq(ibv_cq* cq, int solicited_only);

// cq_ex.cc
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
// srq.cc
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);
int get_srq_num(ibv_srq* srq, uint32_t* number);
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int attr_mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attr);
int post_srq_ops(ibv_srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int destroy_srq(ibv_srq* srq);

// xrc.cc
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr);
int close_xrcd(ibv_xrcd* xrcd);
ibv_qp* create_xrc_recv_qp(ibv_context* context, ibv_qp_init_attr_ex* attr);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr);

// qp.cc
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init_attr);
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr);
int set_ece(ibv_qp* qp, ibv_ece* ece);
int query_ece(ibv_qp* qp, ibv_ece* ece);
int destroy_qp(ibv_qp* qp);

// multicast.cc
int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid);
int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid);

// wq.cc
ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr);
int modify_wq(ibv_wq* wq, ibv_wq_attr* attr);
int destroy_wq(ibv_wq* wq);
ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* context, ibv_rwq_ind_table_init_attr* attr);
int destroy_rwq_ind_table(ibv_rwq_ind_table* table);
ibv_qp* create_rss_qp(ibv_context* context, ibv_qp_init_attr_ex* attr);

// flow.cc
ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr);
int destroy_flow(ibv_flow* flow);
ibv_counters* create_counters(ibv_context* context, ibv_counters_init_attr* attr);
int destroy_counters(ibv_counters* counters);
int attach_counters_point_flow(ibv_counters* counters, ibv_counter_attach_attr* attr, ibv_flow* flow);
int read_counters(ibv_counters* counters, uint64_t* values, uint32_t count, uint32_t flags);

// post.cc
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

// context.cc: creation and end of a context, and the table of all of these.
verbs_context* alloc_context(ibv_device* device, int cmd_fd, void* private_data);
verbs_context* import_context(ibv_device* device, int cmd_fd);
void free_context(ibv_context* context);

}  // namespace verbena::verbs
