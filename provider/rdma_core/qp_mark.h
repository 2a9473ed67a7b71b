// SPDX-License-Identifier: BSD-2-Clause
//
// Where libibverbs looks whether a QP is an extended one (ibv_qp_to_qp_ex(3)): in the word comp_mask behind
// the struct ibv_qp_ex. That structure grows within a layout (rdma-core 43: wr_atomic_write, 46: wr_flush),
// so the place is probed.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

namespace verbena::rdma_core {

// For one offset after the other, `to_extended` (ibv_qp_to_qp_ex) is called on a QP that has PABI_QP_EX at
// that offset only. 0: not found.
using ToExtended = ibv_qp_ex* (*)(ibv_qp* qp);
inline constexpr size_t kLargestQp = 1024;
size_t qp_mark_offset(ToExtended to_extended);
size_t installed_qp_mark_offset();  // of the installed libibverbs

}  // namespace verbena::rdma_core
