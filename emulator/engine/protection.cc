// SPDX-License-Identifier: BSD-2-Clause
//
// Protection domains and memory regions (ibv_alloc_pd(3), ibv_reg_mr(3)).
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "engine/objects.h"
#include "fabric/hazards.h"
#include "observe/log.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace verbena {
namespace {

// What pinning would find on an adapter: is every page there, and writable if it must be? 0, EFAULT or ENOMEM.
int probe_pages(uintptr_t begin, uintptr_t end, bool writable) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  begin &= ~(page - 1);
  end = (end + page - 1) & ~(page - 1);
  for (;;) {
    if (syscall(SYS_madvise, begin, end - begin, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) return 0;
    if (errno == EINTR || errno == EAGAIN) continue;
    // madvise(2): ENOMEM for addresses that are not mapped; pinning calls that EFAULT (kernel, mm/gup.c).
    if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON) return EFAULT;
    break;
  }
  // A kernel before 5.14: read each page as the kernel would on another's behalf.
  for (uintptr_t at = begin; at < end; at += page) {
    char byte;
    iovec here{&byte, 1}, there{reinterpret_cast<void*>(at), 1};
    if (syscall(SYS_process_vm_readv, getpid(), &here, 1UL, &there, 1UL, 0UL) != 1 && errno == EFAULT) return EFAULT;
    if (writable && syscall(SYS_process_vm_writev, getpid(), &here, 1UL, &there, 1UL, 0UL) != 1 && errno == EFAULT)
      return EFAULT;
  }
  return 0;
}

}  // namespace

int alloc_pd(Context* context, Pd** out) {
  if (context->process->dead()) return EIO;
  static std::atomic<uint32_t> next_handle{1};
  auto* pd = new (std::nothrow) Pd;
  if (pd == nullptr) return ENOMEM;
  pd->context = context;
  pd->handle = next_handle.fetch_add(1, std::memory_order_relaxed);
  *out = pd;
  return 0;
}

int dealloc_pd(Pd* pd) {
  if (!pd->context->process->dead() && pd->users.load(std::memory_order_acquire) != 0) {
    VERBENA_WARN("ibv_dealloc_pd: %u objects still belong to it", pd->users.load());
    return EBUSY;
  }
  delete pd;
  return 0;
}

uint32_t pd_handle(const Pd* pd) { return pd->handle; }

int reg_mr(Pd* pd, void* addr, size_t length, uint64_t iova, int access, Mr** out) {
  Process& process = *pd->context->process;
  if (process.dead()) return EIO;
  if ((access & IBV_ACCESS_ZERO_BASED) != 0) iova = 0;
  const char* why = nullptr;
  int error = check_mr_access(access, &why);
  if (error == 0) error = check_mr_range(reinterpret_cast<uint64_t>(addr), length, iova, &why);
  if (error == 0 && length > UINTPTR_MAX - 4096 - reinterpret_cast<uintptr_t>(addr)) {
    // The last page would end past the address space (kernel, ib_umem_get()).
    error = EINVAL;
    why = "the last page passes the end of the address space";
  }
  if (error == 0 && length == 0) {
    error = EINVAL;
    why = "a region has at least one byte";
  }
  if (error != 0) {
    VERBENA_WARN("ibv_reg_mr: address %p, length %zu, access 0x%x: %s", addr, length, access, why);
    return error;
  }
  const auto begin = reinterpret_cast<uintptr_t>(addr);
  error = probe_pages(begin, begin + length, needs_writable_memory(access));
  if (error != 0) {
    VERBENA_WARN("ibv_reg_mr: address %p, length %zu: part of it is not mapped%s", addr, length,
                 needs_writable_memory(access) ? ", or not writable as access 0x1 asks" : "");
    return error;
  }
  auto* mr = new (std::nothrow) Mr;
  if (mr == nullptr) return ENOMEM;
  mr->pd = pd;
  error = process.memory().add(process.segment(), {pd->handle, static_cast<uint32_t>(access), iova, length, begin},
                               &mr->lkey, &mr->rkey);
  if (error != 0) {
    delete mr;
    return error;
  }
  pd->users.fetch_add(1, std::memory_order_relaxed);
  *out = mr;
  return 0;
}

int dereg_mr(Mr* mr) {
  Process& process = *mr->pd->context->process;
  if (process.dead()) return 0;
  process.memory().invalidate(process.segment(), mr->lkey);
  process.wait_for_visitors();
  // The own requests that use it as their local side.
  wait_for_visits_of(process.directory(), process.home().slot());
  // Messages that have landed and are not polled yet go to their buffers before those cease to be registered.
  process.for_each_cq([](Cq& cq) { scatter_landed(cq); });
  process.memory().recycle(mr->lkey);
  mr->pd->users.fetch_sub(1, std::memory_order_release);
  delete mr;
  return 0;
}

uint32_t mr_lkey(const Mr* mr) { return mr->lkey; }
uint32_t mr_rkey(const Mr* mr) { return mr->rkey; }
uint32_t mr_handle(const Mr* mr) { return MemoryKey::unpack(mr->lkey).index; }

}  // namespace verbena
