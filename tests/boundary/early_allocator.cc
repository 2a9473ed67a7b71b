// SPDX-License-Identifier: BSD-2-Clause
//
// An allocator that looks for its configuration on the first allocation, as jemalloc does: under the preload
// it calls the boundary's hooks before any constructor has run, and perhaps from inside dlsym(3).
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" void* __libc_malloc(size_t size);
extern "C" void* __libc_calloc(size_t count, size_t size);

namespace {

int looked = 0;

void look_for_configuration() {
  if (looked != 0) return;
  looked = 1;
  char target[64];
  struct stat status;
  (void)!readlink("/etc/malloc.conf", target, sizeof target);
  (void)!stat("/sys/class/infiniband/verbena0", &status);
  const int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) close(fd);
  // Says that it was here; the test looks for that.
  (void)!write(2, "allocator awake\n", 16);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* malloc(size_t size) {
  look_for_configuration();
  return __libc_malloc(size);
}

extern "C" __attribute__((visibility("default"))) void* calloc(size_t count, size_t size) {
  look_for_configuration();
  return __libc_calloc(count, size);
}
