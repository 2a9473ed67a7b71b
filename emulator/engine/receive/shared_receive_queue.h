// SPDX-License-Identifier: BSD-2-Clause
//
// The owner's half of a receive queue with several requesters (adapter/shared_receive_ring.h): an SRQ of the
// program (ibv_create_srq(3)), or the receive queue of a UD queue pair. The limit, the events and the QPs of
// an SRQ of the program are in queue_pair/shared_receive_verbs.cc.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "adapter/locks.h"
#include "adapter/shared_receive_ring.h"
#include "engine/objects/cq.h"
#include "engine/objects/srq.h"

namespace verbena {

class Process;
struct Qp;

// Makes a queue for exactly `max_wr` requests, at least one, of `max_sge` SGEs each, whose keys belong to the
// PD with handle `pd`. (The number of slots of its ring is a power of two.) 0 or ENOMEM.
int make_shared_queue(Process& process, uint32_t pd, uint32_t max_wr, uint32_t max_sge, Srq** out);

// Destroys the queue. The caller has made sure that no requester can reach the queue, and that none uses it
// any more.
void unmake_shared_queue(Srq* srq);

// Gives the queue room for `room` requests, at least one, from now on. Requests that are posted stay, in
// their order. `least`: the room that was asked for, at most `room`. 0; EINVAL: more than `least` requests
// are posted or not polled, their number is *in_use; ENOMEM. The caller holds Srq::modify_mutex.
// (resize_shared_queue.cc)
int resize_shared_queue(Srq& srq, uint32_t least, uint32_t room, uint32_t* in_use);

// Posts the list. Returns 0, or as ibv_post_recv(3) ENOMEM (every slot is in use) or EINVAL
// (check_recv_wr()). *bad_wr is then the first request that was not posted, and *why the reason, for the log.
int post_to_shared_queue(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr, const char** why);

// Takes the oldest request for the owner itself, to flush or discard it. False: none is left.
bool take_own(Srq& srq, uint32_t* slot);

// The wr_id of the request in `slot`, which is not free. 0 for slots that do not exist.
uint64_t wr_id_of(const Srq& srq, uint32_t slot);

// Frees a slot whose completion was polled or purged. Slots that do not exist or are free are left alone. As
// wr_id_of() also for a tag (kTagSlot).
void free_slot(Srq& srq, uint32_t slot);
// The same for a slot, by a caller that holds Srq::lock.
void give_back_slot(Srq& srq, uint32_t slot);

// Makes sure that `slot`, or a tag, is the current WQE of no QP. False: a QP is about to flush it.
bool take_out_of_hand(Srq& srq, uint32_t slot);

// Discards all posted requests: RESET of the QP that owns the queue. No requester uses the queue.
void forget_posted(Srq& srq);

// The queue that an entry with kCqeFromShared refers to; Cqe::index is a slot of that queue. nullptr: the
// queue is gone, or the entry is not to be trusted. *qp: the QP that the message came to; unchanged for XRC.
// The caller holds cq.lock.
Srq* shared_queue_of(const Cq& cq, const Cqe& entry, Qp** qp = nullptr);

// Queue pair `qp_index` starts, or stops, taking its receive WQEs from an SRQ of the program.
void add_user(Srq& srq, uint32_t qp_index);
void remove_user(Srq& srq, uint32_t qp_index);

// Raises IBV_EVENT_SRQ_LIMIT_REACHED if a taker has set SharedSrq::limit_reached.
void raise_srq_limit_if_reached(Srq& srq);

// Frees the slots whose takers died without a completion, or whose completions were lost. Cheap if there are
// none. The caller holds no Cq::lock and not Srq::lock. Called by posting when no slot is free.
void reclaim_slots(Srq& srq);

}  // namespace verbena
