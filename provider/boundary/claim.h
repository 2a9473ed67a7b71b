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

/* What `write` and `resume` answer to be asked again, see there. */
#define VERBENA_BOUNDARY_WAIT ((ssize_t)-2)

struct verbena_boundary_handler {
  /* Answers one command. Returns what write(2) returns: the bytes taken, or -1 with errno set. Called in the
   * thread that called write(2); may be called by several threads at once. */
  ssize_t (*write)(void* owner, const void* command, size_t length);
  void* owner;
  /* Answers one ioctl: what ioctl(2) returns. NULL, or -1 with ENOTTY: the kernel's answer is the program's.
   */
  int (*control)(void* owner, unsigned long request, void* argument) VERBENA_BOUNDARY_UNSET;
  /* NULL, or: `write` may answer VERBENA_BOUNDARY_WAIT, having done nothing yet. The boundary then reads one
   * byte of the descriptor as the program would (waiting, or EAGAIN; EINTR or restarted; a cancellation
   * point) and goes on with `resume`, which may ask for another round. */
  ssize_t (*resume)(void* owner, const void* command, size_t length) VERBENA_BOUNDARY_UNSET;
};

/* Claims `fd` for `handler` (copied). 0 or an errno: EBADF when fd is not a device file that the boundary
 * opened in this process. The claim ends by itself when the descriptor is closed. */
int verbena_boundary_claim(int fd, const struct verbena_boundary_handler* handler);
void verbena_boundary_release(int fd);

/* The handler that has claimed `fd`, or the descriptor that `fd` is a copy of: 0 and *handler, or EBADF. */
int verbena_boundary_find(int fd, struct verbena_boundary_handler* handler);

typedef int (*verbena_boundary_claim_fn)(int, const struct verbena_boundary_handler*);
typedef void (*verbena_boundary_release_fn)(int);
typedef int (*verbena_boundary_find_fn)(int, struct verbena_boundary_handler*);

/* What the provider exports for the preload, which loads it when a program opens /dev/infiniband/rdma_cm with
 * `flags` (open(2)): the descriptor, the reading end of a pipe, and its *handler; -1 and errno. ENODEV: there
 * is no node; EMFILE, ENFILE, ENOMEM, and what acquire_service (emulator/cm/cm.h) answers. */
#define VERBENA_RDMA_CM_OPEN "verbena_rdma_cm_open"
typedef int (*verbena_rdma_cm_open_fn)(int flags, struct verbena_boundary_handler* handler);

/* The same, when the device tree of the node at `path` is gone: makes it again (emulator/wire/node_recipe.h).
 * 0 or an errno. */
#define VERBENA_RESTORE_NODE "verbena_restore_node"
typedef int (*verbena_restore_node_fn)(const char* path);

#ifdef __cplusplus
}
#endif

#endif
