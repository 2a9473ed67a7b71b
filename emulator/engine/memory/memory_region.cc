// SPDX-License-Identifier: BSD-2-Clause
//
// Memory regions (ibv_reg_mr(3), ibv_rereg_mr(3), ibv_import_mr(3)).
#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "emulator.h"
#include "engine/completion/poll.h"
#include "engine/memory/region_pages.h"
#include "engine/memory/sharing.h"
#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "fabric/hazards.h"
#include "observe/log.h"

namespace verbena {
namespace {

bool is_on_demand(int access) { return (access & IBV_ACCESS_ON_DEMAND) != 0; }

// An implicit region: the whole address space, as far as it is mapped on access (ibv_reg_mr(3)).
bool is_implicit(const void* addr, size_t length, int access) {
  return is_on_demand(access) && addr == nullptr && length == SIZE_MAX;
}

struct Registration {
  const char* verb;
  void* addr;
  size_t length;
  uint64_t iova;
  int access;
  uint64_t max_size;  // of the device
};

// An implicit region begins at iova 0, and has pages of any size (kernel, mlx5/mr.c, core/umem_odp.c).
int check_implicit(const Registration& wanted, const char** why) {
  *why = nullptr;
  if (wanted.iova != 0) *why = "the whole address space begins at iova 0";
  if ((wanted.access & IBV_ACCESS_HUGETLB) != 0)
    *why = "IBV_ACCESS_HUGETLB is for a range, not for the whole address space";
  return *why == nullptr ? 0 : EINVAL;
}

int check_range(const Registration& wanted, const char** why) {
  const auto begin = reinterpret_cast<uint64_t>(wanted.addr);
  *why = nullptr;
  if (int error = check_mr_range(begin, wanted.length, wanted.iova, why); error != 0) return error;
  // The last page would end past the address space (kernel, ib_umem_get()).
  if (wanted.length > UINTPTR_MAX - 4096 - begin) *why = "the last page passes the end of the address space";
  // Of length 0, the region is the page of its address; at the beginning of a page it is none (kernel,
  // ib_umem_num_pages()).
  if (wanted.length == 0 && begin % 4096 == 0) *why = "no byte, at the beginning of a page";
  if (wanted.length > wanted.max_size) *why = "longer than the device's max_mr_size";
  return *why == nullptr ? 0 : EINVAL;
}

// Checks a registration, and brings its pages in unless they are on demand. A refusal is logged.
int check(const Registration& wanted) {
  const char* why = nullptr;
  int error = check_mr_access(wanted.access, &why);
  if (error == 0)
    error = is_implicit(wanted.addr, wanted.length, wanted.access) ? check_implicit(wanted, &why)
                                                                   : check_range(wanted, &why);
  if (error != 0) {
    VERBENA_WARN(mr_attributes, "%s: address %p, length %zu, access 0x%x: %s", wanted.verb, wanted.addr,
                 wanted.length, wanted.access, why);
    return error;
  }
  if (is_on_demand(wanted.access)) return 0;
  const bool writable = needs_writable_memory(wanted.access);
  error = bring_in_pages(reinterpret_cast<uint64_t>(wanted.addr), wanted.length, writable);
  if (error != 0)
    VERBENA_WARN(mr_not_mapped, "%s: address %p, length %zu: part of it is not mapped%s", wanted.verb,
                 wanted.addr, wanted.length, writable ? ", or not writable as access 0x1 asks" : "");
  return error;
}

bool may_be_mapped(Process& process, const Registration& wanted) {
  const auto address = reinterpret_cast<uint64_t>(wanted.addr);
  // A region without any right is for this process's own reading.
  return !is_on_demand(wanted.access) &&
         (may_be_shared(address, wanted.length) ||
          (wanted.access != 0 && move_to_heap(process, address, wanted.length)));
}

MemoryTable::Region region_of(Process& process, uint32_t pd, const Registration& wanted) {
  return {.pd = pd,
          .access = static_cast<uint32_t>(wanted.access),
          .iova = wanted.iova,
          .length = wanted.length,
          .address = reinterpret_cast<uint64_t>(wanted.addr),
          .mappable = may_be_mapped(process, wanted)};
}

// Invalidates the keys, and waits until no request uses the region any more. `for_good`: it is deregistered.
// EBUSY: a window is bound to it.
int withdraw(Mr& mr, const char* verb, bool for_good) {
  Process& process = *mr.process;
  MemoryObjects& objects = process.memory_objects();
  {
    std::lock_guard lock(objects.mutex);
    if (has_windows(mr)) {
      VERBENA_WARN(object_in_use, "%s: lkey 0x%x: a memory window is bound to it", verb, mr.lkey);
      return EBUSY;
    }
    process.memory().invalidate(process.segment(), mr.lkey);
    if (for_good) objects.mrs.erase(mr_handle(&mr));
    for (Mw* window : mr.windows) window->region = nullptr;
    mr.windows.clear();
  }
  process.shared_regions().ended(process.membership(), mr_handle(&mr));
  process.wait_for_hazards({verb, "lkey", mr.lkey, true});
  // Requests of this process that use the region as local memory.
  wait_for_hazards_of(process.directory(), process.membership().slot());
  // Copy eager data that is not polled yet to its buffers, before these cease to be registered.
  process.for_each_cq([](Cq& cq) { scatter_eager(cq); });
  return 0;
}

}  // namespace

int enter_region(Pd* pd, MemoryTable::Region region, MrOrigin origin, Mr** out) {
  Process& process = *pd->context->process;
  if (take_quota(*pd->context, Counted::kMrs, "ibv_reg_mr") != 0) return ENOMEM;
  auto* mr = new (std::nothrow) Mr;
  if (mr == nullptr) {
    give_quota(*pd->context, Counted::kMrs);
    return ENOMEM;
  }
  region.pd = pd->handle;
  mr->process = &process;
  mr->file = pd->context->file;
  mr->device = pd->context->device_index;
  mr->origin = origin;
  mr->pd_users = pd->count;
  mr->region = region;
  MemoryObjects& objects = process.memory_objects();
  std::lock_guard lock(objects.mutex);
  if (int error = process.memory().add(process.segment(), region, &mr->lkey, &mr->rkey); error != 0) {
    give_quota(*pd->context, Counted::kMrs);
    delete mr;
    return error;
  }
  objects.mrs.emplace(mr_handle(mr), mr);
  mr->pd_users->fetch_add(1, std::memory_order_relaxed);
  *out = mr;
  return 0;
}

int reg_mr(Pd* pd, void* addr, size_t length, uint64_t iova, int access, Mr** out) {
  if (int error = usable(*pd->context); error != 0) return error;
  if ((access & IBV_ACCESS_ZERO_BASED) != 0) iova = 0;
  const Registration wanted{"ibv_reg_mr", addr,   length,
                            iova,         access, pd->context->device->limits.max_mr_size};
  if (int error = check(wanted); error != 0) return error;
  return enter_region(pd, region_of(*pd->context->process, pd->handle, wanted), MrOrigin::kProgram, out);
}

int rereg_mr(Mr* mr, int flags, Pd* pd, void* addr, size_t length, int access) {
  Process& process = *mr->process;
  if (int error = usable(process, mr->file); error != 0) return error;
  constexpr int kKnown =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  const char* why = nullptr;
  if (flags == 0 || (flags & ~kKnown) != 0) why = "flags name nothing to change, or something unknown";
  if (mr->origin != MrOrigin::kProgram) why = "not a region of ibv_reg_mr(3)";
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && (pd == nullptr || pd->context->file != mr->file))
    why = "the protection domain is another context's";
  if (why != nullptr) {
    VERBENA_WARN(rereg_attributes, "ibv_rereg_mr: lkey 0x%x, flags 0x%x: %s", mr->lkey, flags, why);
    return EINVAL;
  }
  std::lock_guard one_at_a_time(mr->change_mutex);
  MemoryTable::Region region;
  {
    std::lock_guard lock(process.memory_objects().mutex);
    region = mr->region;
  }
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool was_zero_based = (region.access & IBV_ACCESS_ZERO_BASED) != 0;
  Registration wanted{"ibv_rereg_mr",
                      moves ? addr : reinterpret_cast<void*>(region.address),
                      moves ? length : region.length,
                      region.iova,
                      (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? access : static_cast<int>(region.access),
                      process.directory().devices().devices[mr->device].limits.max_mr_size};
  // The iova that a new ibv_reg_mr(3) would give. An iova of ibv_reg_mr_iova(3) is kept while the memory is.
  if ((wanted.access & IBV_ACCESS_ZERO_BASED) != 0)
    wanted.iova = 0;
  else if (moves || was_zero_based)
    wanted.iova = reinterpret_cast<uint64_t>(wanted.addr);
  if (int error = check(wanted); error != 0) return error;

  const bool changes_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  if (int error = withdraw(*mr, "ibv_rereg_mr", false); error != 0) return error;
  const MemoryTable::Region changed = region_of(process, changes_pd ? pd->handle : region.pd, wanted);
  std::lock_guard lock(process.memory_objects().mutex);
  mr->region = changed;
  if (changes_pd) {
    pd->users.fetch_add(1, std::memory_order_relaxed);
    mr->pd_users->fetch_sub(1, std::memory_order_release);
    mr->pd_users = pd->count;
  }
  process.memory().change(process.segment(), mr->lkey, mr->region);
  return 0;
}

int reg_dmabuf_mr(Pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, Mr** out) {
  if (int error = usable(*pd->context); error != 0) return error;
  constexpr int kFlags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_OPTIONAL_RANGE;
  const char* why = nullptr;
  int error = check_mr_access(access, &why);
  if (error == 0 && (access & ~kFlags) != 0) {
    error = EOPNOTSUPP;  // kernel, UVERBS_METHOD_REG_DMABUF_MR: flags outside its mask
    why = "flags that ibv_reg_dmabuf_mr(3) does not list";
  }
  if (error == 0) error = check_mr_range(offset, length, iova, &why);
  if (error == 0 && length > pd->context->device->limits.max_mr_size) {
    error = EINVAL;
    why = "longer than the device's max_mr_size";
  }
  MappedBuffer buffer{};
  if (error == 0) {
    error = map_dma_buffer(fd, offset, length, needs_writable_memory(access), &buffer);
    why = "the descriptor is no dma-buf, ends before the range, or cannot be mapped";
  }
  if (error != 0) {
    VERBENA_WARN(dmabuf,
                 "ibv_reg_dmabuf_mr: descriptor %d, offset %llu, length %zu, access 0x%x: errno %d: %s", fd,
                 static_cast<unsigned long long>(offset), length, access, error, why);
    return error;
  }
  error = enter_region(pd,
                       {.pd = pd->handle,
                        .access = static_cast<uint32_t>(access),
                        .iova = iova,
                        .length = length,
                        .address = buffer.address},
                       MrOrigin::kDescriptor, out);
  if (error != 0) {
    munmap(buffer.mapping, buffer.mapping_size);
    return error;
  }
  (*out)->mapping = buffer.mapping;
  (*out)->mapping_size = buffer.mapping_size;
  return 0;
}

int dereg_mr(Mr* mr) {
  Process& process = *mr->process;
  if (process.dead()) return 0;
  if (int error = withdraw(*mr, "ibv_dereg_mr", true); error != 0) return error;
  process.memory().recycle(process.segment(), mr->lkey);
  give_quota(process, mr->device, Counted::kMrs);
  mr->pd_users->fetch_sub(1, std::memory_order_release);
  if (mr->dm != nullptr) mr->dm->users.fetch_sub(1, std::memory_order_release);
  if (mr->mapping != nullptr) munmap(mr->mapping, mr->mapping_size);
  delete mr;
  region_ended(process);
  return 0;
}

int import_mr(Pd* pd, uint32_t handle, Mr** out) {
  Process& process = *pd->context->process;
  if (int error = usable(*pd->context); error != 0) return error;
  MemoryObjects& objects = process.memory_objects();
  std::lock_guard lock(objects.mutex);
  *out = find_object(objects.mrs, handle, pd->context->file);
  if (*out != nullptr) return 0;
  VERBENA_WARN(unknown_handle,
               "ibv_import_mr: handle %u: the context's command descriptor knows no such region", handle);
  return ENOENT;
}

bool has_windows(const Mr& mr) {
  const SegmentView& view = mr.process->view();
  return std::any_of(mr.windows.begin(), mr.windows.end(), [&](const Mw* window) {
    const SharedMr* entry = find_window(view, window->rkey);
    return entry != nullptr && entry->valid.load(std::memory_order_acquire) != 0;
  });
}

uint32_t mr_lkey(const Mr* mr) { return mr->lkey; }
uint32_t mr_rkey(const Mr* mr) { return mr->origin == MrOrigin::kNull ? 0 : mr->rkey; }
uint32_t mr_handle(const Mr* mr) { return MemoryKey::unpack(mr->lkey).index; }
bool is_of(const Mr* mr, const Context* context) { return mr->file == context->file; }
size_t mr_length(const Mr* mr) { return mr->region.length; }

}  // namespace verbena
