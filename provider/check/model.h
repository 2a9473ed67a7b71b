// SPDX-License-Identifier: BSD-2-Clause
//
// What the checker knows of the program's objects: each with where it was made and destroyed, and for queues
// the requests that are outstanding. All of it is guarded by one lock (Locked, report.h); a function below is
// called with it held. Nothing is ever removed: a pointer to a destroyed object still finds it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "check/report.h"
#include "check/stack.h"

namespace verbena::check {

enum class Kind : uint8_t {
  kDevice,
  kPd,
  kTd,
  kMr,
  kMw,
  kDm,
  kAh,
  kCq,
  kChannel,
  kSrq,
  kQp,
  kXrcd,
  kWq,
  kRwqTable,
  kFlow,
  kCounters,
  kCmId,
  kCmChannel
};

struct Object {
  Kind kind;
  const void* handle = nullptr;  // the pointer that the program has
  const ibv_context* context = nullptr;
  uint64_t number = 0;  // of the object among all of the process
  bool alive = true;
  bool said_leak = false;
  int process = 0;  // that made it
  StackId created = 0;
  StackId destroyed = 0;
  uint32_t async_read = 0;  // asynchronous events of it
  uint32_t async_acknowledged = 0;
  StackId async_event_read = 0;     // the last one
  std::string name;                 // "QP 0x000011"
  std::vector<const Object*> uses;  // of which it was made: they cannot be destroyed before it

  explicit Object(Kind of) : kind(of) {}
  virtual ~Object() = default;
};

struct Region : Object {
  bool has_range = false;  // null MRs take any address, and of imported ones nothing is known
  uint64_t begin = 0;      // as SGEs name it
  uint64_t length = 0;
  uintptr_t memory = 0;  // where the bytes are; 0: not in the program's address space
  int access = 0;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  uint64_t pinned = 0;  // bytes of whole pages
  const Object* pd = nullptr;

  Region() : Object(Kind::kMr) {}
};

struct Range {
  uintptr_t begin;  // as the SGE names it
  uint32_t length;
  uint32_t lkey;
  uintptr_t memory;  // where the bytes were in the program's memory when it was posted; 0: nowhere
};

inline constexpr int kReceive = -1;

struct Shadow;

// A posted request that was not seen to complete.
struct Request {
  uint64_t serial = 0;  // in order of posting, in the process
  uint64_t wr_id = 0;
  StackId posted = 0;
  int opcode = kReceive;  // or enum ibv_wr_opcode
  bool signaled = true;
  bool accused = false;      // a finding says what is wrong with it: its error completion is no news
  bool has_pattern = false;  // patterns.h
  Shadow* shadow = nullptr;  // where a receive arrives instead (shadows.h)
  bool has_sum = false;      // `sum` is of the bytes as they were posted
  // A range is a local variable of the thread that posted, of the function that begins at `function` and
  // whose part of the stack ends at `frame_end`. 0: none is.
  uintptr_t function = 0;
  uintptr_t frame_end = 0;
  int thread = 0;
  uint64_t sum = 0;
  uint64_t bytes = 0;
  std::vector<Range> ranges;
};

struct CompletionQueue : Object {
  ibv_cq* cq = nullptr;
  int entries = 0;
  const Object* channel = nullptr;
  bool one_thread = false;  // promised (IBV_CREATE_CQ_ATTR_SINGLE_THREADED, a thread domain)
  int64_t expected = 0;     // completions that outstanding requests will make
  bool said_short = false;
  uint64_t polls = 0;
  bool said_overrun = false;
  const Object* left = nullptr;  // the last QP that was destroyed with requests outstanding
  unsigned polls_for_left = 0;   // that found nothing, since then
  // Notification.
  bool armed = false;
  bool solicited_only = false;
  StackId arming = 0;
  // Completions that were in the queue when it was armed for any, and the polls by then. 0 as well: an event
  // may have been waiting.
  uint32_t waiting_at_arming = 0;
  uint64_t polls_at_arming = 0;
  int armed_by = 0;  // a thread
  // A thread has read an event without a poll since: where, which one, and where the queue had been armed.
  StackId unpolled = 0, unpolled_arming = 0;
  int unpolled_thread = 0;
  uint32_t events_read = 0;
  StackId event_read = 0;  // the last one
  uint64_t events_acknowledged = 0;
  // watch.cc: the process whose watching thread counts its completions without the lock, or 0; and is it
  // being destroyed, so that none may begin?
  int counting = 0;
  bool ending = false;
  // A thread between ibv_start_poll and ibv_end_poll.
  int poller = 0;
  StackId polling = 0;

