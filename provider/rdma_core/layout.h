// SPDX-License-Identifier: BSD-2-Clause
//
// Which private layout the libibverbs of this process has. One symbol version, IBVERBS_PRIVATE_34, was given
// to three layouts (rdma-core 34; 35; 36 to 56), so its name alone does not say.
#pragma once

#include <cstddef>

struct ibv_qp;
struct ibv_qp_ex;

namespace verbena::rdma_core {

enum class Layout {
  kBeforeRdmaCore36,  // 34 or 35
  kRdmaCore36,        // pabi34_rdma_core36.h
  kUnknown,           // newer than what this provider was written for
};

// Answers whether the libibverbs of the process has `symbol` in `version`.
using HasSymbol = bool (*)(const char* symbol, const char* version);

Layout layout_of(HasSymbol has_symbol);

// The layout of the libibverbs that this library is linked with at run time. Any thread.
Layout installed_layout();

// One line for people: why a layout other than kRdmaCore36 is refused.
const char* refusal(Layout layout);

// Where in a QP libibverbs looks for enum pabi34_qp_mask. struct ibv_qp_ex, which lies before it, has grown
// within the layout (rdma-core 43: wr_atomic_write, 46: wr_flush), so its place is found by asking:
// `to_extended` (ibv_qp_to_qp_ex(3)) is shown QPs that have the mark in one place each. 0: in none.
using ToExtended = ibv_qp_ex* (*)(ibv_qp* qp);
inline constexpr size_t kLargestQp = 1024;
size_t qp_mask_offset(ToExtended to_extended);
size_t installed_qp_mask_offset();  // of the installed libibverbs

}  // namespace verbena::rdma_core
