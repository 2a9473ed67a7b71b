// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/send_limits.h"

#include "engine/objects/context.h"
#include "engine/objects/qp.h"

namespace verbena {

SendLimits send_limits(const Qp& qp) {
  SendLimits limits;
  limits.max_sge = qp.cap.max_send_sge;
  limits.max_sge_read = static_cast<uint32_t>(qp.context->device->limits.max_sge_rd);
  limits.max_inline = qp.cap.max_inline_data;
  limits.max_message = static_cast<uint32_t>(qp.context->device->limits.max_msg_sz);
  return limits;
}

}  // namespace verbena
