// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena {

int make_memory_file(const char* name, uint64_t size, uint64_t huge_page) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return -1;
  const int pages = huge_page == 0 ? 0 : huge_page_flags(MFD_HUGETLB, huge_page);
  const auto fd = static_cast<int>(syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING | pages));
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(size)) == 0 &&
      syscall(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    return fd;
  syscall(SYS_close, fd);
  return -1;
}

}  // namespace verbena
