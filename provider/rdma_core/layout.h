// SPDX-License-Identifier: BSD-2-Clause
//
// The private layout of this process's libibverbs. The symbol version IBVERBS_PRIVATE_34 is not enough: it
// was given to three layouts (rdma-core 34; 35; 36 to 56).
#pragma once

#include <cstddef>

struct ibv_qp;
struct ibv_qp_ex;

namespace verbena::rdma_core {

enum class Layout {
  kBeforeRdmaCore36,  // 34 or 35
  kRdmaCore36,        // pabi34_rdma_core36.h
  kUnknown,           // newer than rdma-core 56
};

// True: the libibverbs of the process has `symbol` in `version`.
using HasSymbol = bool (*)(const char* symbol, const char* version);

Layout layout_of(HasSymbol has_symbol);

// The layout of the libibverbs that this library is linked with at run time. Any thread.
Layout installed_layout();

// A one-line message: why a layout other than kRdmaCore36 is refused.
const char* refusal(Layout layout);

// The offset of enum pabi34_qp_mask in a QP. struct ibv_qp_ex, which precedes it, has grown within the layout
// (rdma-core 43: wr_atomic_write, 46: wr_flush). The offset is therefore probed: `to_extended`
// (ibv_qp_to_qp_ex(3)) is called on QPs that have the mark at one offset each. 0: not found.
using ToExtended = ibv_qp_ex* (*)(ibv_qp* qp);
inline constexpr size_t kLargestQp = 1024;
size_t qp_mask_offset(ToExtended to_extended);
size_t installed_qp_mask_offset();  // of the installed libibverbs

}  // namespace verbena::rdma_core
