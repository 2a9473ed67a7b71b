// SPDX-License-Identifier: BSD-2-Clause
//
// The checker's operations, by what they concern. Each function below replaces some of the provider's in
// `table`.
#pragma once

#include <cstdarg>

#include "check/layer.h"
#include "check/model.h"

namespace verbena::check {

void check_objects(rdma_core::ContextOps& table);  // objects.cc: domains, memory, addresses, devices
void check_queues(rdma_core::ContextOps& table);   // queues.cc: creation and destruction of CQs, SRQs and QPs
void check_transitions(rdma_core::ContextOps& table);  // transitions.cc: ibv_modify_qp(3)
void check_posting(rdma_core::ContextOps& table);      // posting.cc
void check_completions(rdma_core::ContextOps& table);  // completions.cc

const rdma_core::ContextOps& below();  // the provider's operations
const verbena_check_provider& provider();

// A device was opened.
void enter_device(ibv_context* context);

// posting.cc, completions.cc: the functions in the structures of extended QPs and CQs.
void check_builders(ibv_qp* qp);
void check_iterator(ibv_cq_ex* cq);

// ---- for the operations ----

// May the program give `handle` to `verb`? Reports an object that was destroyed, or that is the parent's.
// False: it must not be passed on. An object that the checker does not know may be used; null, too.
bool is_usable(const void* handle, const char* verb, const Stack& stack);

// The same for calls that are made often: the stack is captured only if there is something to report.
bool is_usable(const void* handle, const char* verb);

// Enters a new object of no special type; `name` is formatted. null `handle`: the call was refused, which is
// reported. Takes the lock.
void made(Kind kind, const void* handle, const ibv_context* context, const char* verb, const Stack& stack,
          std::initializer_list<const void*> uses, const char* name, ...)
    __attribute__((format(printf, 7, 8)));

// `verb` was refused with `error`. With the lock held.
void report_refusal(const char* verb, int error, const Stack& stack);

// Calls `destroy` for `handle` unless it was destroyed before; then EINVAL. Its memory is kept, so that later
// uses are seen.
int destroy_object(const void* handle, const char* verb, const Stack& stack,
                   int (*destroy)(const void* handle));

// What the log has said in this thread since the last call: the reason of a refusal. "": nothing.
std::string take_reason();

// The events of `object` that were read and not acknowledged, as the end of a sentence; *read: where the last
// one was.
std::string missing_events(const Object& object, StackId* read);

// The object that an asynchronous event is of; nullptr: a device or a port, or not known.
Object* find_owner(const ibv_async_event& event);

// What the log has said of a request that was posted in this thread: a datagram that nobody takes.
void report_reason(const Stack& stack);

// An MTU in bytes.
inline uint32_t bytes_of(ibv_mtu mtu) { return 128u << mtu; }

// Forgets the requests of `qp`, whose queues are empty now.
void forget_requests(QueuePair& qp);

}  // namespace verbena::check
