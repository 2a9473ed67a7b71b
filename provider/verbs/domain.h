// SPDX-License-Identifier: BSD-2-Clause
//
// Parent domains (ibv_alloc_parent_domain(3)): a PD in every respect, plus a thread domain (ibv_alloc_td(3))
// and the program's own allocators. What the provider allocates for queue pairs and completion queues of such
// a domain comes from them; what peers write to, rings and receive queues, lies in the adapter's segment
// whatever the domain.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace verbena::verbs {

struct VerbsPd;

// What an allocation is for: the low half of resource_type. The high half is the kernel driver's number, and
// there is none (RDMA_DRIVER_UNKNOWN, 0).
enum class Resource : uint64_t { kQp = 1, kSendQueue = 2, kCq = 3, kSrq = 4 };

// `size` zeroed bytes, aligned for anything. *from_domain: the program's allocator gave them, and its
// counterpart gets them back. `pd` may be nullptr. nullptr: no memory, or the program's allocator refused.
void* allocate_in(VerbsPd* pd, size_t size, Resource resource, bool* from_domain);
void free_in(VerbsPd* pd, void* memory, Resource resource, bool from_domain);

bool is_parent_domain(const VerbsPd& pd);
bool has_thread_domain(const VerbsPd& pd);

// While something holds on to a PD, ibv_dealloc_pd(3) answers EBUSY. nullptr is allowed.
void hold(VerbsPd* pd);
void let_go(VerbsPd* pd);

int dealloc_parent_domain(VerbsPd* pd);  // of which nobody holds on to

}  // namespace verbena::verbs
