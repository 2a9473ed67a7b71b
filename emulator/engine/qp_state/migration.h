// SPDX-License-Identifier: BSD-2-Clause
//
// Automatic path migration (InfiniBand vol. 1, 17.2.8) of RC and UC between processes whose memory can be
// reached.
//
// - The program gives both ends an alternate path (IBV_QP_ALT_PATH) and IBV_MIG_REARM. The end that does so
//   last finds the other in REARM: both become ARMED. On hardware that takes a packet each way.
// - An armed connection migrates when a program sets IBV_MIG_MIGRATED, or when an RC request gets no answer
//   until its retries are over. Both ends then exchange their paths and are MIGRATED. Each raises
//   IBV_EVENT_PATH_MIG. On hardware the peer follows with the next packet.
// - If the path that was taken leads to another port than the alternate one of the peer, the peer stays where
//   it is, and raises IBV_EVENT_PATH_MIG_ERR. Requests then get no answer.
//
// SharedQp::path says where each end is. One compare-and-swap moves one end, whichever process makes it, so a
// process that is killed in between leaves each end in a state of its own. The private half of the peer
// follows by kPendingMigrated.
#pragma once

#include <cstdint>

namespace verbena {

struct Qp;

// REARM was set. Under send_lock.
void arm_migration(Qp& qp);

// Takes the alternate path, if the connection is armed. The caller raises IBV_EVENT_PATH_MIG if the result is
// true. Under send_lock.
bool migrate(Qp& qp);

// The peer has migrated this queue pair: its private half follows. Under send_lock.
void follow_migration(Qp& qp);

}  // namespace verbena
