// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "engine/objects/qp.h"
#include "engine/rules/send_rules.h"

namespace verbena {

// The rules that requests of the queue pair are checked by.
SendLimits send_limits(const Qp& qp);

}  // namespace verbena
