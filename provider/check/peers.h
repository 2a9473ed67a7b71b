// SPDX-License-Identifier: BSD-2-Clause
//
// What the two ends of a connection have to agree on. The other end is known if it is on this node.
#pragma once

#include <optional>

#include "check/model.h"
#include "insight.h"

namespace verbena::check {

// The other end of a queue pair that is about to send, if the two were not compared yet. Without the lock:
// the adapter takes one of its own.
std::optional<PeerAttributes> find_new_peer(ibv_qp* qp);

// Compares the two; `posted` is where `qp` sends for the first time. With the lock held.
void compare_ends(QueuePair& qp, const PeerAttributes& peer, StackId posted);

}  // namespace verbena::check
