// SPDX-License-Identifier: BSD-2-Clause
//
// free(3), realloc(3) and munmap(2) of the program: is the memory still in use?
//
// The library is preloaded, so these definitions come before libc's, or before those of another allocator,
// which they call. munmap() stands behind the preload's, which calls it: dlsym(3) must not find either of
// them (boundary/real.h, VERBENA_HOOK_OF_CALLS). Their callers may hold any lock: if the model's is not to be
// had, the call goes unchecked (report.h). Before the constructor of libc's own loader could look them up, a
// block is not freed.
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "boundary/check_version.h"
#include "check/kept_memory.h"
#include "check/memory_hooks.h"
#include "check/model.h"
#include "check/outstanding.h"
#include "check/protection.h"

namespace verbena::check {
namespace {

std::atomic<bool> watching{false};  // a region exists: before that nothing can be in use

using Free = void(void*);
using Realloc = void*(void*, size_t);
using Munmap = int(void*, size_t);

template <typename Function>
Function* next(const char* name, std::atomic<Function*>& known) {
  Function* function = known.load(std::memory_order_acquire);
  if (function != nullptr) return function;
  static thread_local bool looking __attribute__((tls_model("initial-exec"))) = false;
  if (looking) return nullptr;  // dlsym itself frees
  looking = true;
  function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  looking = false;
  known.store(function, std::memory_order_release);
  return function;
}

std::atomic<Free*> real_free{nullptr};
std::atomic<Realloc*> real_realloc{nullptr};
std::atomic<Munmap*> real_munmap{nullptr};

// Most memory has nothing to do with the device. False as well: the lock is not to be had.
bool is_in_use(uintptr_t begin, size_t length, bool pages) {
  bool got = false;
  const Locked locked(&got);
  if (!got || !was_registered(begin, begin + length)) return false;
  unprotect_memory(begin, begin + length);
  return find_region_at(begin, begin + length, pages) != nullptr ||
         find_use_of(begin, begin + length) != nullptr;
}

// Before realloc(3), which may free the block in the same call.
void end_protection_of(uintptr_t begin, size_t length) {
  bool got = false;
  const Locked locked(&got);
  if (got) unprotect_memory(begin, begin + length);
}

void check_released(const char* call, uintptr_t begin, size_t length, bool pages) {
  if (!watching.load(std::memory_order_acquire) || is_inside()) return;
  const int error = errno;
  if (is_in_use(begin, length, pages)) {
    const Stack stack = capture_stack();
    bool got = false;
    const Locked locked(&got);
    if (!got) {
      errno = error;
      return;
    }
    const std::string where = text("%s of [0x%zx, +%zu)", call, static_cast<size_t>(begin), length);
    const Region* const region = find_region_at(begin, begin + length, pages);
    if (const Request* const request = find_use_of(begin, begin + length); request != nullptr) {
      report(rule("buffer-freed"),
             where + text(": a %s with wr_id 0x%llx uses it", kind_of(*request),
                          static_cast<unsigned long long>(request->wr_id)),
             {{pages ? "unmapped here" : "freed here", keep_stack(stack)}, {"posted here", request->posted}});
    } else if (region != nullptr) {
      report(pages ? rule("buffer-unmapped") : rule("registered-freed"), where + ": " + region->name,
             {{pages ? "unmapped here" : "freed here", keep_stack(stack)},
              {"registered here", region->created}});
    }
  }
  errno = error;
}

void check_block(const char* call, void* memory) {
  if (memory == nullptr || !watching.load(std::memory_order_acquire) || is_inside()) return;
  check_released(call, reinterpret_cast<uintptr_t>(memory), malloc_usable_size(memory), false);
}

}  // namespace

void watch_memory() { watching.store(true, std::memory_order_release); }

extern "C" {

__attribute__((visibility("default"))) void free(void* memory) {
  if (memory == nullptr || must_keep(memory)) return;
  check_block("free", memory);
  if (Free* const release = next("free", real_free); release != nullptr) release(memory);
}

__attribute__((visibility("default"))) void* realloc(void* memory, size_t size) {
  Realloc* const function = next("realloc", real_realloc);
  if (function == nullptr) return errno = ENOMEM, nullptr;
  const size_t length =
      memory != nullptr && watching.load(std::memory_order_acquire) ? malloc_usable_size(memory) : 0;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  if (length != 0 && has_protected() && !is_inside()) end_protection_of(begin, length);
  void* const result = function(memory, size);
  if (length != 0 && result != nullptr && reinterpret_cast<uintptr_t>(result) != begin)
    check_released("realloc", begin, length, false);
  return result;
}

#if __has_attribute(symver)
__attribute__((symver("munmap@" VERBENA_CHECK_VERSION)))
#else
__asm__(".symver called_munmap, munmap@" VERBENA_CHECK_VERSION);
__attribute__((used))
#endif
__attribute__((visibility("default"))) int
called_munmap(void* memory, size_t length) {
  check_released("munmap", reinterpret_cast<uintptr_t>(memory), length, true);
  Munmap* const function = next("munmap", real_munmap);
  return function != nullptr ? function(memory, length)
                             : static_cast<int>(syscall(SYS_munmap, memory, length));
}
}

}  // namespace verbena::check
