// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/domain.h"

#include <cstring>

#include "observe/log.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {

struct VerbsTd {
  ibv_td base;
  std::atomic<uint32_t> users;  // parent domains
};

struct ParentDomain {
  VerbsPd* contained;
  VerbsTd* td;  // or nullptr
  decltype(ibv_parent_domain_init_attr::alloc) alloc;
  decltype(ibv_parent_domain_init_attr::free) free;
  void* context;
};

namespace {

constexpr size_t kAlignment = 64;  // a cache line

// IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC of rdma-core 64. A permission that only devices need
// whose DMA cannot reach the memory of a confidential virtual machine: this one does not use it, as mlx5
// elsewhere.
constexpr uint32_t kAllowUnprotectedBuffers = 1 << 2;

VerbsTd* to_td(ibv_td* td) { return reinterpret_cast<VerbsTd*>(td); }
static_assert(offsetof(VerbsTd, base) == 0);

}  // namespace

void* allocate_in(VerbsPd* pd, size_t size, Resource resource, bool* from_domain) {
  const ParentDomain* parent = pd != nullptr ? pd->parent : nullptr;
  *from_domain = false;
  if (parent == nullptr || parent->alloc == nullptr) return calloc(1, size);
  void* memory = parent->alloc(&pd->base, parent->context, size, kAlignment, static_cast<uint64_t>(resource));
  if (memory == IBV_ALLOCATOR_USE_DEFAULT) return calloc(1, size);
  if (memory == nullptr) return nullptr;
  *from_domain = true;
  memset(memory, 0, size);  // "The callback makes sure", says ibv_alloc_parent_domain(3); not all do
  return memory;
}

void free_in(VerbsPd* pd, void* memory, Resource resource, bool from_domain) {
  if (!from_domain) return free(memory);
  const ParentDomain& parent = *pd->parent;
  if (parent.free != nullptr) parent.free(&pd->base, parent.context, memory, static_cast<uint64_t>(resource));
}

bool is_parent_domain(const VerbsPd& pd) { return pd.parent != nullptr; }
bool has_thread_domain(const VerbsPd& pd) { return pd.parent != nullptr && pd.parent->td != nullptr; }

void hold(VerbsPd* pd) {
  if (pd != nullptr) pd->users.fetch_add(1, std::memory_order_relaxed);
}
void let_go(VerbsPd* pd) {
  if (pd != nullptr) pd->users.fetch_sub(1, std::memory_order_release);
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  if (attr->comp_mask != 0) {  // as mlx5: no bit is defined
    VERBENA_WARN(unknown_bits, "ibv_alloc_td: comp_mask 0x%x: no bit is defined", attr->comp_mask);
    return refuse(EINVAL);
  }
  auto* td = allocate<VerbsTd>();
  if (td == nullptr) return nullptr;
  td->base.context = context;
  return &td->base;
}

int dealloc_td(ibv_td* ibv) {
  VerbsTd* td = to_td(ibv);
  if (const uint32_t users = td->users.load(std::memory_order_acquire); users != 0) {
    VERBENA_WARN(object_in_use, "ibv_dealloc_td: %u parent domains still have it", users);
    return answer(EBUSY);
  }
  free(td);
  return 0;
}

// Refuses what mlx5 refuses (providers/mlx5/verbs.c, mlx5_alloc_parent_domain), and objects of another
// context.
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
                         (rdma_core::installed_layout()->release >= 64 ? kAllowUnprotectedBuffers : 0);
  if (attr->pd == nullptr || (attr->comp_mask & ~known) != 0) {
    VERBENA_WARN(unknown_bits,
                 "ibv_alloc_parent_domain: pd %p, comp_mask 0x%x: it needs a PD, and there are the bits 0x%x",
                 static_cast<void*>(attr->pd), attr->comp_mask, known);
    return refuse(EINVAL);
  }
  if (attr->pd->context != context || (attr->td != nullptr && attr->td->context != context)) {
    VERBENA_WARN(other_context,
                 "ibv_alloc_parent_domain: PD %u, or its thread domain, belongs to another context",
                 attr->pd->handle);
    return refuse(EINVAL);
  }
  auto* pd = allocate<VerbsPd>();
  if (pd == nullptr) return nullptr;
  auto* parent = allocate<ParentDomain>();
  if (parent == nullptr) return refuse(pd, ENOMEM);
  parent->contained = to_pd(attr->pd);
  if (attr->td != nullptr) parent->td = to_td(attr->td);
  if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0) {
    parent->alloc = attr->alloc;
    parent->free = attr->free;
  }
  if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0) parent->context = attr->pd_context;
  hold(parent->contained);
  parent->contained->parent_domains.fetch_add(1, std::memory_order_relaxed);
  if (parent->td != nullptr) parent->td->users.fetch_add(1, std::memory_order_relaxed);
  pd->parent = parent;
  pd->emulated = parent->contained->emulated;
  pd->base.context = context;
  pd->base.handle = attr->pd->handle;
  return &pd->base;
}

int dealloc_parent_domain(VerbsPd* pd) {
  ParentDomain* parent = pd->parent;
  parent->contained->parent_domains.fetch_sub(1, std::memory_order_relaxed);
  let_go(parent->contained);
  if (parent->td != nullptr) parent->td->users.fetch_sub(1, std::memory_order_release);
  free(parent);
  free(pd);
  return 0;
}

}  // namespace verbena::verbs
