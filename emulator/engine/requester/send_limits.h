// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "engine/rules/send_rules.h"

namespace verbena {

struct Qp;

// The rules that requests of the queue pair are checked by.
SendLimits send_limits(const Qp& qp);

}  // namespace verbena
