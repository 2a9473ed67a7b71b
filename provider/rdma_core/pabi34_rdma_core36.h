/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The private ABI between libibverbs and a provider in rdma-core 36 to 56 (symbol version
 * IBVERBS_PRIVATE_34). Distributions do not package the header of rdma-core, so this header declares the
 * layouts, with names of our own. Source: libibverbs/driver.h of rdma-core v39.0, v44.0 and v50.0, which
 * agree. A build with -DRDMA_CORE_SOURCE_DIR=... compares every offset with the original (rdma_core_check.c).
 *
 * This header is plain C, so that rdma_core_check.c can include both headers. It has types only.
 * libibverbs_imports.h declares the functions.
 */
#ifndef VERBENA_PROVIDER_RDMA_CORE_PABI34_RDMA_CORE36_H
#define VERBENA_PROVIDER_RDMA_CORE_PABI34_RDMA_CORE36_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
#define PABI34_ASSERT(condition) static_assert(condition, #condition)
#define PABI34_UNSET = nullptr /* a table needs to list only the operations that it has */
extern "C" {
#else
#define PABI34_ASSERT(condition) _Static_assert(condition, #condition)
#define PABI34_UNSET
#endif

struct pabi34_list_node {
  struct pabi34_list_node* next;
  struct pabi34_list_node* prev;
};

/* ---- finding the driver of a device ---- */

enum pabi34_match_kind {
  PABI34_MATCH_END = 0, /* ends a table */
  PABI34_MATCH_PCI = 1,
  PABI34_MATCH_MODALIAS = 2, /* also matches the name of a device */
  PABI34_MATCH_DRIVER_ID = 3,
};

struct pabi34_match {
  void* driver_data;
  union {
    const char* modalias; /* pattern of fnmatch(3); a device's name is matched as "rdma_device:N<name>" */
    uint64_t driver_id;
  } u;
  uint16_t vendor;
  uint16_t device;
  uint8_t kind; /* enum pabi34_match_kind */
};
PABI34_ASSERT(sizeof(struct pabi34_match) == 24);

/* A device that libibverbs has found, with or without a driver. Owned by libibverbs. */
struct pabi34_sysfs_device {
  struct pabi34_list_node entry;
  void* provider_data;
  const struct pabi34_match* match;
  unsigned int flags;
  char sysfs_name[IBV_SYSFS_NAME_MAX]; /* "uverbs0" */
  dev_t sysfs_cdev;
  char ibdev_name[IBV_SYSFS_NAME_MAX]; /* "verbena0" */
  char ibdev_path[IBV_SYSFS_PATH_MAX];
  char modalias[512];
  uint64_t node_guid;
  uint32_t driver_id;
  enum ibv_node_type node_type;
  int ibdev_idx;
  uint32_t num_ports;
  uint32_t abi_ver;
  struct timespec time_created;
};

struct pabi34_device;

/* The structure that a provider registers. */
struct pabi34_device_ops {
  const char* name;
  uint32_t match_min_abi_version;
  uint32_t match_max_abi_version;
  const struct pabi34_match* match_table;
  const struct pabi34_device_ops** static_providers;
  bool (*match_device)(struct pabi34_sysfs_device*);
  /* Takes ownership of the descriptor. On failure it closes the descriptor, sets errno and returns NULL. */
  struct verbs_context* (*alloc_context)(struct ibv_device*, int cmd_fd, void* private_data);
  struct verbs_context* (*import_context)(struct ibv_device*, int cmd_fd); /* NULL: EOPNOTSUPP */
  struct pabi34_device* (*alloc_device)(struct pabi34_sysfs_device*);
  void (*uninit_device)(struct pabi34_device*); /* frees the result of alloc_device */
};
PABI34_ASSERT(sizeof(struct pabi34_device_ops) == 72);

struct pabi34_device {
  struct ibv_device device; /* first */
  const struct pabi34_device_ops* ops;
  int refcount; /* atomic; only libibverbs uses it */
  struct pabi34_list_node entry;
  struct pabi34_sysfs_device* sysfs;
  uint64_t core_support; /* bit 0: libibverbs passes optional access flags to reg_mr; 0: removes them */
};
PABI34_ASSERT(offsetof(struct pabi34_device, ops) == sizeof(struct ibv_device));
PABI34_ASSERT(sizeof(struct pabi34_device) == sizeof(struct ibv_device) + 48);

/* ---- objects with a private part that libibverbs reads ---- */

enum pabi34_mr_type {
  PABI34_MR_TYPE_MR = 0, /* registered memory: ibv_dereg_mr ends its fork protection */
  PABI34_MR_TYPE_NULL_MR = 1,
  PABI34_MR_TYPE_IMPORTED_MR = 2,
  PABI34_MR_TYPE_DMABUF_MR = 3,
};

struct pabi34_mr {
  struct ibv_mr ibv_mr;
  enum pabi34_mr_type mr_type;
  int access;
};
PABI34_ASSERT(offsetof(struct pabi34_mr, mr_type) == sizeof(struct ibv_mr));

enum pabi34_qp_mask {
  PABI34_QP_XRCD = 1 << 0,
  PABI34_QP_EX = 1 << 1, /* qp_ex is valid: ibv_qp_to_qp_ex(3) returns it */
};

struct pabi34_xrcd {
  struct ibv_xrcd xrcd;
  uint32_t comp_mask;
  uint32_t handle;
};
PABI34_ASSERT(offsetof(struct pabi34_xrcd, comp_mask) == sizeof(struct ibv_xrcd));

struct pabi34_srq {
  struct ibv_srq srq;
  enum ibv_srq_type srq_type;
  struct pabi34_xrcd* xrcd;
  struct ibv_cq* cq;
  uint32_t srq_num;
};
PABI34_ASSERT(offsetof(struct pabi34_srq, srq_type) == sizeof(struct ibv_srq));

struct pabi34_qp {
  union {
    struct ibv_qp qp;
    struct ibv_qp_ex qp_ex;
  };
  uint32_t comp_mask; /* enum pabi34_qp_mask; its offset depends on the version (layout.h, qp_mask_offset) */
  struct pabi34_xrcd* xrcd;
};
PABI34_ASSERT(offsetof(struct pabi34_qp, comp_mask) == sizeof(struct ibv_qp_ex));

struct pabi34_cq {
  union {
    struct ibv_cq cq;
    struct ibv_cq_ex cq_ex;
  };
};
PABI34_ASSERT(sizeof(struct pabi34_cq) == sizeof(struct ibv_cq_ex));

/* ---- the operations of a context: X(result, name, arguments), in the order of the table. If the provider
 * does not set an operation, libibverbs sets a function that returns EOPNOTSUPP. ---- */

/* clang-format off */
#define PABI34_CONTEXT_OPS(X) \
  X(int, advise_mr, (struct ibv_pd*, enum ibv_advise_mr_advice, uint32_t, struct ibv_sge*, uint32_t)) \
  X(struct ibv_dm*, alloc_dm, (struct ibv_context*, struct ibv_alloc_dm_attr*)) \
  X(struct ibv_mw*, alloc_mw, (struct ibv_pd*, enum ibv_mw_type)) \
  X(struct ibv_mr*, alloc_null_mr, (struct ibv_pd*)) \
  X(struct ibv_pd*, alloc_parent_domain, (struct ibv_context*, struct ibv_parent_domain_init_attr*)) \
  X(struct ibv_pd*, alloc_pd, (struct ibv_context*)) \
  X(struct ibv_td*, alloc_td, (struct ibv_context*, struct ibv_td_init_attr*)) \
  X(void, async_event, (struct ibv_context*, struct ibv_async_event*)) \
  X(int, attach_counters_point_flow, (struct ibv_counters*, struct ibv_counter_attach_attr*, \
    struct ibv_flow*)) \
  X(int, attach_mcast, (struct ibv_qp*, const union ibv_gid*, uint16_t)) \
  X(int, bind_mw, (struct ibv_qp*, struct ibv_mw*, struct ibv_mw_bind*)) \
  X(int, close_xrcd, (struct ibv_xrcd*)) \
  X(void, cq_event, (struct ibv_cq*)) \
  X(struct ibv_ah*, create_ah, (struct ibv_pd*, struct ibv_ah_attr*)) \
  X(struct ibv_counters*, create_counters, (struct ibv_context*, struct ibv_counters_init_attr*)) \
  X(struct ibv_cq*, create_cq, (struct ibv_context*, int, struct ibv_comp_channel*, int)) \
  X(struct ibv_cq_ex*, create_cq_ex, (struct ibv_context*, struct ibv_cq_init_attr_ex*)) \
  X(struct ibv_flow*, create_flow, (struct ibv_qp*, struct ibv_flow_attr*)) \
  X(struct ibv_flow_action*, create_flow_action_esp, (struct ibv_context*, \
    struct ibv_flow_action_esp_attr*)) \
  X(struct ibv_qp*, create_qp, (struct ibv_pd*, struct ibv_qp_init_attr*)) \
  X(struct ibv_qp*, create_qp_ex, (struct ibv_context*, struct ibv_qp_init_attr_ex*)) \
  X(struct ibv_rwq_ind_table*, create_rwq_ind_table, (struct ibv_context*, \
    struct ibv_rwq_ind_table_init_attr*)) \
  X(struct ibv_srq*, create_srq, (struct ibv_pd*, struct ibv_srq_init_attr*)) \
  X(struct ibv_srq*, create_srq_ex, (struct ibv_context*, struct ibv_srq_init_attr_ex*)) \
  X(struct ibv_wq*, create_wq, (struct ibv_context*, struct ibv_wq_init_attr*)) \
  X(int, dealloc_mw, (struct ibv_mw*)) \
  X(int, dealloc_pd, (struct ibv_pd*)) \
  X(int, dealloc_td, (struct ibv_td*)) \
  X(int, dereg_mr, (struct pabi34_mr*)) \
  X(int, destroy_ah, (struct ibv_ah*)) \
  X(int, destroy_counters, (struct ibv_counters*)) \
  X(int, destroy_cq, (struct ibv_cq*)) \
  X(int, destroy_flow, (struct ibv_flow*)) \
  X(int, destroy_flow_action, (struct ibv_flow_action*)) \
  X(int, destroy_qp, (struct ibv_qp*)) \
  X(int, destroy_rwq_ind_table, (struct ibv_rwq_ind_table*)) \
  X(int, destroy_srq, (struct ibv_srq*)) \
  X(int, destroy_wq, (struct ibv_wq*)) \
  X(int, detach_mcast, (struct ibv_qp*, const union ibv_gid*, uint16_t)) \
  X(void, free_context, (struct ibv_context*)) \
  X(int, free_dm, (struct ibv_dm*)) \
  X(int, get_srq_num, (struct ibv_srq*, uint32_t*)) \
  X(struct ibv_dm*, import_dm, (struct ibv_context*, uint32_t)) \
  X(struct ibv_mr*, import_mr, (struct ibv_pd*, uint32_t)) \
  X(struct ibv_pd*, import_pd, (struct ibv_context*, uint32_t)) \
  X(int, modify_cq, (struct ibv_cq*, struct ibv_modify_cq_attr*)) \
  X(int, modify_flow_action_esp, (struct ibv_flow_action*, struct ibv_flow_action_esp_attr*)) \
  X(int, modify_qp, (struct ibv_qp*, struct ibv_qp_attr*, int)) \
  X(int, modify_qp_rate_limit, (struct ibv_qp*, struct ibv_qp_rate_limit_attr*)) \
  X(int, modify_srq, (struct ibv_srq*, struct ibv_srq_attr*, int)) \
  X(int, modify_wq, (struct ibv_wq*, struct ibv_wq_attr*)) \
  X(struct ibv_qp*, open_qp, (struct ibv_context*, struct ibv_qp_open_attr*)) \
  X(struct ibv_xrcd*, open_xrcd, (struct ibv_context*, struct ibv_xrcd_init_attr*)) \
  X(int, poll_cq, (struct ibv_cq*, int, struct ibv_wc*)) \
  X(int, post_recv, (struct ibv_qp*, struct ibv_recv_wr*, struct ibv_recv_wr**)) \
  X(int, post_send, (struct ibv_qp*, struct ibv_send_wr*, struct ibv_send_wr**)) \
  X(int, post_srq_ops, (struct ibv_srq*, struct ibv_ops_wr*, struct ibv_ops_wr**)) \
  X(int, post_srq_recv, (struct ibv_srq*, struct ibv_recv_wr*, struct ibv_recv_wr**)) \
  X(int, query_device_ex, (struct ibv_context*, const struct ibv_query_device_ex_input*, \
    struct ibv_device_attr_ex*, size_t)) \
  X(int, query_ece, (struct ibv_qp*, struct ibv_ece*)) \
  X(int, query_port, (struct ibv_context*, uint8_t, struct ibv_port_attr*)) \
  X(int, query_qp, (struct ibv_qp*, struct ibv_qp_attr*, int, struct ibv_qp_init_attr*)) \
  X(int, query_qp_data_in_order, (struct ibv_qp*, enum ibv_wr_opcode, uint32_t)) \
  X(int, query_rt_values, (struct ibv_context*, struct ibv_values_ex*)) \
  X(int, query_srq, (struct ibv_srq*, struct ibv_srq_attr*)) \
  X(int, read_counters, (struct ibv_counters*, uint64_t*, uint32_t, uint32_t)) \
  X(struct ibv_mr*, reg_dm_mr, (struct ibv_pd*, struct ibv_dm*, uint64_t, size_t, unsigned int)) \
  X(struct ibv_mr*, reg_dmabuf_mr, (struct ibv_pd*, uint64_t, size_t, uint64_t, int, int)) \
  X(struct ibv_mr*, reg_mr, (struct ibv_pd*, void*, size_t, uint64_t, int)) \
  X(int, req_notify_cq, (struct ibv_cq*, int)) \
  X(int, rereg_mr, (struct pabi34_mr*, int, struct ibv_pd*, void*, size_t, int)) \
  X(int, resize_cq, (struct ibv_cq*, int)) \
  X(int, set_ece, (struct ibv_qp*, struct ibv_ece*)) \
  X(void, unimport_dm, (struct ibv_dm*)) \
  X(void, unimport_mr, (struct ibv_mr*)) \
  X(void, unimport_pd, (struct ibv_pd*))
/* clang-format on */

struct pabi34_context_ops {
#define PABI34_MEMBER(result, name, arguments) result(*name) arguments PABI34_UNSET;
  PABI34_CONTEXT_OPS(PABI34_MEMBER)
#undef PABI34_MEMBER
};
PABI34_ASSERT(sizeof(struct pabi34_context_ops) == 76 * sizeof(void*));

#ifdef __cplusplus
}
#endif

#endif
