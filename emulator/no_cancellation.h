// SPDX-License-Identifier: BSD-2-Clause
//
// No thread is cancelled in the middle of a verb. libc calls inside a verb (open(2), fallocate(2),
// recvmsg(2)) are cancellation points. A thread that ended there would leave half an object, a held lock, or
// frames that cannot be unwound (pthreads(7), pthread_setcancelstate(3)). The cancellation stays pending: it
// acts at the program's next cancellation point.
//
// The provider's entry points hold one NoCancellation each (provider/verbs/context.cc,
// provider/rdma_cm/open.cc). Posting, polling and asking for notification do not: their system calls are raw.
// The few paths of theirs that call libc hold a NoCancellation themselves.
#pragma once

#include <pthread.h>

namespace verbena {

class NoCancellation {
 public:
  NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;
  ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace verbena
