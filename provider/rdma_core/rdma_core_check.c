/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compares our declarations with those of one version of rdma-core, member by member. Built only with
 * -DRDMA_CORE_SOURCE_DIR=... (check.cmake). RDMA_CORE_RELEASE and IBVERBS_PABI_VERSION are those of the version.
 */
#include <infiniband/driver.h>

#include "rdma_core/layouts.h"
#include "rdma_core/operations.h"
#include "rdma_core/structures.h"

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(struct theirs), #theirs)
#define SAME_PLACE(ours, theirs, member)                                                                 \
  _Static_assert(offsetof(struct ours, member) == offsetof(struct theirs, member), #theirs "." #member); \
  _Static_assert(sizeof(((struct ours*)0)->member) == sizeof(((struct theirs*)0)->member),               \
                 #theirs "." #member)

/* ---- structures.h ---- */

SAME_SIZE(pabi_list_node, list_node);
SAME_PLACE(pabi_list_node, list_node, next);
SAME_PLACE(pabi_list_node, list_node, prev);

SAME_SIZE(pabi_match, verbs_match_ent);
SAME_PLACE(pabi_match, verbs_match_ent, driver_data);
SAME_PLACE(pabi_match, verbs_match_ent, u.modalias);
SAME_PLACE(pabi_match, verbs_match_ent, u.driver_id);
SAME_PLACE(pabi_match, verbs_match_ent, vendor);
SAME_PLACE(pabi_match, verbs_match_ent, device);
SAME_PLACE(pabi_match, verbs_match_ent, kind);

#if RDMA_CORE_RELEASE >= 31
#define pabi_registered pabi_device_ops
SAME_PLACE(pabi_registered, verbs_device_ops, import_context);
#else
#define pabi_registered pabi_device_ops_28
#endif
SAME_SIZE(pabi_registered, verbs_device_ops);
SAME_PLACE(pabi_registered, verbs_device_ops, name);
SAME_PLACE(pabi_registered, verbs_device_ops, match_min_abi_version);
SAME_PLACE(pabi_registered, verbs_device_ops, match_max_abi_version);
SAME_PLACE(pabi_registered, verbs_device_ops, match_table);
SAME_PLACE(pabi_registered, verbs_device_ops, static_providers);
SAME_PLACE(pabi_registered, verbs_device_ops, match_device);
SAME_PLACE(pabi_registered, verbs_device_ops, alloc_context);
SAME_PLACE(pabi_registered, verbs_device_ops, alloc_device);
SAME_PLACE(pabi_registered, verbs_device_ops, uninit_device);

SAME_SIZE(pabi_device, verbs_device);
SAME_PLACE(pabi_device, verbs_device, device);
SAME_PLACE(pabi_device, verbs_device, ops);
SAME_PLACE(pabi_device, verbs_device, refcount);
SAME_PLACE(pabi_device, verbs_device, entry);
SAME_PLACE(pabi_device, verbs_device, sysfs);
SAME_PLACE(pabi_device, verbs_device, core_support);

SAME_PLACE(pabi_mr, verbs_mr, ibv_mr);
SAME_PLACE(pabi_mr, verbs_mr, mr_type);
#if RDMA_CORE_RELEASE >= 32
SAME_SIZE(pabi_mr, verbs_mr);
SAME_PLACE(pabi_mr, verbs_mr, access);
#endif
_Static_assert(sizeof(struct pabi_mr) >= sizeof(struct verbs_mr), "verbs_mr");

#define SAME_VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME_VALUE(PABI_MATCH_END, VERBS_MATCH_SENTINEL);
SAME_VALUE(PABI_MATCH_PCI, VERBS_MATCH_PCI);
SAME_VALUE(PABI_MATCH_MODALIAS, VERBS_MATCH_MODALIAS);
SAME_VALUE(PABI_MATCH_DRIVER_ID, VERBS_MATCH_DRIVER_ID);
SAME_VALUE(PABI_MR_TYPE_MR, IBV_MR_TYPE_MR);
SAME_VALUE(PABI_MR_TYPE_NULL_MR, IBV_MR_TYPE_NULL_MR);
#if RDMA_CORE_RELEASE >= 31
SAME_VALUE(PABI_MR_TYPE_IMPORTED_MR, IBV_MR_TYPE_IMPORTED_MR);
#endif
#if RDMA_CORE_RELEASE >= 34
SAME_VALUE(PABI_MR_TYPE_DMABUF_MR, IBV_MR_TYPE_DMABUF_MR);
#endif
SAME_VALUE(PABI_QP_EX, VERBS_QP_EX);
#if RDMA_CORE_RELEASE >= 59
SAME_PLACE(pabi_mr_init_attr, ibv_mr_init_attr, length);
SAME_PLACE(pabi_mr_init_attr, ibv_mr_init_attr, access);
SAME_PLACE(pabi_mr_init_attr, ibv_mr_init_attr, comp_mask);
SAME_PLACE(pabi_mr_init_attr, ibv_mr_init_attr, iova);
SAME_PLACE(pabi_mr_init_attr, ibv_mr_init_attr, addr);
SAME_PLACE(pabi_mr_init_attr, ibv_mr_init_attr, fd);
SAME_PLACE(pabi_mr_init_attr, ibv_mr_init_attr, fd_offset);
SAME_PLACE(pabi_mr_init_attr, ibv_mr_init_attr, dmah);
SAME_VALUE(PABI_REG_MR_IOVA, IBV_REG_MR_MASK_IOVA);
SAME_VALUE(PABI_REG_MR_ADDR, IBV_REG_MR_MASK_ADDR);
SAME_VALUE(PABI_REG_MR_FD, IBV_REG_MR_MASK_FD);
SAME_VALUE(PABI_REG_MR_FD_OFFSET, IBV_REG_MR_MASK_FD_OFFSET);
SAME_VALUE(PABI_REG_MR_DMAH, IBV_REG_MR_MASK_DMAH);
#endif
_Static_assert(offsetof(struct verbs_qp, comp_mask) == sizeof(struct ibv_qp_ex), "verbs_qp.comp_mask");

/* ---- operations.h ---- */

#define IN_ALWAYS(...) __VA_ARGS__
#if RDMA_CORE_RELEASE < 33
#define IN_BEFORE_33(...) __VA_ARGS__
#else
#define IN_BEFORE_33(...)
#endif
#if RDMA_CORE_RELEASE >= 31
#define IN_SINCE_31(...) __VA_ARGS__
#else
#define IN_SINCE_31(...)
#endif
#if RDMA_CORE_RELEASE >= 34
#define IN_SINCE_34(...) __VA_ARGS__
#else
#define IN_SINCE_34(...)
#endif
#if RDMA_CORE_RELEASE >= 35
#define IN_SINCE_35(...) __VA_ARGS__
#else
#define IN_SINCE_35(...)
#endif
#if RDMA_CORE_RELEASE >= 36
#define IN_SINCE_36(...) __VA_ARGS__
#else
#define IN_SINCE_36(...)
#endif
#if RDMA_CORE_RELEASE >= 59
#define IN_SINCE_59(...) __VA_ARGS__
#else
#define IN_SINCE_59(...)
#endif
#if RDMA_CORE_RELEASE >= 62
#define IN_SINCE_62(...) __VA_ARGS__
#else
#define IN_SINCE_62(...)
#endif
#if RDMA_CORE_RELEASE >= 64
#define IN_SINCE_64(...) __VA_ARGS__
#else
#define IN_SINCE_64(...)
#endif

struct our_operations {
#define MEMBER(releases, result, name, arguments) IN_##releases(result(*name) arguments;)
  PABI_OPERATIONS(MEMBER)
#undef MEMBER
};
SAME_SIZE(our_operations, verbs_context_ops);
#define SAME_OPERATION(releases, result, name, arguments) \
  IN_##releases(SAME_PLACE(our_operations, verbs_context_ops, name);)
PABI_OPERATIONS(SAME_OPERATION)

/* dereg_mr and rereg_mr have a structure of ours in their arguments. */
#define PLACE(name) offsetof(struct verbs_context_ops, name)
#define SAME_SIGNATURE(releases, result, name, arguments)                                             \
  IN_##releases(                                                                                      \
      _Static_assert(PLACE(name) == PLACE(dereg_mr) || PLACE(name) == PLACE(rereg_mr) ||              \
                         __builtin_types_compatible_p(__typeof__(((struct our_operations*)0)->name),  \
                                                      __typeof__(((struct verbs_context_ops*)0)->name)), \
                     #name);)
PABI_OPERATIONS(SAME_SIGNATURE)

/* ---- layouts.h ---- */

/* The rows are in the order of the releases: the last one that is not too new is that of this release. */
enum {
#define COUNT(release, abi, function, version, fields) +(RDMA_CORE_RELEASE >= (release))
  our_rows = 0 PABI_LAYOUTS(COUNT),
};
enum {
#define NUMBER(release, abi, function, version, fields) number_of_##release,
  PABI_LAYOUTS(NUMBER)
};
_Static_assert(our_rows > 0, "this release is older than all layouts");
#define IS_OURS(release) (number_of_##release == our_rows - 1)
#define SAME_LAYOUT(release, abi, function, version, fields)                                      \
  _Static_assert(!IS_OURS(release) || (abi) == IBVERBS_PABI_VERSION, "IBVERBS_PABI_VERSION");     \
  _Static_assert(!IS_OURS(release) || offsetof(struct verbs_context, context) ==                  \
                                          (PABI_CONTEXT_FIELDS + (fields)) * sizeof(void*), "verbs_context.context");
PABI_LAYOUTS(SAME_LAYOUT)
