// SPDX-License-Identifier: BSD-2-Clause
//
// Preloaded: an epoll that knows no descriptor of anybody else, as librspreload of rdma-core after 64 has
// one.
#include <stdlib.h>
#include <sys/epoll.h>

#pragma GCC visibility push(default)  // the tests are built with -fvisibility=hidden

int epoll_create1(int flags) {
  (void)flags;
  abort();
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event* event) {
  (void)epoll, (void)operation, (void)fd, (void)event;
  abort();
}

int epoll_wait(int epoll, struct epoll_event* events, int most, int timeout) {
  (void)epoll, (void)events, (void)most, (void)timeout;
  abort();
}
