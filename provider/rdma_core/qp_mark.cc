// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_core/qp_mark.h"

#include <cstdint>
#include <cstring>

#include "rdma_core/structures.h"

namespace verbena::rdma_core {

size_t qp_mark_offset(ToExtended to_extended) {
  // The oldest struct ibv_qp_ex ends here.
  constexpr size_t kFirst = offsetof(ibv_qp_ex, wr_abort) + sizeof(ibv_qp_ex::wr_abort);
  const uint32_t mark = PABI_QP_EX;
  for (size_t offset = kFirst; offset + sizeof(mark) <= kLargestQp; offset += sizeof(void*)) {
    alignas(ibv_qp_ex) char qp[kLargestQp] = {};
    memcpy(qp + offset, &mark, sizeof(mark));
    if (to_extended(reinterpret_cast<ibv_qp*>(qp)) != nullptr) return offset;
  }
  return 0;
}

size_t installed_qp_mark_offset() {
  static const size_t offset = qp_mark_offset(ibv_qp_to_qp_ex);
  return offset;
}

}  // namespace verbena::rdma_core
