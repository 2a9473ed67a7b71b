// SPDX-License-Identifier: BSD-2-Clause
//
// The operations of a context, one file per object. All may be called by any thread. They keep libibverbs'
// conventions: functions that return an object answer nullptr and set errno; functions that return int answer
// 0 or an errno value (poll_cq: entries, or a negative errno value).
#pragma once

#include "rdma_core/pabi34_rdma_core36.h"

namespace verbena::verbs {

// device.cc
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t attr_size);
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr);

// pd.cc
ibv_pd* alloc_pd(ibv_context* context);
int dealloc_pd(ibv_pd* pd);

// mr.cc
ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access);
int dereg_mr(pabi34_mr* mr);

// ah.cc
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr);
int destroy_ah(ibv_ah* ah);

// comp_channel.cc: the write(2) on a command descriptor that nobody but the kernel would answer.
ssize_t answer_command(void* verbs_context, const void* command, size_t length);

// cq.cc
ibv_cq* create_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector);
int destroy_cq(ibv_cq* cq);
void cq_event(ibv_cq* cq);
int poll_cq(ibv_cq* cq, int num_entries, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);

// srq.cc
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);
int get_srq_num(ibv_srq* srq, uint32_t* number);
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int attr_mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attr);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int destroy_srq(ibv_srq* srq);

// qp.cc
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init_attr);
int destroy_qp(ibv_qp* qp);

// multicast.cc
int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid);
int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid);

// post.cc
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

// context.cc: a context's life, and the table of all of these.
verbs_context* alloc_context(ibv_device* device, int cmd_fd, void* private_data);
void free_context(ibv_context* context);

}  // namespace verbena::verbs
