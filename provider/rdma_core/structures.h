/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The structures that libibverbs and a provider share, with names of our own: distributions do not package the
 * header of rdma-core. They are the same in all layouts (layouts.h), except where a comment says otherwise.
 * Only what libibverbs itself reads or writes is here.
 *
 * Source: libibverbs/driver.h of rdma-core v28.0 to v64.0. A build with -DRDMA_CORE_SOURCE_DIR=... compares every
 * offset with the original (rdma_core_check.c). Plain C for that reason.
 */
#ifndef VERBENA_PROVIDER_RDMA_CORE_STRUCTURES_H
#define VERBENA_PROVIDER_RDMA_CORE_STRUCTURES_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define PABI_ASSERT(condition) static_assert(condition, #condition)
extern "C" {
#else
#define PABI_ASSERT(condition) _Static_assert(condition, #condition)
#endif

struct ibv_dmah;

struct pabi_list_node {
  struct pabi_list_node* next;
  struct pabi_list_node* prev;
};

/* ---- finding the driver of a device ---- */

enum pabi_match_kind {
  PABI_MATCH_END = 0, /* ends a table */
  PABI_MATCH_PCI = 1,
  PABI_MATCH_MODALIAS = 2, /* also matches the name of a device */
  PABI_MATCH_DRIVER_ID = 3,
};

struct pabi_match {
  void* driver_data;
  union {
    const char* modalias; /* pattern of fnmatch(3); a device's name is matched as "rdma_device:N<name>" */
    uint64_t driver_id;
  } u;
  uint16_t vendor;
  uint16_t device;
  uint8_t kind; /* enum pabi_match_kind */
};
PABI_ASSERT(sizeof(struct pabi_match) == 24);

struct pabi_sysfs_device; /* a device that libibverbs has found; opaque here */
struct pabi_device;

/* The structure that a provider registers, in rdma-core 31 and newer. */
struct pabi_device_ops {
  const char* name;
  uint32_t match_min_abi_version;
  uint32_t match_max_abi_version;
  const struct pabi_match* match_table;
  const struct pabi_device_ops** static_providers;
  bool (*match_device)(struct pabi_sysfs_device*);
  /* Takes ownership of the descriptor. On failure it closes the descriptor, sets errno and returns NULL. */
  struct verbs_context* (*alloc_context)(struct ibv_device*, int cmd_fd, void* private_data);
  struct verbs_context* (*import_context)(struct ibv_device*, int cmd_fd); /* NULL: EOPNOTSUPP */
  struct pabi_device* (*alloc_device)(struct pabi_sysfs_device*);
  void (*uninit_device)(struct pabi_device*); /* frees the result of alloc_device */
};
PABI_ASSERT(sizeof(struct pabi_device_ops) == 72);

/* The same in rdma-core 28 to 30. */
struct pabi_device_ops_28 {
  const char* name;
  uint32_t match_min_abi_version;
  uint32_t match_max_abi_version;
  const struct pabi_match* match_table;
  const struct pabi_device_ops** static_providers;
  bool (*match_device)(struct pabi_sysfs_device*);
  struct verbs_context* (*alloc_context)(struct ibv_device*, int cmd_fd, void* private_data);
  struct pabi_device* (*alloc_device)(struct pabi_sysfs_device*);
  void (*uninit_device)(struct pabi_device*);
};
PABI_ASSERT(sizeof(struct pabi_device_ops_28) == 64);

struct pabi_device {
  struct ibv_device device; /* first */
  const struct pabi_device_ops* ops;
  int refcount; /* atomic; only libibverbs uses it */
  struct pabi_list_node entry;
  struct pabi_sysfs_device* sysfs;
  uint64_t core_support; /* bit 0: libibverbs passes optional access flags to reg_mr; 0: removes them */
};
PABI_ASSERT(offsetof(struct pabi_device, ops) == sizeof(struct ibv_device));
PABI_ASSERT(sizeof(struct pabi_device) == sizeof(struct ibv_device) + 48);

/* ---- objects with a private part that libibverbs reads ---- */

/* The types since rdma-core 34. libibverbs distinguishes the first one from all others only. */
enum pabi_mr_type {
  PABI_MR_TYPE_MR = 0, /* registered memory: ibv_dereg_mr ends its fork protection */
  PABI_MR_TYPE_NULL_MR = 1,
  PABI_MR_TYPE_IMPORTED_MR = 2,
  PABI_MR_TYPE_DMABUF_MR = 3,
};

struct pabi_mr {
  struct ibv_mr ibv_mr;
  enum pabi_mr_type mr_type;
  int access; /* not in the first releases 28.0 to 31.0, where nobody looks at it */
};
PABI_ASSERT(offsetof(struct pabi_mr, mr_type) == sizeof(struct ibv_mr));

/* struct ibv_mr_init_attr of rdma-core 59 and newer; the installed <infiniband/verbs.h> may be older. 64 has
 * one member more, which libibverbs turns into others. A member without its bit in comp_mask is not
 * initialised. */
struct pabi_mr_init_attr {
  size_t length;
  int access;
  uint64_t comp_mask; /* PABI_REG_MR_... */
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  struct ibv_dmah* dmah;
};

#define PABI_REG_MR_IOVA 1u
#define PABI_REG_MR_ADDR 2u
#define PABI_REG_MR_FD 4u
#define PABI_REG_MR_FD_OFFSET 8u
#define PABI_REG_MR_DMAH 16u

/* In the comp_mask behind a struct ibv_qp_ex (qp_mark.h): ibv_qp_to_qp_ex(3) returns the QP. */
#define PABI_QP_EX 2u

#ifdef __cplusplus
}
#endif

#endif
