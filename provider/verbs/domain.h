// SPDX-License-Identifier: BSD-2-Clause
//
// Parent domains (ibv_alloc_parent_domain(3)): a PD in every respect, plus a thread domain (ibv_alloc_td(3))
// and the program's own allocators. The provider uses them for the memory of queue pairs and completion
// queues of the domain. Memory that peers write to, rings and receive queues, is always in the adapter's
// segment.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace verbena::verbs {

struct VerbsPd;

// The purpose of an allocation: the low half of resource_type. The high half is the number of the kernel
// driver; there is none (RDMA_DRIVER_UNKNOWN, 0).
enum class Resource : uint64_t { kQp = 1, kSendQueue = 2, kCq = 3, kSrq = 4 };

// `size` zeroed bytes, aligned for anything. *from_domain: they are from the program's allocator, and are
// freed by its counterpart. `pd` may be nullptr. nullptr: no memory, or the program's allocator refused.
void* allocate_in(VerbsPd* pd, size_t size, Resource resource, bool* from_domain);
void free_in(VerbsPd* pd, void* memory, Resource resource, bool from_domain);

bool is_parent_domain(const VerbsPd& pd);
bool has_thread_domain(const VerbsPd& pd);

// While an object refers to a PD, ibv_dealloc_pd(3) returns EBUSY. nullptr is allowed.
void hold(VerbsPd* pd);
void let_go(VerbsPd* pd);

int dealloc_parent_domain(VerbsPd* pd);  // EBUSY while objects refer to it

}  // namespace verbena::verbs
