/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the provider learns of calls of the program that have nothing to do with device files, once the
 * program has opened a device: calls that decide whether a peer may map memory of this process, and whether
 * this process may touch memory of a peer (emulator/fabric/mapped_regions.h, guarded_copy.h). The provider
 * finds both functions with dlsym(RTLD_DEFAULT, …), as those of claim.h.
 */
#ifndef VERBENA_PROVIDER_BOUNDARY_WATCH_H
#define VERBENA_PROVIDER_BOUNDARY_WATCH_H

#include <signal.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct verbena_boundary_watcher {
  /* sigaction(2) of the program for SIGBUS: is called in the place of libc's, and returns what it would. */
  int (*sigbus_action)(const struct sigaction* action, struct sigaction* former);
  /* The calling thread has called sigprocmask(2) or pthread_sigmask(3). */
  void (*signal_mask_changed)(void);
  /* Of memory that verbena_boundary_watch_memory() names. The program is about to unmap it, to map something
   * else there or to change its protection; and has done so. Neither waits for a lock or calls malloc(3). */
  void (*memory_changes)(uint64_t address, uint64_t length);
  void (*memory_changed)(uint64_t address, uint64_t length);
  /* The program is about to move it, or to ask for what only private memory can have: makes it private. */
  void (*memory_leaves)(uint64_t address, uint64_t length);
};

/* `watcher` stays valid for ever. */
void verbena_boundary_watch(const struct verbena_boundary_watcher* watcher);

/* Has the program ever mapped a file MAP_SHARED where `address` is? 1 or 0; 1 as well if there were too many
 * such mappings to tell. Some nanoseconds. */
int verbena_boundary_was_shared(uint64_t address);

/* From now on the calls of the program that change what is mapped in the range are told to the watcher, and its
 * calls of madvise(2) have the effect that they have on private anonymous memory (heap_memory.h). Lock-free. */
void verbena_boundary_watch_memory(uint64_t address, uint64_t length);

/* Has the program called madvise(2) for something that the kernel keeps with the mapping? 1 or 0. */
int verbena_boundary_has_advised(void);

typedef void (*verbena_boundary_watch_memory_fn)(uint64_t, uint64_t);
typedef int (*verbena_boundary_has_advised_fn)(void);
typedef void (*verbena_boundary_watch_fn)(const struct verbena_boundary_watcher*);
typedef int (*verbena_boundary_was_shared_fn)(uint64_t);

#ifdef __cplusplus
}
#endif

#endif
