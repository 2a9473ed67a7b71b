// SPDX-License-Identifier: BSD-2-Clause
//
// Which private layout the libibverbs of this process has. The symbol version IBVERBS_PRIVATE_34 does not
// tell, because three layouts have it: those of rdma-core 34, of 35, and of 36 to 56.
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

// Does the libibverbs of this process have `symbol` in `version`?
using HasSymbol = bool (*)(const char* symbol, const char* version);

Layout layout_of(HasSymbol has_symbol);

// The layout of the libibverbs that this library is linked with at run time. Any thread may call it.
Layout installed_layout();

// One line that tells why a layout other than kRdmaCore36 is refused. kRdmaCore36: "".
const char* refusal(Layout layout);

// The offset in a QP of its enum pabi34_qp_mask. It is not fixed within the layout, because struct
// ibv_qp_ex in front of it has grown (rdma-core 43: wr_atomic_write, 46: wr_flush). So it is probed: for
// one offset after the other, `to_extended` (ibv_qp_to_qp_ex(3)) is called on a QP that has PABI34_QP_EX
// at that offset only. 0: not found.
using ToExtended = ibv_qp_ex* (*)(ibv_qp* qp);
inline constexpr size_t kLargestQp = 1024;
size_t qp_mask_offset(ToExtended to_extended);
size_t installed_qp_mask_offset();  // of the installed libibverbs

}  // namespace verbena::rdma_core
