// SPDX-License-Identifier: BSD-2-Clause
//
// The process-private half of an opened device (ibv_open_device(3)).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "engine/objects/comp_channel.h"
#include "fabric/device_table.h"
#include "fabric/fifo.h"

namespace verbena {

class Process;

struct Context {
  Process* process = nullptr;
  const DeviceDescription* device = nullptr;
  uint32_t device_index = 0;
  uint32_t number = 0;  // unique in the process, for observers
  uint32_t listed = 0;  // its entry (adapter/listed.h)
  uint64_t file = 0;  // shared by contexts that are imported from each other: handles mean the same in them
  std::mutex events_mutex;
  FifoEnd events;     // writes struct ib_uverbs_async_event_desc records
  int async_fd = -1;  // the program's end, the caller's
  CompChannels channels;
  uint64_t events_seen = 0;         // of the device's log; under Process::contexts_mutex
  std::atomic<bool> failed{false};  // IBV_EVENT_DEVICE_FATAL: for good
  std::atomic<uint32_t> users{0};   // objects that use the context as long as they live
};

// 0, or EIO: a forked child's copy, or the device has failed. Verbs that make, change or query an object
// begin with this check. Verbs that destroy an object do not.
int usable(const Context& context);

// The same for an object that belongs to a context's file and may have outlived the context.
int usable(Process& process, uint64_t file);

}  // namespace verbena
