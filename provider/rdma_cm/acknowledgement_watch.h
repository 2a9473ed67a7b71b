// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_destroy_id(3), rdma_migrate_id(3) and rdma_leave_multicast(3) wait in librdmacm, after their command,
// until the program has acknowledged every event that it has fetched (rdma_ack_cm_event(3)). The kernel side
// does not see acknowledgements, so a program that forgets one hangs without a word. The watch names such a
// wait on stderr once it has lasted a second.
//
// It never names a wait that is none: it says nothing unless librdmacm's count, in the memory of the object,
// says that events are missing, and the kernel says that the thread of the call sleeps on the condition
// variable in that memory (/proc/PID/task/TID/syscall, proc(5)). If either cannot be read, or librdmacm's
// memory looks otherwise than in rdma-core 28 to 64, nothing is said.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace verbena::cm {
class Service;
}

namespace verbena::rdma_cm {

class AcknowledgementWatch {
 public:
  struct Wait {
    const char* call;      // "rdma_destroy_id"
    uint64_t id;           // the program's rdma_cm_id, for the message
    uint64_t object;       // what librdmacm waits on: the rdma_cm_id, or with `of_group` its own object
    bool of_group;         // the wait is that of a multicast membership
    uint32_t number;       // of the id or membership, as librdmacm knows it
    uint32_t events_read;  // fetched by the program
  };

  // Called by the thread of the call, before its command returns. `service` outlives this object. Costs a
  // system call if `events_read` is not 0, and no more than that if all events are acknowledged already.
  void expect(cm::Service* service, const Wait& wait);

 private:
  struct Entry {
    Wait wait;
    pid_t thread;
    int64_t due;  // ms, CLOCK_MONOTONIC
  };
  static void look(void* self);  // in the service's thread
  void wake_up_for_the_next(cm::Service* service);  // under the mutex

  std::mutex mutex_;
  cm::Service* service_ = nullptr;
  std::vector<Entry> entries_;  // one for a thread at most, the earliest first
};

}  // namespace verbena::rdma_cm
