// SPDX-License-Identifier: BSD-2-Clause
//
// Which private layout the libibverbs of this process has. One symbol version, IBVERBS_PRIVATE_34, was given
// to three layouts (rdma-core 34; 35; 36 to 56), so its name alone does not say.
#pragma once

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

}  // namespace verbena::rdma_core
