/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The interface between the preloaded library, which sees the system calls of a program, and the provider,
 * which knows their meaning.
 *
 * The preloaded library opens /dev/full in place of /dev/infiniband/uverbsN. libibverbs passes the descriptor
 * to the provider, and the provider claims it. From then on
 * - write(2) on the descriptor, a command to the kernel, calls `write` of the provider's handler;
 * - ioctl(2) on the descriptor calls `control`.
 *
 * The provider finds `verbena_boundary_claim` with dlsym(RTLD_DEFAULT, …). If the library is not preloaded
 * (RTLD_DEEPBIND, an empty LD_PRELOAD), commands fail with ENOSPC, the error of /dev/full.
 */
#ifndef VERBENA_PROVIDER_BOUNDARY_CLAIM_H
#define VERBENA_PROVIDER_BOUNDARY_CLAIM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
#define VERBENA_BOUNDARY_UNSET = nullptr
extern "C" {
#else
#define VERBENA_BOUNDARY_UNSET
#endif

/* `write` or `resume` returns this so that the boundary calls `resume` (see there). */
#define VERBENA_BOUNDARY_WAIT ((ssize_t)-2)

struct verbena_boundary_handler {
  /* Executes one command. Returns what write(2) is to return: the number of bytes taken, or -1 with errno.
   * Called in the thread that called write(2). Several threads may call it at the same time. */
  ssize_t (*write)(void* owner, const void* command, size_t length);
  void* owner;
  /* Executes one ioctl. Returns what ioctl(2) is to return; -1 with ENOTTY, as from the placeholder, for a
   * request that it does not know. NULL: the kernel gets every ioctl. */
  int (*control)(void* owner, unsigned long request, void* argument) VERBENA_BOUNDARY_UNSET;
  /* If not NULL, `write` may return VERBENA_BOUNDARY_WAIT, provided that it has done nothing yet. The
   * boundary then reads one byte from the descriptor and calls `resume`, which may return the same again. The
   * read behaves as if the program had called it: it blocks or fails with EAGAIN, fails with EINTR or
   * restarts, and is a cancellation point. */
  ssize_t (*resume)(void* owner, const void* command, size_t length) VERBENA_BOUNDARY_UNSET;
};

/* Claims `fd` for `handler`, which is copied. The claim ends when the descriptor is closed. Returns 0 or an
 * errno:
 * - EBADF: `fd` is not a device file that the boundary opened in this process.
 * - EINVAL: no handler, or a handler without `write`.
 * - ENOMEM: `fd` was claimed before, and 4,096 device files are open. */
int verbena_boundary_claim(int fd, const struct verbena_boundary_handler* handler);
void verbena_boundary_release(int fd);

/* Returns 0 and the handler that has claimed `fd`, or the descriptor that `fd` is a copy of. EBADF: none. */
int verbena_boundary_find(int fd, struct verbena_boundary_handler* handler);

typedef int (*verbena_boundary_claim_fn)(int, const struct verbena_boundary_handler*);
typedef void (*verbena_boundary_release_fn)(int);
typedef int (*verbena_boundary_find_fn)(int, struct verbena_boundary_handler*);

/* Exported by the provider. When a program opens /dev/infiniband/rdma_cm, the preloaded library loads the
 * provider and calls this function with the `flags` of open(2). Returns the descriptor, which is the read end
 * of a pipe, and its handler in *handler. On failure it returns -1 with errno set:
 * - ENODEV: there is no node.
 * - EMFILE, ENFILE, ENOMEM, and the errors of acquire_service() (emulator/cm/cm.h). */
#define VERBENA_RDMA_CM_OPEN "verbena_rdma_cm_open"
typedef int (*verbena_rdma_cm_open_fn)(int flags, struct verbena_boundary_handler* handler);

/* Exported by the provider, too. Called when the device tree of the node at `path` is gone: creates the tree
 * again (emulator/wire/node_recipe.h). Returns 0 or an errno. */
#define VERBENA_RESTORE_NODE "verbena_restore_node"
typedef int (*verbena_restore_node_fn)(const char* path);

/* Exported by the provider, too. Called when the file of a counter is opened (is_counter(), paths.h): writes
 * its present value. Returns 0 or an errno; the file then has an older value. */
#define VERBENA_REFRESH_COUNTER "verbena_refresh_counter"
typedef int (*verbena_refresh_counter_fn)(const char* path);

/* The kernel's end of the NETLINK_RDMA sockets of this process. Exported by the provider as a function
 * without arguments that returns it. The boundary opens a socket of another protocol in their place
 * (netlink.h), passes on what the program sends to the kernel, and delivers the replies.
 *
 * A datagram for the program goes to `deliver`, which returns 0 or an errno; EAGAIN: the program's socket is
 * full. All functions may be called in several threads at the same time. */
#define VERBENA_NETLINK "verbena_netlink"

struct verbena_netlink_program {
  uint32_t port;    /* the port id of the program's socket */
  int short_errors; /* NETLINK_CAP_ACK: an error does not repeat the request */
  int (*deliver)(void* owner, const void* data, size_t length);
  void* owner;
};

struct verbena_netlink_kernel {
  /* Can the devices of the node be read? If not, sockets are refused, and programs go by sysfs. */
  int (*is_ready)(void);
  /* The state of a new socket; NULL: no memory. There is no end: the boundary does not see close(2). */
  void* (*open)(void);
  void (*reset)(void* socket); /* as after `open`: the socket is closed, and another one has its state */
  /* A datagram of the program: one request or more. Returns 0 or the errno of send(2): ENOBUFS, the program
   * does not read its replies; ENOMEM. */
  int (*request)(void* socket, const void* data, size_t length,
                 const struct verbena_netlink_program* program);
  /* The program has read a datagram: delivers the next one of a dump, if there is one and room for it. */
  void (*more)(void* socket, const struct verbena_netlink_program* program);
};

typedef const struct verbena_netlink_kernel* (*verbena_netlink_fn)(void);

#ifdef __cplusplus
}
#endif

#endif
