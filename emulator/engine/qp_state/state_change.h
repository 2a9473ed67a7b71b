// SPDX-License-Identifier: BSD-2-Clause
//
// The one place where the state of a queue pair changes: what requesters see (SharedQp::responder_state) and
// what the owner sees (Qp::state).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena {

struct Qp;

// Requests of an earlier generation find no responder (adapter/layout.h: ResponderState).
enum class Generation : uint8_t { kSame, kNext };

// The caller holds send_lock, or no other thread knows the queue pair yet.
void change_state(Qp& qp, ibv_qp_state to, Generation generation);

}  // namespace verbena
