// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/reply.h"

#include <infiniband/verbs.h>

namespace verbena {

Reply reply_of(VendorError error) noexcept {
  switch (find_vendor_error(static_cast<uint32_t>(error))->status) {
    case IBV_WC_SUCCESS:
      return Reply::kAcknowledged;
    case IBV_WC_REM_ACCESS_ERR:
      return Reply::kRemoteAccess;
    case IBV_WC_REM_OP_ERR:
      return Reply::kRemoteOperation;
    case IBV_WC_REM_INV_REQ_ERR:
      return Reply::kInvalidRequest;
    case IBV_WC_RETRY_EXC_ERR:
      return Reply::kSilence;
    default:
      return Reply::kNothing;
  }
}

}  // namespace verbena
