// SPDX-License-Identifier: BSD-2-Clause
//
// Nobody ends in the middle of a verb. What libc does on the way (open(2), fallocate(2), recvmsg(2)) are
// cancellation points, and a thread that ended there would leave half an object, a held lock, or frames that
// cannot be unwound (pthreads(7), pthread_setcancelstate(3)). The cancellation stays pending: it acts at the
// program's next cancellation point.
//
// The provider's doors hold one each (provider/verbs/context.cc, provider/rdma_cm/open.cc). Posting, polling
// and asking for notification do not: what they do at every call are raw system calls, and the few ways on
// which they meet libc hold one themselves.
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
