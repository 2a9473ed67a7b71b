// SPDX-License-Identifier: BSD-2-Clause
//
// The state of the command layer, with the names of ucma.c (drivers/infiniband/core): files (open event
// channels), contexts (ids with their events) and multicast memberships. One object per process, created when
// the device file is first opened. A forked child creates its own.
//
// One mutex guards all of it. It is never held during a call of the connection manager (cm.h), whose handlers
// take it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cm/cm.h"
#include "rdma_cm/abi.h"
#include "rdma_cm/acknowledgement_watch.h"
#include "rdma_cm/id_table.h"
#include "rdma_cm/machine.h"
#include "rdma_cm/token_pipe.h"

namespace verbena::rdma_cm {

struct Context;

struct Multicast {
  uint32_t id = 0;
  uint64_t serial = 0;  // what events name it by; never used twice
  Context* context = nullptr;
  uint64_t uid = 0;
  uint32_t events_reported = 0;
  uint32_t machine_id = 0;  // the kernel's number, if the context is on a device of the machine
  bool is_known = false;    // to the program
  sockaddr_storage group = {};
};

struct QueuedEvent {
  uint64_t number = 0;             // counts events as they are raised
  Context* context = nullptr;      // whose event it is; of a connection request: the listener
  uint64_t multicast = 0;          // serial; 0: not about a membership
  std::unique_ptr<Context> fresh;  // of a connection request: what the program will know the new id by
  rdma_ucm_event_resp response = {};
};

// An option that was set before the id went to the machine's rdma_cm.
struct SavedOption {
  uint32_t level, name, size;
  std::array<uint8_t, 4> value;
};

struct File {
  uint64_t handle = 0;  // what the boundary knows it by; never used twice
  bool read_only = false;
  bool closed = false;  // its last descriptor is
  TokenPipe tokens;     // as many as events
  std::list<QueuedEvent> events;
  std::list<Context*> contexts;
};

struct Context {
  uint32_t id = 0;
  std::shared_ptr<File> file;
  cm::Id* cm_id = nullptr;
  cm::PortSpace space = cm::PortSpace::kTcp;
  uint64_t uid = 0;  // 0: the program has not accepted it yet, and hears nothing of it
  uint32_t events_reported = 0;
  uint32_t backlog = 0;  // connection requests that may still be queued
  uint32_t users = 0;    // commands that work on it
  bool closing = false;  // its device is gone: it can only be destroyed
  bool accepting = false;
  std::list<QueuedEvent> held;  // while `accepting`: what the program hears if that succeeds
  std::list<std::unique_ptr<Multicast>> multicasts;
  // On a device of the machine, or listening there as well (machine.h).
  uint8_t qp_type = 0;
  bool is_on_machine = false;
  bool has_machine_id = false;
  uint32_t machine_id = 0;
  std::vector<SavedOption> options;
};

struct State {
  cm::Service* service = nullptr;
  std::mutex mutex;
  std::condition_variable unused;  // a context's users became 0
  IdTable<Context> contexts;
  IdTable<Multicast> multicasts;
  std::unordered_map<uint64_t, std::shared_ptr<File>> files;
  uint64_t next_serial = 1;
  uint64_t next_event = 1;
  AcknowledgementWatch acknowledgements;  // has its own mutex
  std::unique_ptr<Machine> machine;       // the kernel's rdma_cm; nullptr: it is not seen here
};

// The one of this process; nullptr before the device file was opened.
State* current_state();

// The same; creates it if there is none. Throws std::bad_alloc. nullptr: *error has the reason.
State* make_state(int* error);

// Puts as many tokens into the pipe as the file has events. Under the mutex.
void show_events(File& file);

// A context in use by a command: it is not destroyed meanwhile.
class ContextInUse {
 public:
  ContextInUse() = default;
  ContextInUse(const ContextInUse&) = delete;
  ContextInUse& operator=(const ContextInUse&) = delete;
  ~ContextInUse();

  // ENOENT: no such id; EINVAL: of another file; EIO: its device is gone (ucma_get_ctx).
  int find(State& state, const File& file, uint32_t id);
  void take(State& state, Context* context);  // under the mutex
  Context* operator->() const { return context_; }
  Context* get() const { return context_; }

 private:
  State* state_ = nullptr;
  Context* context_ = nullptr;
};

// Ends a context that is hidden (IdTable::hide), with everything that belongs to it, after the last command
// on it. Returns how many of its events the program was told. Not under the mutex.
uint32_t destroy_context(State& state, Context* context);

// Ends the file and its contexts (ucma_close). Not under the mutex.
void close_file(State& state, uint64_t handle);

}  // namespace verbena::rdma_cm
