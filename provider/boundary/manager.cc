// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/manager.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <atomic>

#include "boundary/claim.h"
#include "boundary/descriptors.h"
#include "boundary/kernel.h"
#include "boundary/real.h"

namespace verbena {
namespace {

constexpr char kProvider[] = "libverbena-rdmav34.so";

// The path of the provider: in the folder of this library (fabric/installation.h). False: the folder is
// unknown, or the path is too long.
bool provider_path(char* out, size_t capacity) {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&open_manager), &self) == 0 || self.dli_fname == nullptr)
    return false;
  size_t length = 0;
  size_t folder = 0;
  for (; self.dli_fname[length] != 0; ++length) {
    if (length == capacity) return false;
    out[length] = self.dli_fname[length];
    if (out[length] == '/') folder = length + 1;
  }
  if (folder == 0 || folder + sizeof kProvider > capacity) return false;
  for (size_t i = 0; i < sizeof kProvider; ++i) out[folder + i] = kProvider[i];
  return true;
}

verbena_rdma_cm_open_fn find_entry_point() {
  static std::atomic<verbena_rdma_cm_open_fn> found{nullptr};
  verbena_rdma_cm_open_fn function = found.load(std::memory_order_acquire);
  if (function != nullptr) return function;
  char path[PATH_MAX];
  if (!provider_path(path, sizeof path)) return nullptr;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  function = reinterpret_cast<verbena_rdma_cm_open_fn>(dlsym(library, VERBENA_RDMA_CM_OPEN));
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
