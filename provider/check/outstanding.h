// SPDX-License-Identifier: BSD-2-Clause
//
// Outstanding requests: posted, and not seen to complete. Called with the model's lock held.
#pragma once

#include "check/model.h"
#include "engine/rules/send_rules.h"

namespace verbena::check {

// The row of a send request's opcode. nullptr: there is none; of kReceive, too.
const SendOperation* operation_of(int opcode);

// "receive", "SEND", "RDMA_WRITE": for a sentence.
const char* kind_of(const Request& request);

// Does the operation send bytes of local memory; does it bring bytes into it?
bool reads_memory(int opcode);
bool writes_memory(int opcode);

// `qp` completes its requests without carrying them out, or has none: it is in ERR or RESET.
bool is_flushing(const QueuePair& qp);

// The first outstanding request of a living queue that names `region`, or whose memory intersects [begin,
// end). nullptr: there is none. Requests of queue pairs that flush do not count.
const Request* find_use_of(const Region& region);
const Request* find_use_of(uintptr_t begin, uintptr_t end);

// May an outstanding request write bytes of [begin, end)?
bool may_be_written(uintptr_t begin, uintptr_t end);

// The first outstanding receive of `queue` whose bytes intersect those of `request`.
const Request* find_overlap(const std::deque<Request>& queue, const Request& request);

// Where the bytes that an SGE names are in the program's memory. 0: nowhere (device memory, an unknown
// region).
uintptr_t memory_of(const ibv_context* context, uint64_t address, uint32_t lkey);

// May peers write to the region: themselves, or through a memory window?
bool peers_may_write(const ibv_context* context, uint32_t lkey);

// A number for the bytes of a request that is being posted. has_sum is false if they cannot be read, or if a
// request before it may still write them: a SEND with IBV_SEND_FENCE after a READ sends what the READ brings.
void take_sum(const QueuePair& qp, Request& request);

// A receive of `qp` has completed: it may have written bytes that outstanding requests send.
void forget_sums(QueuePair& qp, const Request& receive);

// `region` was deregistered: the bytes of outstanding requests are not looked at any more.
void forget_bytes(const Region& region);

// The request has completed with success, its completion is being polled: is everything as it was posted?
void check_finished(QueuePair& qp, const Request& request, const Stack& polling);

// Is the memory a part of this thread's stack?
bool is_on_stack(uintptr_t begin, uint64_t length);

// A number for bytes. False: they cannot be read.
bool sum_of_memory(uintptr_t begin, uint64_t length, uint64_t* sum);

// Sets thread, function and frame_end of a request that is posted now.
// learn_stack() was called in this thread, without the lock: it opens a file (pthread_getattr_np(3)), for
// which libc has locks.
void learn_stack();
void note_thread(Request& request, const Stack& posting);

int this_thread();

}  // namespace verbena::check
