// SPDX-License-Identifier: BSD-2-Clause
#include "check/kept_memory.h"

#include <malloc.h>

#include <cstdint>

namespace verbena::check {
namespace {

thread_local const void* kept __attribute__((tls_model("initial-exec"))) = nullptr;

}  // namespace

KeepingMemory::KeepingMemory(const void* handle) : before_(kept) { kept = handle; }
KeepingMemory::~KeepingMemory() { kept = before_; }

bool must_keep(const void* memory) {
  if (kept == nullptr) return false;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const auto object = reinterpret_cast<uintptr_t>(kept);
  return object >= begin && object - begin < malloc_usable_size(const_cast<void*>(memory));
}

}  // namespace verbena::check
