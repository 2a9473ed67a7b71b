// SPDX-License-Identifier: BSD-2-Clause
//
// shmget(2) without SHM_HUGETLB: ordinary pages for a program that wants huge ones, where no administrator
// has set any aside (/proc/sys/vm/nr_hugepages). Preloaded by cases/erpc.py.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/shm.h>

__attribute__((visibility("default"))) int shmget(key_t key, size_t size, int flags) {
  int (*next)(key_t, size_t, int) = (int (*)(key_t, size_t, int))dlsym(RTLD_NEXT, "shmget");
  return next(key, size, flags & ~SHM_HUGETLB);
}
