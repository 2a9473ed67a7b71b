// SPDX-License-Identifier: BSD-2-Clause
//
// The owner's half of a receive queue with many requesters (adapter/shared_receive_ring.h): an SRQ of the
// program (ibv_create_srq(3)), or the receive queue of a UD queue pair. What only an SRQ of the program has -
// its limit, its events, the QPs that use it - stands in shared_receive_verbs.cc.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "adapter/shared_receive_ring.h"
#include "adapter/spin_lock.h"
#include "engine/objects/cq.h"
#include "engine/objects/srq.h"

namespace verbena {

class Process;
struct Qp;

// Makes a queue for exactly `max_wr` requests, at least one (its ring has a power of two of slots), of `max_sge`
// entries each, whose keys belong to the PD with handle `pd`. ENOMEM.
int make_shared_queue(Process& process, uint32_t pd, uint32_t max_wr, uint32_t max_sge, Srq** out);

// The caller has seen to it that no requester can reach the queue any more, and none is still at it.
void unmake_shared_queue(Srq* srq);

// Posts the list. errno values as ibv_post_recv(3): ENOMEM: every slot is in use; EINVAL: a list too long;
// *bad_wr is then the first request that was not taken, and *why says why, for a log.
int post_to_shared_queue(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr, const char** why);

// The owner itself takes the oldest request, to flush or forget it. False: none is left.
bool take_own(Srq& srq, uint32_t* slot);

// The program's name for what is in `slot`, which is not free. 0 for slots that do not exist.
uint64_t wr_id_of(const Srq& srq, uint32_t slot);

// The slot's completion was polled or purged. Slots that do not exist or are free are left alone.
void free_slot(Srq& srq, uint32_t slot);

// Forgets everything that is posted (RESET of a QP whose own queue this is; no requester is at it).
void forget_posted(Srq& srq);

// The queue that an entry with kCqeFromShared names, whose index is then a slot of it; nullptr: it is gone,
// or the entry is not to be believed. *qp: the QP it came to, nullptr for XRC. The caller holds cq.lock.
Srq* shared_queue_of(const Cq& cq, const Cqe& entry, Qp** qp = nullptr);

// Queue pair `qp_index` takes its receives from an SRQ of the program, and does so no more.
void add_user(Srq& srq, uint32_t qp_index);
void remove_user(Srq& srq, uint32_t qp_index);

// Tells the program that the limit was reached, if a taker has left word of it.
void raise_srq_limit_if_reached(Srq& srq);

// Gives the slots back whose takers have died without a completion. Cheap when there are none. The caller
// holds no CQ's lock. Called by posting when no slot is free.
void reclaim_slots(Srq& srq);

}  // namespace verbena
