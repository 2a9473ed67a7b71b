// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_core/layout.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "rdma_core/pabi34_rdma_core36.h"

namespace verbena::rdma_core {
namespace {

// The linker defines each symbol version as an absolute symbol of the same name with value 0. The address of
// such a symbol does not tell whether it exists; dlerror(3) does. RTLD_DEFAULT includes the libraries that
// this library depends on, even if the program has loaded them with RTLD_LOCAL.
bool process_has_symbol(const char* symbol, const char* version) {
  dlerror();
  dlvsym(RTLD_DEFAULT, symbol, version);
  return dlerror() == nullptr;
}

}  // namespace

Layout layout_of(HasSymbol has_symbol) {
  // rdma-core 59, 62 and 64 introduced these versions. Each changed the layout.
  for (const char* newer : {"IBVERBS_1.15", "IBVERBS_1.16", "IBVERBS_1.17"}) {
    if (has_symbol(newer, newer)) return Layout::kUnknown;
  }
  // rdma-core 36 introduced this function, and with it an entry in the table of operations.
  return has_symbol("ibv_query_qp_data_in_order", "IBVERBS_1.14") ? Layout::kRdmaCore36
                                                                  : Layout::kBeforeRdmaCore36;
}

Layout installed_layout() { return layout_of(process_has_symbol); }

const char* refusal(Layout layout) {
  switch (layout) {
    case Layout::kBeforeRdmaCore36:
      return "this libibverbs is older than rdma-core 36; Verbena offers no device";
    case Layout::kUnknown:
      return "this libibverbs is newer than rdma-core 56, the last one Verbena knows; Verbena offers no "
             "device";
    case Layout::kRdmaCore36:
      break;
  }
  return "";
}

size_t qp_mask_offset(ToExtended to_extended) {
  // The oldest struct ibv_qp_ex of the layout ends here.
  constexpr size_t kFirst = offsetof(ibv_qp_ex, wr_abort) + sizeof(ibv_qp_ex::wr_abort);
  const uint32_t mark = PABI34_QP_EX;
  for (size_t offset = kFirst; offset + sizeof(mark) <= kLargestQp; offset += sizeof(void*)) {
    alignas(ibv_qp_ex) char qp[kLargestQp] = {};
    memcpy(qp + offset, &mark, sizeof(mark));
    if (to_extended(reinterpret_cast<ibv_qp*>(qp)) != nullptr) return offset;
  }
  return 0;
}

size_t installed_qp_mask_offset() {
  static const size_t offset = qp_mask_offset(ibv_qp_to_qp_ex);
  return offset;
}

}  // namespace verbena::rdma_core