  CompletionQueue() : Object(Kind::kCq) {}
};

struct ReceiveQueue {
  std::deque<Request> requests;
  uint32_t max_sge = 0;
};

struct QueuePair;

struct SharedQueue : Object {
  ReceiveQueue receives;
  const Object* pd = nullptr;
  std::vector<QueuePair*> queue_pairs;  // the living ones that receive from it

  SharedQueue() : Object(Kind::kSrq) {}
};

struct QueuePair : Object {
  ibv_qp* qp = nullptr;
  uint32_t number_of_qp = 0;
  ibv_qp_type type = IBV_QPT_RC;
  ibv_qp_state state = IBV_QPS_RESET;  // as the program has set it
  bool failed = false;                 // it has had an error completion since
  bool got_ready = false;              // was ever in RTR
  ibv_qp_cap cap = {};
  bool signal_all = false;
  uint8_t max_rd_atomic = 0;
  bool knows_rd_atomic = false;
  uint32_t mtu = 0;         // bytes; of UD, the port's
  int peer_rd_atomic = -1;  // max_dest_rd_atomic there; -1: not compared since it is connected
  const Object* pd = nullptr;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* recv_cq = nullptr;
  SharedQueue* srq = nullptr;
  std::deque<Request> sends;
  ReceiveQueue receives;
  uint64_t sends_posted = 0;
  uint64_t receives_posted = 0;
  uint64_t polls_at_first_send = 0;  // of send_cq
  uint32_t rnr_naks = 0;             // that were seen
  StackId last_send = 0;
  StackId modified = 0;  // the last transition
  StackId accepted = 0;  // rdma_accept(3), until its connection is known to be established
  int (*wr_complete)(ibv_qp_ex*) = nullptr;  // the provider's

  QueuePair() : Object(Kind::kQp) {}
};

// The object with `handle`, alive or not; nullptr: the checker has not seen it being made.
Object* find_object(const void* handle);

template <typename Type>
Type* find(const void* handle) {
  return dynamic_cast<Type*>(find_object(handle));
}

// Enters a new object. A former one at the same address is forgotten. Returns it.
template <typename Type>
Type& enter(std::unique_ptr<Type> object, const void* handle, const ibv_context* context, const Stack& stack);
Object& enter_object(std::unique_ptr<Object> object, const void* handle, const ibv_context* context,
                     const Stack& stack);

void end_object(Object& object, StackId where);

// The region with this lkey on the device of `context`, the last one to have it; nullptr: none had.
Region* find_region(const ibv_context* context, uint32_t lkey);
// Enters its lkey and its memory, also when that has changed.
void enter_region(Region& region);

// Of all living regions of this process: bytes that a device pins.
uint64_t pinned_bytes();

// Was any of [begin, end) ever registered? Then requests may use it. Most memory never was.
bool was_registered(uintptr_t begin, uintptr_t end);

// The living region of this process that begins in [begin, end), or with `anywhere` one that shares bytes
// with it. nullptr: there is none.
const Region* find_region_at(uintptr_t begin, uintptr_t end, bool anywhere);

// Is there a living region of this process that shares bytes with [begin, end), and has one of these rights?
bool is_exposed(uintptr_t begin, uintptr_t end, int access);

// The living QP with this number whose completions go to `cq`. nullptr: there is none; then *destroyed, if
// not null, is the last one that was.
QueuePair* find_qp(const CompletionQueue& cq, uint32_t number, QueuePair** destroyed = nullptr);

// All objects that were ever made, in order. Not to be kept: enter() changes it.
const std::vector<Object*>& all_objects();

// Is the process that made `object` another one (fork(2))?
bool is_parents(const Object& object);

// After fork(2), in the child.
void enter_process();

uint64_t next_serial();
uint64_t last_serial();

template <typename Type>
Type& enter(std::unique_ptr<Type> object, const void* handle, const ibv_context* context,
            const Stack& stack) {
  return static_cast<Type&>(enter_object(std::move(object), handle, context, stack));
}

}  // namespace verbena::check
