// SPDX-License-Identifier: BSD-2-Clause
//
// What every program of two ends does before its test. What fails ends the process (give_up()).
#pragma once

#include <infiniband/verbs.h>

namespace verbena::network {

ibv_context* open_first_device();

// A queue pair of type RC in INIT goes to RTS. Both ends have the same first PSN. `timeout`: as ibv_qp_attr
// has it; 0 is never.
void connect_rc(ibv_qp* qp, const ibv_ah_attr& to, uint32_t remote_qpn, uint32_t psn, uint8_t timeout);

}  // namespace verbena::network
