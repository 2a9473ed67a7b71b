/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The operations that a provider gives to libibverbs for a context (struct verbs_context_ops). libibverbs reads
 * a table of pointers in the order of this list. The list grows with the releases of rdma-core, so that each
 * layout of the table (layouts.h) is a selection of the list.
 *
 * Source: libibverbs/driver.h of rdma-core v28.0 to v64.0. A build with -DRDMA_CORE_SOURCE_DIR=... compares place
 * and signature of each operation with the original (rdma_core_check.c). Plain C for that reason.
 */
#ifndef VERBENA_PROVIDER_RDMA_CORE_OPERATIONS_H
#define VERBENA_PROVIDER_RDMA_CORE_OPERATIONS_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

struct pabi_mr; /* structures.h */

/* Types that the installed <infiniband/verbs.h> may not have yet. */
struct ibv_buf;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_ece;
struct ibv_mr_init_attr;

/* X(releases, result, name, arguments). `releases`: ALWAYS, or the first release (SINCE_) or the one after the
 * last (BEFORE_) whose table has the operation. */
/* clang-format off */
#define PABI_OPERATIONS(X) \
  X(ALWAYS, int, advise_mr, (struct ibv_pd*, enum ibv_advise_mr_advice, uint32_t, struct ibv_sge*, \
    uint32_t)) \
  X(SINCE_64, void*, alloc_buf, (struct ibv_pd*, size_t, struct ibv_buf**)) \
  X(ALWAYS, struct ibv_dm*, alloc_dm, (struct ibv_context*, struct ibv_alloc_dm_attr*)) \
  X(SINCE_59, struct ibv_dmah*, alloc_dmah, (struct ibv_context*, struct ibv_dmah_init_attr*)) \
  X(ALWAYS, struct ibv_mw*, alloc_mw, (struct ibv_pd*, enum ibv_mw_type)) \
  X(ALWAYS, struct ibv_mr*, alloc_null_mr, (struct ibv_pd*)) \
  X(ALWAYS, struct ibv_pd*, alloc_parent_domain, (struct ibv_context*, \
    struct ibv_parent_domain_init_attr*)) \
  X(ALWAYS, struct ibv_pd*, alloc_pd, (struct ibv_context*)) \
  X(ALWAYS, struct ibv_td*, alloc_td, (struct ibv_context*, struct ibv_td_init_attr*)) \
  X(ALWAYS, void, async_event, (struct ibv_context*, struct ibv_async_event*)) \
  X(ALWAYS, int, attach_counters_point_flow, (struct ibv_counters*, struct ibv_counter_attach_attr*, \
    struct ibv_flow*)) \
  X(ALWAYS, int, attach_mcast, (struct ibv_qp*, const union ibv_gid*, uint16_t)) \
  X(ALWAYS, int, bind_mw, (struct ibv_qp*, struct ibv_mw*, struct ibv_mw_bind*)) \
  X(ALWAYS, int, close_xrcd, (struct ibv_xrcd*)) \
  X(ALWAYS, void, cq_event, (struct ibv_cq*)) \
  X(ALWAYS, struct ibv_ah*, create_ah, (struct ibv_pd*, struct ibv_ah_attr*)) \
  X(ALWAYS, struct ibv_counters*, create_counters, (struct ibv_context*, struct ibv_counters_init_attr*)) \
  X(ALWAYS, struct ibv_cq*, create_cq, (struct ibv_context*, int, struct ibv_comp_channel*, int)) \
  X(ALWAYS, struct ibv_cq_ex*, create_cq_ex, (struct ibv_context*, struct ibv_cq_init_attr_ex*)) \
  X(ALWAYS, struct ibv_flow*, create_flow, (struct ibv_qp*, struct ibv_flow_attr*)) \
  X(ALWAYS, struct ibv_flow_action*, create_flow_action_esp, (struct ibv_context*, \
    struct ibv_flow_action_esp_attr*)) \
  X(ALWAYS, struct ibv_qp*, create_qp, (struct ibv_pd*, struct ibv_qp_init_attr*)) \
  X(ALWAYS, struct ibv_qp*, create_qp_ex, (struct ibv_context*, struct ibv_qp_init_attr_ex*)) \
  X(ALWAYS, struct ibv_rwq_ind_table*, create_rwq_ind_table, (struct ibv_context*, \
    struct ibv_rwq_ind_table_init_attr*)) \
  X(ALWAYS, struct ibv_srq*, create_srq, (struct ibv_pd*, struct ibv_srq_init_attr*)) \
  X(ALWAYS, struct ibv_srq*, create_srq_ex, (struct ibv_context*, struct ibv_srq_init_attr_ex*)) \
  X(ALWAYS, struct ibv_wq*, create_wq, (struct ibv_context*, struct ibv_wq_init_attr*)) \
  X(SINCE_59, int, dealloc_dmah, (struct ibv_dmah*)) \
  X(ALWAYS, int, dealloc_mw, (struct ibv_mw*)) \
  X(ALWAYS, int, dealloc_pd, (struct ibv_pd*)) \
  X(ALWAYS, int, dealloc_td, (struct ibv_td*)) \
  X(ALWAYS, int, dereg_mr, (struct pabi_mr*)) \
  X(ALWAYS, int, destroy_ah, (struct ibv_ah*)) \
  X(ALWAYS, int, destroy_counters, (struct ibv_counters*)) \
  X(ALWAYS, int, destroy_cq, (struct ibv_cq*)) \
  X(ALWAYS, int, destroy_flow, (struct ibv_flow*)) \
  X(ALWAYS, int, destroy_flow_action, (struct ibv_flow_action*)) \
  X(ALWAYS, int, destroy_qp, (struct ibv_qp*)) \
  X(ALWAYS, int, destroy_rwq_ind_table, (struct ibv_rwq_ind_table*)) \
  X(ALWAYS, int, destroy_srq, (struct ibv_srq*)) \
  X(ALWAYS, int, destroy_wq, (struct ibv_wq*)) \
  X(ALWAYS, int, detach_mcast, (struct ibv_qp*, const union ibv_gid*, uint16_t)) \
  X(SINCE_62, int, dm_export_dmabuf_fd, (struct ibv_dm*)) \
  X(SINCE_64, void, free_buf, (struct ibv_buf*)) \
  X(ALWAYS, void, free_context, (struct ibv_context*)) \
  X(ALWAYS, int, free_dm, (struct ibv_dm*)) \
  X(ALWAYS, int, get_srq_num, (struct ibv_srq*, uint32_t*)) \
  X(SINCE_35, struct ibv_dm*, import_dm, (struct ibv_context*, uint32_t)) \
  X(SINCE_31, struct ibv_mr*, import_mr, (struct ibv_pd*, uint32_t)) \
  X(SINCE_31, struct ibv_pd*, import_pd, (struct ibv_context*, uint32_t)) \
  X(ALWAYS, int, modify_cq, (struct ibv_cq*, struct ibv_modify_cq_attr*)) \
  X(ALWAYS, int, modify_flow_action_esp, (struct ibv_flow_action*, struct ibv_flow_action_esp_attr*)) \
  X(ALWAYS, int, modify_qp, (struct ibv_qp*, struct ibv_qp_attr*, int)) \
  X(ALWAYS, int, modify_qp_rate_limit, (struct ibv_qp*, struct ibv_qp_rate_limit_attr*)) \
  X(ALWAYS, int, modify_srq, (struct ibv_srq*, struct ibv_srq_attr*, int)) \
  X(ALWAYS, int, modify_wq, (struct ibv_wq*, struct ibv_wq_attr*)) \
  X(ALWAYS, struct ibv_qp*, open_qp, (struct ibv_context*, struct ibv_qp_open_attr*)) \
  X(ALWAYS, struct ibv_xrcd*, open_xrcd, (struct ibv_context*, struct ibv_xrcd_init_attr*)) \
  X(ALWAYS, int, poll_cq, (struct ibv_cq*, int, struct ibv_wc*)) \
  X(ALWAYS, int, post_recv, (struct ibv_qp*, struct ibv_recv_wr*, struct ibv_recv_wr**)) \
  X(ALWAYS, int, post_send, (struct ibv_qp*, struct ibv_send_wr*, struct ibv_send_wr**)) \
  X(ALWAYS, int, post_srq_ops, (struct ibv_srq*, struct ibv_ops_wr*, struct ibv_ops_wr**)) \
  X(ALWAYS, int, post_srq_recv, (struct ibv_srq*, struct ibv_recv_wr*, struct ibv_recv_wr**)) \
  X(BEFORE_33, int, query_device, (struct ibv_context*, struct ibv_device_attr*)) \
  X(ALWAYS, int, query_device_ex, (struct ibv_context*, const struct ibv_query_device_ex_input*, \
    struct ibv_device_attr_ex*, size_t)) \
  X(SINCE_31, int, query_ece, (struct ibv_qp*, struct ibv_ece*)) \
  X(ALWAYS, int, query_port, (struct ibv_context*, uint8_t, struct ibv_port_attr*)) \
  X(SINCE_62, int, query_port_speed, (struct ibv_context*, uint32_t, uint64_t*)) \
  X(ALWAYS, int, query_qp, (struct ibv_qp*, struct ibv_qp_attr*, int, struct ibv_qp_init_attr*)) \
  X(SINCE_36, int, query_qp_data_in_order, (struct ibv_qp*, enum ibv_wr_opcode, uint32_t)) \
  X(ALWAYS, int, query_rt_values, (struct ibv_context*, struct ibv_values_ex*)) \
  X(ALWAYS, int, query_srq, (struct ibv_srq*, struct ibv_srq_attr*)) \
  X(ALWAYS, int, read_counters, (struct ibv_counters*, uint64_t*, uint32_t, uint32_t)) \
  X(ALWAYS, struct ibv_mr*, reg_dm_mr, (struct ibv_pd*, struct ibv_dm*, uint64_t, size_t, unsigned int)) \
  X(SINCE_34, struct ibv_mr*, reg_dmabuf_mr, (struct ibv_pd*, uint64_t, size_t, uint64_t, int, int)) \
  X(ALWAYS, struct ibv_mr*, reg_mr, (struct ibv_pd*, void*, size_t, uint64_t, int)) \
  X(SINCE_59, struct ibv_mr*, reg_mr_ex, (struct ibv_pd*, struct ibv_mr_init_attr*)) \
  X(ALWAYS, int, req_notify_cq, (struct ibv_cq*, int)) \
  X(ALWAYS, int, rereg_mr, (struct pabi_mr*, int, struct ibv_pd*, void*, size_t, int)) \
  X(ALWAYS, int, resize_cq, (struct ibv_cq*, int)) \
  X(SINCE_31, int, set_ece, (struct ibv_qp*, struct ibv_ece*)) \
  X(SINCE_35, void, unimport_dm, (struct ibv_dm*)) \
  X(SINCE_31, void, unimport_mr, (struct ibv_mr*)) \
  X(SINCE_31, void, unimport_pd, (struct ibv_pd*))
/* clang-format on */

#endif
