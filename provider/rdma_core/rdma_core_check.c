/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compares our declarations with rdma-core's, member by member. Built only with -DRDMA_CORE_SOURCE_DIR=...
 */
#include <infiniband/driver.h>

#include "rdma_core/pabi34_rdma_core36.h"

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(struct theirs), #theirs)
#define SAME_PLACE(ours, theirs, member)                                                                 \
  _Static_assert(offsetof(struct ours, member) == offsetof(struct theirs, member), #theirs "." #member); \
  _Static_assert(sizeof(((struct ours*)0)->member) == sizeof(((struct theirs*)0)->member),               \
                 #theirs "." #member)

SAME_SIZE(pabi34_list_node, list_node);
SAME_PLACE(pabi34_list_node, list_node, next);
SAME_PLACE(pabi34_list_node, list_node, prev);

SAME_SIZE(pabi34_match, verbs_match_ent);
SAME_PLACE(pabi34_match, verbs_match_ent, driver_data);
SAME_PLACE(pabi34_match, verbs_match_ent, u.modalias);
SAME_PLACE(pabi34_match, verbs_match_ent, u.driver_id);
SAME_PLACE(pabi34_match, verbs_match_ent, vendor);
SAME_PLACE(pabi34_match, verbs_match_ent, device);
SAME_PLACE(pabi34_match, verbs_match_ent, kind);

SAME_SIZE(pabi34_sysfs_device, verbs_sysfs_dev);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, entry);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, provider_data);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, match);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, flags);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, sysfs_name);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, sysfs_cdev);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, ibdev_name);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, ibdev_path);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, modalias);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, node_guid);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, driver_id);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, node_type);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, ibdev_idx);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, num_ports);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, abi_ver);
SAME_PLACE(pabi34_sysfs_device, verbs_sysfs_dev, time_created);

SAME_SIZE(pabi34_device_ops, verbs_device_ops);
SAME_PLACE(pabi34_device_ops, verbs_device_ops, name);
SAME_PLACE(pabi34_device_ops, verbs_device_ops, match_min_abi_version);
SAME_PLACE(pabi34_device_ops, verbs_device_ops, match_max_abi_version);
SAME_PLACE(pabi34_device_ops, verbs_device_ops, match_table);
SAME_PLACE(pabi34_device_ops, verbs_device_ops, static_providers);
SAME_PLACE(pabi34_device_ops, verbs_device_ops, match_device);
SAME_PLACE(pabi34_device_ops, verbs_device_ops, alloc_context);
SAME_PLACE(pabi34_device_ops, verbs_device_ops, import_context);
SAME_PLACE(pabi34_device_ops, verbs_device_ops, alloc_device);
SAME_PLACE(pabi34_device_ops, verbs_device_ops, uninit_device);

SAME_SIZE(pabi34_device, verbs_device);
SAME_PLACE(pabi34_device, verbs_device, device);
SAME_PLACE(pabi34_device, verbs_device, ops);
SAME_PLACE(pabi34_device, verbs_device, refcount);
SAME_PLACE(pabi34_device, verbs_device, entry);
SAME_PLACE(pabi34_device, verbs_device, sysfs);
SAME_PLACE(pabi34_device, verbs_device, core_support);

SAME_SIZE(pabi34_mr, verbs_mr);
SAME_PLACE(pabi34_mr, verbs_mr, ibv_mr);
SAME_PLACE(pabi34_mr, verbs_mr, mr_type);
SAME_PLACE(pabi34_mr, verbs_mr, access);

SAME_SIZE(pabi34_xrcd, verbs_xrcd);
SAME_PLACE(pabi34_xrcd, verbs_xrcd, xrcd);
SAME_PLACE(pabi34_xrcd, verbs_xrcd, comp_mask);
SAME_PLACE(pabi34_xrcd, verbs_xrcd, handle);

SAME_SIZE(pabi34_srq, verbs_srq);
SAME_PLACE(pabi34_srq, verbs_srq, srq);
SAME_PLACE(pabi34_srq, verbs_srq, srq_type);
SAME_PLACE(pabi34_srq, verbs_srq, xrcd);
SAME_PLACE(pabi34_srq, verbs_srq, cq);
SAME_PLACE(pabi34_srq, verbs_srq, srq_num);

SAME_SIZE(pabi34_qp, verbs_qp);
SAME_PLACE(pabi34_qp, verbs_qp, qp);
SAME_PLACE(pabi34_qp, verbs_qp, qp_ex);
SAME_PLACE(pabi34_qp, verbs_qp, comp_mask);
SAME_PLACE(pabi34_qp, verbs_qp, xrcd);

SAME_SIZE(pabi34_cq, verbs_cq);
SAME_PLACE(pabi34_cq, verbs_cq, cq);
SAME_PLACE(pabi34_cq, verbs_cq, cq_ex);

/* Each operation has the same offset and the same signature. The two operations with an argument of type
 * struct verbs_mr* differ in that type, so only their offsets are compared. */
SAME_SIZE(pabi34_context_ops, verbs_context_ops);
#define SAME_OPERATION(result, name, arguments) SAME_PLACE(pabi34_context_ops, verbs_context_ops, name);
PABI34_CONTEXT_OPS(SAME_OPERATION)

#define PLACE(name) offsetof(struct verbs_context_ops, name)
#define SAME_SIGNATURE(result, name, arguments)                                                      \
  _Static_assert(PLACE(name) == PLACE(dereg_mr) || PLACE(name) == PLACE(rereg_mr) ||                 \
                     __builtin_types_compatible_p(__typeof__(((struct pabi34_context_ops*)0)->name), \
                                                  __typeof__(((struct verbs_context_ops*)0)->name)), \
                 #name);
PABI34_CONTEXT_OPS(SAME_SIGNATURE)

#define SAME_VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME_VALUE(PABI34_MATCH_END, VERBS_MATCH_SENTINEL);
SAME_VALUE(PABI34_MATCH_PCI, VERBS_MATCH_PCI);
SAME_VALUE(PABI34_MATCH_MODALIAS, VERBS_MATCH_MODALIAS);
SAME_VALUE(PABI34_MATCH_DRIVER_ID, VERBS_MATCH_DRIVER_ID);
SAME_VALUE(PABI34_MR_TYPE_MR, IBV_MR_TYPE_MR);
SAME_VALUE(PABI34_MR_TYPE_NULL_MR, IBV_MR_TYPE_NULL_MR);
SAME_VALUE(PABI34_MR_TYPE_IMPORTED_MR, IBV_MR_TYPE_IMPORTED_MR);
SAME_VALUE(PABI34_MR_TYPE_DMABUF_MR, IBV_MR_TYPE_DMABUF_MR);
SAME_VALUE(PABI34_QP_XRCD, VERBS_QP_XRCD);
SAME_VALUE(PABI34_QP_EX, VERBS_QP_EX);
