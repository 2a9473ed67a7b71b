// SPDX-License-Identifier: BSD-2-Clause
//
// Tells instruments that requests are sent again.
#pragma once

#include "adapter/layout.h"
#include "engine/objects/qp.h"
#include "engine/objects/send_request.h"
#include "engine/rules/vendor_error.h"
#include "observe/retry_observer.h"

namespace verbena {

// `request`, whose first packet has the PSN `psn`, is to be sent again. `reason`: what it fails with when its
// retries are over. The caller holds send_lock.
inline void observe_retry(const Qp& qp, const SendRequest& request, uint32_t psn, VendorError reason) {
  if (RetryObserver* const seen = retry_observer.load(std::memory_order_acquire); seen != nullptr)
      [[unlikely]]
    seen->on_retry({qp.shared->qpn, request.wr_id, psn, request.length, static_cast<uint8_t>(request.opcode),
                    static_cast<uint8_t>(reason)});
}

}  // namespace verbena
