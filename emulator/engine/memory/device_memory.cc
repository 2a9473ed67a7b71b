// SPDX-License-Identifier: BSD-2-Clause
//
// Device memory (ibv_alloc_dm(3), ibv_import_dm(3)): memory of this process whose address the program does
// not get.
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "adapter/advice.h"
#include "emulator.h"
#include "engine/memory/sharing.h"
#include "engine/objects/context.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "engine/rules/device_attributes.h"
#include "fabric/memory_file.h"
#include "observe/log.h"

namespace verbena {
namespace {

// A page: the alignment of mmap(2).
constexpr uint32_t kMaxLogAlignment = 12;

constexpr unsigned kAccessFlags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_OPTIONAL_RANGE;

bool is_inside(const Dm& dm, uint64_t offset, size_t length) {
  return offset <= dm.length && length <= dm.length - offset;
}

int check_copy(const Dm& dm, const char* verb, uint64_t offset, size_t length) {
  int error = 0;
  if (!is_inside(dm, offset, length))
    error = EFAULT;
  else if (offset % 4 != 0 || length % 4 != 0)
    error = EINVAL;
  if (error != 0)
    VERBENA_WARN(dm_range, "%s: offset %llu, length %zu: %s; there are %zu bytes", verb,
                 static_cast<unsigned long long>(offset), length,
                 error == EFAULT ? "outside of the device memory" : "no multiples of 4", dm.length);
  return error;
}

// Memory of a file without a name, so that peers can map it as well (fabric/mapped_regions.h). A child has no
// part of it. nullptr: there is no such file.
void* map_file(size_t length, KeptDescriptor* backing) {
  const int fd = make_memory_file("verbena-dm", length);
  if (fd < 0) return nullptr;
  void* const memory =
      reinterpret_cast<void*>(syscall(SYS_mmap, nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L));
  if (memory == MAP_FAILED || advise_kernel(memory, length, MADV_DONTFORK) != 0) {
    if (memory != MAP_FAILED) munmap(memory, length);
    syscall(SYS_close, fd);
    return nullptr;
  }
  backing->keep(fd);
  return memory;
}

// Is the parent of this forked child alive, and still the process that the child was forked from? Its slot
// then counts what the child allocates through its context.
bool parent_is_alive(Process& process) {
  NodeMembership& membership = process.membership();
  return process.directory().alive(membership.slot(), membership.generation());
}

// The same as usable(), for a forked child as well: it shares the command descriptor of its parent, as with a
// kernel driver. The allocation ends with the descriptor's last process if the child does not free it.
int usable_by_child(Context& context) {
  if (!context.process->dead()) return usable(context);
  return !context.failed.load(std::memory_order_acquire) && parent_is_alive(*context.process) ? 0 : EIO;
}

int usable(const Dm& dm) {
  if (dm.child == 0) return usable(*dm.process, dm.file);
  return dm.child == getpid() ? 0 : EIO;
}

// Without the lock of Quota, which a thread of the parent may have held at the fork.
int take_in_child(Context& context, uint64_t amount) {
  Process& process = *context.process;
  return Quota::take_unlocked(process.directory(), process.membership().slot(), context.device_index,
                              Counted::kDeviceMemory, amount);
}

}  // namespace

int alloc_dm(Context* context, const ibv_alloc_dm_attr* attr, Dm** out) {
  Process& process = *context->process;
  if (int error = usable_by_child(*context); error != 0) return error;
  const uint64_t most = context->device->limits.max_dm_size;
  if (most == 0) {
    VERBENA_WARN(feature_absent, "ibv_alloc_dm: the device has no memory of its own");
    return EOPNOTSUPP;
  }
  if (attr->comp_mask != 0 || attr->length == 0 || attr->length > most ||
      attr->log_align_req > kMaxLogAlignment) {
    VERBENA_WARN(dm_attributes,
                 "ibv_alloc_dm: length %zu (1 to %llu), log_align_req %u (up to %u), comp_mask 0x%x (0)",
                 attr->length, static_cast<unsigned long long>(most), attr->log_align_req, kMaxLogAlignment,
                 attr->comp_mask);
    return EINVAL;
  }
  const bool in_child = process.dead();
  if ((in_child ? take_in_child(*context, attr->length)
                : take_quota(*context, Counted::kDeviceMemory, "ibv_alloc_dm", attr->length)) != 0)
    return ENOMEM;
  auto* dm = new (std::nothrow) Dm;
  void* memory = dm != nullptr && !in_child ? map_file(attr->length, &dm->backing) : nullptr;
  if (memory == nullptr)
    memory = mmap(nullptr, attr->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || dm == nullptr) {
    if (memory != MAP_FAILED) munmap(memory, attr->length);
    give_quota(*context, Counted::kDeviceMemory, attr->length);
    delete dm;
    return ENOMEM;
  }
  static std::atomic<uint32_t> next_handle{1};
  dm->process = &process;
  dm->file = context->file;
  dm->device = context->device_index;
  dm->handle = next_handle.fetch_add(1, std::memory_order_relaxed);
  dm->memory = static_cast<std::byte*>(memory);
  dm->length = attr->length;
  dm->child = in_child ? getpid() : 0;
  *out = dm;
  if (in_child) return 0;
  MemoryObjects& objects = process.memory_objects();
  std::lock_guard lock(objects.mutex);
  objects.dms.emplace(dm->handle, dm);
  return 0;
}

int free_dm(Dm* dm) {
  Process& process = *dm->process;
  if (process.dead() && (dm->child == 0 || dm->child != getpid())) return 0;  // another process's
  if (dm->child != 0) {
    if (parent_is_alive(process)) give_quota(process, dm->device, Counted::kDeviceMemory, dm->length);
    munmap(dm->memory, dm->length);
    delete dm;
    return 0;
  }
  MemoryObjects& objects = process.memory_objects();
  {
    std::lock_guard lock(objects.mutex);
    if (dm->users.load(std::memory_order_acquire) != 0) {
      VERBENA_WARN(object_in_use, "ibv_free_dm: %u memory regions still belong to it", dm->users.load());
      return EBUSY;
    }
    objects.dms.erase(dm->handle);
  }
  give_quota(process, dm->device, Counted::kDeviceMemory, dm->length);
  munmap(dm->memory, dm->length);
  delete dm;
  return 0;
}

uint32_t dm_handle(const Dm* dm) { return dm->handle; }
bool is_of(const Dm* dm, const Context* context) { return dm->file == context->file; }

int import_dm(Context* context, uint32_t handle, Dm** out) {
  Process& process = *context->process;
  if (int error = usable(*context); error != 0) return error;
  MemoryObjects& objects = process.memory_objects();
  std::lock_guard lock(objects.mutex);
  *out = find_object(objects.dms, handle, context->file);
  if (*out != nullptr) return 0;
  VERBENA_WARN(unknown_handle,
               "ibv_import_dm: handle %u: the context's command descriptor knows no such device memory",
               handle);
  return ENOENT;
}

int copy_to_dm(Dm* dm, uint64_t offset, const void* from, size_t length) {
  if (int error = usable(*dm); error != 0) return error;
  if (int error = check_copy(*dm, "ibv_memcpy_to_dm", offset, length); error != 0) return error;
  std::memcpy(dm->memory + offset, from, length);
  return 0;
}

int copy_from_dm(void* to, const Dm* dm, uint64_t offset, size_t length) {
  if (int error = usable(*dm); error != 0) return error;
  if (int error = check_copy(*dm, "ibv_memcpy_from_dm", offset, length); error != 0) return error;
  std::memcpy(to, dm->memory + offset, length);
  return 0;
}

int reg_dm_mr(Pd* pd, Dm* dm, uint64_t offset, size_t length, unsigned access, Mr** out) {
  if (int error = usable(*pd->context); error != 0) return error;
  // As the kernel, uverbs_std_types_mr.c (UVERBS_METHOD_DM_MR_REG); the flags as mlx5.
  const char* why = nullptr;
  if (check_mr_access(static_cast<int>(access), &why) == 0) {
    if (dm->file != pd->context->file) why = "the device memory is another context's";
    if ((access & IBV_ACCESS_ZERO_BASED) == 0) why = "a region of device memory is IBV_ACCESS_ZERO_BASED";
    if ((access & ~kAccessFlags) != 0) why = "flags that do not go with device memory";
    if (!is_inside(*dm, offset, length)) why = "the range is outside of the device memory";
  }
  if (why != nullptr) {
    VERBENA_WARN(mr_attributes, "ibv_reg_dm_mr: offset %llu, length %zu, access 0x%x: %s",
                 static_cast<unsigned long long>(offset), length, access, why);
    return EINVAL;
  }
  dm->users.fetch_add(1, std::memory_order_relaxed);
  const auto address = reinterpret_cast<uint64_t>(dm->memory + offset);
  const int error = enter_region(
      pd,
      {.pd = pd->handle,
       .access = access,
       .iova = 0,
       .length = length,
       .address = address,
       .mappable = length != 0 && (dm->backing.fd() >= 0 || move_to_heap(*dm->process, address, length))},
      MrOrigin::kDevice, out);
  if (error == 0)
    (*out)->dm = dm;
  else
    dm->users.fetch_sub(1, std::memory_order_release);
  return error;
}

}  // namespace verbena
