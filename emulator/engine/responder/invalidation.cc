// SPDX-License-Identifier: BSD-2-Clause
#include "engine/responder/invalidation.h"

namespace verbena {

VendorError check_invalidation(const SharedMr* window, uint32_t rkey, uint32_t pd, uint32_t qpn) {
  if (window == nullptr ||
      window->valid.load(std::memory_order_acquire) != (kKeyValid | MemoryKey::unpack(rkey).tag))
    return VendorError::rkey_unknown;
  if (window->pd != pd) return VendorError::rkey_other_pd;
  // o10-37.2.26 (rxe_mw.c): a window of type 1 cannot be invalidated. Of type 2, on its own QP (mlx5:
  // MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN).
  if (window->kind != KeyKind::kWindow2) return VendorError::rkey_no_right;
  return window->qpn == qpn ? VendorError::none : VendorError::rkey_other_qp;
}

VendorError invalidate_window(const SegmentView& view, const SharedQp& there, uint32_t rkey) {
  SharedMr* window = find_window(view, rkey);
  const VendorError error = check_invalidation(window, rkey, there.pd, there.qpn);
  if (error != VendorError::none) return error;
  return unbind_window(*window, rkey) ? VendorError::none : VendorError::rkey_unknown;
}

}  // namespace verbena
