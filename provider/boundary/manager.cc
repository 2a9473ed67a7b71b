// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/manager.h"

#include <unistd.h>

#include <atomic>

#include "boundary/claim.h"
#include "boundary/descriptors.h"
#include "boundary/kernel.h"
#include "boundary/provider.h"
#include "boundary/real.h"

namespace verbena {
namespace {

verbena_rdma_cm_open_fn find_entry_point() {
  static std::atomic<verbena_rdma_cm_open_fn> found{nullptr};
  verbena_rdma_cm_open_fn function = found.load(std::memory_order_acquire);
  if (function != nullptr) return function;
  function = reinterpret_cast<verbena_rdma_cm_open_fn>(provider_function(VERBENA_RDMA_CM_OPEN));
  found.store(function, std::memory_order_release);
  return function;
}

}  // namespace

int open_manager(int flags) {
  if (!may_adopt()) return failed<int>(ENODEV);
  const verbena_rdma_cm_open_fn entry_point = find_entry_point();
  if (entry_point == nullptr) return failed<int>(ENODEV);
  verbena_boundary_handler handler = {
      .write = nullptr, .owner = nullptr, .control = nullptr, .resume = nullptr};
  const int fd = entry_point(flags, &handler);
  if (fd >= 0 && !adopt_pipe(fd, handler)) {
    kernel::ask(SYS_close, fd);
    return failed<int>(ENOMEM);
  }
  return fd;
}

}  // namespace verbena
