// SPDX-License-Identifier: BSD-2-Clause
//
// The null region (ibv_alloc_null_mr): reads return zeros at any address, writes are discarded. Both use real
// memory, so that the placement of bytes needs no special case: a mapping of the zero page to read from, and
// a small file, mapped many times in a row, to write to.
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emulator.h"
#include "engine/objects/context.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "engine/rules/device_attributes.h"

namespace verbena {
namespace {

constexpr size_t kSinkFile = size_t{2} << 20;

// Enough for the longest message.
size_t size_for(const DeviceLimits& limits) { return (limits.max_msg_sz + kSinkFile - 1) / kSinkFile * kSinkFile; }

void* reserve(size_t size, int protection) {
  void* memory = mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void* make_sink(size_t size) {
  const int fd = memfd_create("verbena-null", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  auto* sink = static_cast<std::byte*>(ftruncate(fd, kSinkFile) == 0 ? reserve(size, PROT_NONE) : nullptr);
  for (size_t at = 0; sink != nullptr && at < size; at += kSinkFile) {
    if (mmap(sink + at, kSinkFile, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED)
      continue;
    munmap(sink, size);
    sink = nullptr;
  }
  close(fd);
  return sink;
}

// Makes both mappings once. All null regions of the process share them (all devices of a node have one
// profile), and they are kept until it ends.
int prepare(MemoryObjects& objects, size_t size) {
  std::lock_guard lock(objects.mutex);
  if (objects.zeros == nullptr) objects.zeros = reserve(size, PROT_READ);
  if (objects.sink == nullptr) objects.sink = make_sink(size);
  return objects.zeros != nullptr && objects.sink != nullptr ? 0 : ENOMEM;
}

}  // namespace

int alloc_null_mr(Pd* pd, Mr** out) {
  Process& process = *pd->context->process;
  if (int error = usable(*pd->context); error != 0) return error;
  MemoryObjects& objects = process.memory_objects();
  if (int error = prepare(objects, size_for(pd->context->device->limits)); error != 0) return error;
  return enter_region(pd,
                      {.pd = pd->handle,
                       .access = IBV_ACCESS_LOCAL_WRITE,
                       .iova = reinterpret_cast<uint64_t>(objects.zeros),
                       .length = UINT64_MAX,
                       .address = reinterpret_cast<uint64_t>(objects.sink),
                       .kind = KeyKind::kNullRegion},
                      MrOrigin::kNull, out);
}

}  // namespace verbena
