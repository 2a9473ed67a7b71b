/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The seam between the preloaded library (which sees the system calls of a program) and the provider (which
 * knows what they mean). The preload opens /dev/infiniband/uverbsN as /dev/full; when libibverbs hands that
 * descriptor to the provider, the provider claims it: from then on a write(2) to it, which would have been a
 * command to the kernel, is answered by `write`, and an ioctl(2) by `control`.
 *
 * The provider finds `verbena_boundary_claim` with dlsym(RTLD_DEFAULT, …); when the preload is not there
 * (RTLD_DEEPBIND, an emptied LD_PRELOAD) the commands fail with ENOSPC, as /dev/full answers.
 */
#ifndef VERBENA_PROVIDER_BOUNDARY_CLAIM_H
#define VERBENA_PROVIDER_BOUNDARY_CLAIM_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
#define VERBENA_BOUNDARY_UNSET = nullptr
extern "C" {
#else
#define VERBENA_BOUNDARY_UNSET
#endif

struct verbena_boundary_handler {
  /* Answers one command. Returns what write(2) returns: the bytes taken, or -1 with errno set. Called in the
   * thread that called write(2); may be called by several threads at once. */
  ssize_t (*write)(void* owner, const void* command, size_t length);
  void* owner;
  /* Answers one ioctl: what ioctl(2) returns. NULL, or -1 with ENOTTY: the kernel's answer is the program's.
   */
  int (*control)(void* owner, unsigned long request, void* argument) VERBENA_BOUNDARY_UNSET;
};

/* Claims `fd` for `handler` (copied). 0 or an errno: EBADF when fd is not a device file that the boundary
 * opened in this process. The claim ends by itself when the descriptor is closed. */
int verbena_boundary_claim(int fd, const struct verbena_boundary_handler* handler);
void verbena_boundary_release(int fd);

/* Who has claimed `fd`, or the descriptor it is a copy of: 0 and *handler, or EBADF. */
int verbena_boundary_find(int fd, struct verbena_boundary_handler* handler);

typedef int (*verbena_boundary_claim_fn)(int, const struct verbena_boundary_handler*);
typedef void (*verbena_boundary_release_fn)(int);
typedef int (*verbena_boundary_find_fn)(int, struct verbena_boundary_handler*);

#ifdef __cplusplus
}
#endif

#endif
