/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The private ABIs between libibverbs and a provider, from rdma-core 28 to 64. libibverbs names the ABI in the
 * file name of the provider ("-rdmav34.so") and in a symbol version ("IBVERBS_PRIVATE_34"), but a name has had up
 * to three layouts. The newest public function tells them apart.
 *
 * X(release, abi, function, its version, fields). The layout of `release` and of those up to the next row.
 * `fields`: how many pointers struct verbs_context of <infiniband/verbs.h> got in front of the one of rdma-core
 * 28 to 58: it grows at its beginning.
 *
 * Source: CMakeLists.txt (IBVERBS_PABI_VERSION), libibverbs/libibverbs.map.in, driver.h and verbs.h of rdma-core.
 */
#ifndef VERBENA_PROVIDER_RDMA_CORE_LAYOUTS_H
#define VERBENA_PROVIDER_RDMA_CORE_LAYOUTS_H

/* clang-format off */
#define PABI_LAYOUTS(X) \
  X(28, 25, "ibv_reg_mr_iova2", "IBVERBS_1.8", 0) \
  X(31, 25, "ibv_import_device", "IBVERBS_1.10", 0) \
  X(33, 33, "_ibv_query_gid_ex", "IBVERBS_1.11", 0) \
  X(34, 34, "ibv_reg_dmabuf_mr", "IBVERBS_1.12", 0) \
  X(35, 34, "ibv_import_dm", "IBVERBS_1.13", 0) \
  X(36, 34, "ibv_query_qp_data_in_order", "IBVERBS_1.14", 0) \
  X(57, 57, "ibv_query_qp_data_in_order", "IBVERBS_1.14", 0) \
  X(59, 59, "ibv_alloc_dmah", "IBVERBS_1.15", 3) \
  X(62, 59, "ibv_query_port_speed", "IBVERBS_1.16", 4) \
  X(64, 64, "ibv_alloc_buf", "IBVERBS_1.17", 6)
/* clang-format on */

/* Pointers in front of `context` in the struct verbs_context of rdma-core 28 to 58. */
#define PABI_CONTEXT_FIELDS 40

/* The public version that is newer than all of these. A library that has it may have another layout. */
#define PABI_UNKNOWN_VERSION "IBVERBS_1.18"

#endif
