// SPDX-License-Identifier: BSD-2-Clause
//
// epoll(7) by system call. A library that the program preloads may have an epoll of its own, which knows none
// of our descriptors: librspreload of rdma-core after 64 takes a lock there that its caller holds while it
// opens the device (librdmacm, rsocket.c, repoll_create). As the functions of the same names; epoll_wait
// without a signal mask.
#pragma once

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena {

inline int kernel_epoll_create() { return static_cast<int>(syscall(SYS_epoll_create1, EPOLL_CLOEXEC)); }

inline int kernel_epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  return static_cast<int>(syscall(SYS_epoll_ctl, epoll, operation, fd, event));
}

// `timeout`: milliseconds; -1: none.
inline int kernel_epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  return static_cast<int>(syscall(SYS_epoll_pwait, epoll, events, most, timeout, nullptr, 8));
}

}  // namespace verbena
