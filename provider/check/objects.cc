// SPDX-License-Identifier: BSD-2-Clause
//
// Objects: which of them may be used, and whether they are destroyed in order.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "check/forks.h"
#include "check/kept_memory.h"
#include "check/likeness.h"
#include "check/memory_hooks.h"
#include "check/operations.h"
#include "check/outstanding.h"
#include "check/pinned.h"
#include "check/protection.h"
#include "check/shadows.h"
#include "check/watch.h"
#include "findings/families.h"

namespace verbena::check {
namespace {

struct KindText {
  Kind kind;
  const char* name;
  const char* leak;  // the rule
};
constexpr KindText kKinds[] = {
    {Kind::kDevice, "device", "leak-device"},
    {Kind::kPd, "PD", "leak-pd"},
    {Kind::kTd, "thread domain", "leak-other"},
    {Kind::kMr, "MR", "leak-mr"},
    {Kind::kMw, "MW", "leak-mw"},
    {Kind::kDm, "device memory", "leak-dm"},
    {Kind::kAh, "address handle", "leak-ah"},
    {Kind::kCq, "CQ", "leak-cq"},
    {Kind::kChannel, "completion channel", "leak-channel"},
    {Kind::kSrq, "SRQ", "leak-srq"},
    {Kind::kQp, "QP", "leak-qp"},
    {Kind::kXrcd, "XRC domain", "leak-other"},
    {Kind::kWq, "WQ", "leak-other"},
    {Kind::kRwqTable, "WQ table", "leak-other"},
    {Kind::kFlow, "flow", "leak-other"},
    {Kind::kCounters, "counters", "leak-other"},
    {Kind::kCmId, "rdma_cm_id", "leak-cm-id"},
    {Kind::kCmChannel, "event channel", "leak-cm-channel"},
};

const findings::Rule& leak_rule(Kind kind) {
  for (const KindText& each : kKinds)
    if (const findings::Rule* const found = each.kind == kind ? findings::find_rule(each.leak) : nullptr;
        found != nullptr)
      return *found;
  return rule("leak-other");
}

// Up to three objects that were made of `object` and still exist.
std::string users_of(const Object& object, StackId* first) {
  std::string names;
  int count = 0;
  for (const Object* each : all_objects()) {
    if (!each->alive || is_parents(*each) ||
        std::find(each->uses.begin(), each->uses.end(), &object) == each->uses.end())
      continue;
    if (*first == 0) *first = each->created;
    if (++count <= 3) names += (names.empty() ? "" : ", ") + each->name;
  }
  return count > 3 ? names + text(" and %d more", count - 3) : names;
}

// ---- domains, windows, addresses ----

ibv_pd* alloc_pd(ibv_context* context) {
  const Stack stack = capture_stack();
  if (!is_usable(context, "ibv_alloc_pd", stack)) return errno = EINVAL, nullptr;
  ibv_pd* const pd = below().alloc_pd(context);
  made(Kind::kPd, pd, context, "ibv_alloc_pd", stack, {context}, "PD %u", pd != nullptr ? pd->handle : 0);
  return pd;
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  const Stack stack = capture_stack();
  ibv_td* const td = below().alloc_td(context, attr);
  made(Kind::kTd, td, context, "ibv_alloc_td", stack, {context}, "thread domain %p", static_cast<void*>(td));
  return td;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  const Stack stack = capture_stack();
  if (!is_usable(attr->pd, "ibv_alloc_parent_domain", stack)) return errno = EINVAL, nullptr;
  ibv_pd* const pd = below().alloc_parent_domain(context, attr);
  made(Kind::kPd, pd, context, "ibv_alloc_parent_domain", stack, {context, attr->pd, attr->td},
       "parent domain %u", pd != nullptr ? pd->handle : 0);
  return pd;
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  const Stack stack = capture_stack();
  if (!is_usable(pd, "ibv_alloc_mw", stack)) return errno = EINVAL, nullptr;
  compare_ability(findings::kWindows, "ibv_alloc_mw", stack);
  ibv_mw* const mw = below().alloc_mw(pd, type);
  made(Kind::kMw, mw, pd->context, "ibv_alloc_mw", stack, {pd}, "MW with rkey 0x%x",
       mw != nullptr ? mw->rkey : 0);
  return mw;
}

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  const Stack stack = capture_stack();
  if (!is_usable(pd, "ibv_create_ah", stack)) return errno = EINVAL, nullptr;
  ibv_ah* const ah = below().create_ah(pd, attr);
  made(Kind::kAh, ah, pd->context, "ibv_create_ah", stack, {pd}, "address handle %p", static_cast<void*>(ah));
  return ah;
}

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  const Stack stack = capture_stack();
  compare_ability(findings::kDeviceMemory, "ibv_alloc_dm", stack);
  ibv_dm* const dm = below().alloc_dm(context, attr);
  made(Kind::kDm, dm, context, "ibv_alloc_dm", stack, {context}, "device memory of %zu bytes", attr->length);
  return dm;
}

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
  const Stack stack = capture_stack();
  compare_ability(findings::kXrc, "ibv_open_xrcd", stack);
  ibv_xrcd* const xrcd = below().open_xrcd(context, attr);
  made(Kind::kXrcd, xrcd, context, "ibv_open_xrcd", stack, {context}, "XRC domain %p",
       static_cast<void*>(xrcd));
  return xrcd;
}

// ---- memory regions ----

struct NewRegion {
  uint64_t begin;
  uint64_t length;
  uintptr_t memory;
  int access;
  bool has_range;
};

std::string name_of(const Region& region) {
  return text("MR with lkey 0x%x, [0x%llx, +%llu)", region.lkey,
              static_cast<unsigned long long>(region.begin), static_cast<unsigned long long>(region.length));
}

ibv_mr* made_region(ibv_mr* mr, ibv_pd* pd, const char* verb, const Stack& stack, const NewRegion& wanted,
                    const void* also = nullptr) {
  const int error = errno;
  const Locked locked;
  if (mr == nullptr) {
    report_refusal(verb, error, stack);
    errno = error;
    return nullptr;
  }
  auto region = std::make_unique<Region>();
  region->begin = wanted.begin;
  region->length = wanted.length;
  region->memory = wanted.memory;
  region->access = wanted.access;
  // On demand, from 0 on: the whole address space (ibv_reg_mr(3), implicit ODP).
  region->has_range = wanted.has_range && wanted.length != SIZE_MAX;
  region->lkey = mr->lkey;
  region->rkey = mr->rkey;
  region->pd = find_object(pd);
  region->name = name_of(*region);
  if (region->pd != nullptr) region->uses.push_back(region->pd);
  if (const Object* const other = find_object(also); other != nullptr) region->uses.push_back(other);
  Region& entered = enter(std::move(region), mr, pd->context, stack);
  enter_region(entered);
  check_pinned(entered);
  watch_memory();
  return mr;
}

// The device writes to memory that it registers: pages of an outstanding send must not refuse it.
void unprotect_for_registration(const void* addr, size_t length) {
  const auto begin = reinterpret_cast<uintptr_t>(addr);
  const Locked locked;
  unprotect_memory(begin, begin + std::min(length, UINTPTR_MAX - begin));
}

ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  const Stack stack = capture_stack();
  if (!is_usable(pd, "ibv_reg_mr", stack)) return errno = EINVAL, nullptr;
  unprotect_for_registration(addr, length);
  return made_region(below().reg_mr(pd, addr, length, iova, access), pd, "ibv_reg_mr", stack,
                     {(access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova, length,
                      reinterpret_cast<uintptr_t>(addr), access, true});
}

ibv_mr* reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr) {
  const Stack stack = capture_stack();
  if (!is_usable(pd, "ibv_reg_mr_ex", stack)) return errno = EINVAL, nullptr;
  const auto& wanted = *reinterpret_cast<const pabi_mr_init_attr*>(attr);
  const bool plain = (wanted.comp_mask & ~uint64_t{PABI_REG_MR_IOVA}) == PABI_REG_MR_ADDR;
  const uintptr_t memory = plain ? reinterpret_cast<uintptr_t>(wanted.addr) : 0;
  const uint64_t begin = (wanted.comp_mask & PABI_REG_MR_IOVA) != 0 ? wanted.iova : memory;
  if (plain) unprotect_for_registration(wanted.addr, wanted.length);
  return made_region(below().reg_mr_ex(pd, attr), pd, "ibv_reg_mr_ex", stack,
                     {begin, wanted.length, memory, wanted.access, true});
}

ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  const Stack stack = capture_stack();
  return made_region(below().reg_dmabuf_mr(pd, offset, length, iova, fd, access), pd, "ibv_reg_dmabuf_mr",
                     stack, {iova, length, 0, access, true});
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) {
  const Stack stack = capture_stack();
  if (!is_usable(dm, "ibv_reg_dm_mr", stack)) return errno = EINVAL, nullptr;
  return made_region(below().reg_dm_mr(pd, dm, offset, length, access), pd, "ibv_reg_dm_mr", stack,
                     {0, length, 0, static_cast<int>(access), true}, dm);
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
  const Stack stack = capture_stack();
  return made_region(below().alloc_null_mr(pd), pd, "ibv_alloc_null_mr", stack,
                     {0, 0, 0, IBV_ACCESS_LOCAL_WRITE, false});
}

ibv_mr* import_mr(ibv_pd* pd, uint32_t handle) {
  const Stack stack = capture_stack();
  return made_region(below().import_mr(pd, handle), pd, "ibv_import_mr", stack,
                     {0, 0, 0, IBV_ACCESS_LOCAL_WRITE, false});
}

int rereg_mr(pabi_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) {
  const Stack stack = capture_stack();
  if (!is_usable(mr, "ibv_rereg_mr", stack)) return errno = EINVAL;
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) unprotect_for_registration(addr, length);
  const int error = below().rereg_mr(mr, flags, pd, addr, length, access);
  const Locked locked;
  if (error != 0) return report_refusal("ibv_rereg_mr", error, stack), error;
  auto* const region = find<Region>(mr);
  if (region == nullptr) return 0;
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
    region->begin = region->memory = reinterpret_cast<uintptr_t>(addr);
    region->length = length;
    region->name = name_of(*region);
    enter_region(*region);
  }
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) region->access = access;
  if (const Object* const other = find_object(pd);
      (flags & IBV_REREG_MR_CHANGE_PD) != 0 && other != nullptr) {
    region->pd = other;
    region->uses = {other};
  }
  return 0;
}

void report_outstanding_use(const Region& region, const Stack& stack) {
  const Request* const request = find_use_of(region);
  if (request == nullptr) return;
  report(rule("mr-in-use"),
         text("ibv_dereg_mr: %s: a %s with wr_id 0x%llx uses it", region.name.c_str(), kind_of(*request),
              static_cast<unsigned long long>(request->wr_id)),
         {{"deregistered here", keep_stack(stack)},
          {"posted here", request->posted},
          {"registered here", region.created}});
}

int dereg_mr(pabi_mr* mr) {
  const Stack stack = capture_stack();
  {
    const Locked locked;
    if (const auto* const region = find<Region>(mr); region != nullptr && region->alive)
      report_outstanding_use(*region, stack);
  }
  const int error = destroy_object(mr, "ibv_dereg_mr", stack, [](const void* handle) {
    return below().dereg_mr(static_cast<pabi_mr*>(const_cast<void*>(handle)));
  });
  if (error != 0) return error;
  const Locked locked;
  if (const auto* const region = find<Region>(mr); region != nullptr) {
    forget_bytes(*region);
    unprotect_memory(region->memory, region->memory + region->length);
  }
  return 0;
}

void unimport_mr(ibv_mr* mr) {
  below().unimport_mr(mr);
  const Locked locked;
  if (Object* const object = find_object(mr); object != nullptr) end_object(*object, 0);
}

// ---- what ends an object ----

template <typename Type>
Type* as(const void* handle) {
  return static_cast<Type*>(const_cast<void*>(handle));
}

#define VERBENA_ENDS(name, verb, type)                                                        \
  int name(type* object) {                                                                    \
    return destroy_object(object, verb, capture_stack(),                                      \
                          [](const void* handle) { return below().name(as<type>(handle)); }); \
  }
VERBENA_ENDS(dealloc_td, "ibv_dealloc_td", ibv_td)
VERBENA_ENDS(dealloc_mw, "ibv_dealloc_mw", ibv_mw)
VERBENA_ENDS(free_dm, "ibv_free_dm", ibv_dm)
VERBENA_ENDS(destroy_ah, "ibv_destroy_ah", ibv_ah)
VERBENA_ENDS(close_xrcd, "ibv_close_xrcd", ibv_xrcd)
#undef VERBENA_ENDS

int dealloc_pd(ibv_pd* pd) {
  free_shadows(pd);
  return destroy_object(pd, "ibv_dealloc_pd", capture_stack(),
                        [](const void* handle) { return below().dealloc_pd(as<ibv_pd>(handle)); });
}

void free_context(ibv_context* context) {
  const Stack stack = capture_stack();
  {
    const Locked locked;
    Object* const device = find_object(context);
    if (device != nullptr && device->alive) {
      StackId first = 0;
      const std::string users = users_of(*device, &first);
      if (!users.empty())
        report(rule("close-with-objects"),
               text("ibv_close_device: %s: these exist: %s", device->name.c_str(), users.c_str()),
               {{"closed here", keep_stack(stack)}, {"the first of them was made here", first}});
      end_object(*device, keep_stack(stack));
    }
  }
  const KeepingMemory keeping(context);
  below().free_context(context);
}

// What is not destroyed at exit. Runs as a destructor of the library, after the program's own functions of
// atexit(3).
__attribute__((destructor)) void report_leaks() {
  report_child_changes();
  const Locked locked;
  for (Object* const object : all_objects()) {
    if (!object->alive || is_parents(*object)) continue;
    object->said_leak = true;
    report_leak(leak_rule(object->kind), object->name + " exists at exit", object->created, object->number);
  }
}

}  // namespace

bool is_usable(const void* handle, const char* verb, const Stack& stack) {
  if (handle == nullptr) return true;
  const Locked locked;
  const Object* const object = find_object(handle);
  if (object == nullptr) return true;
  if (!object->alive) {
    report(rule("use-after-destroy"), text("%s: %s was destroyed before", verb, object->name.c_str()),
           {{"used here", keep_stack(stack)},
            {"destroyed here", object->destroyed},
            {"made here", object->created}});
    return false;
  }
  if (is_parents(*object))
    report(rule("use-after-fork"),
           text("%s: %s was made by process %d, before fork", verb, object->name.c_str(), object->process),
           {{"used here", keep_stack(stack)}, {"made here", object->created}});
  return true;
}

bool is_usable(const void* handle, const char* verb) {
  {
    const Locked locked;
    const Object* const object = find_object(handle);
    if (object == nullptr || (object->alive && !is_parents(*object))) return true;
  }
  return is_usable(handle, verb, capture_stack());
}

void report_refusal(const char* verb, int error, const Stack& stack) {
  std::string reason = take_reason();
  if (error != EINVAL && error != EPERM && error != EFAULT)
    return;  // a program may ask what the device can do
  if (reason.empty()) reason = text("%s: %s", verb, strerror(error));
  report(rule("call-refused"), reason, {{"called here", keep_stack(stack)}});
}

void made(Kind kind, const void* handle, const ibv_context* context, const char* verb, const Stack& stack,
          std::initializer_list<const void*> uses, const char* name, ...) {
  const int error = errno;
  {
    const Locked locked;
    if (handle == nullptr) {
      report_refusal(verb, error, stack);
    } else {
      auto object = std::make_unique<Object>(kind);
      char buffer[96];
      va_list arguments;
      va_start(arguments, name);
      vsnprintf(buffer, sizeof buffer, name, arguments);
      va_end(arguments);
      object->name = buffer;
      for (const void* used : uses)
        if (const Object* const other = find_object(used); other != nullptr) object->uses.push_back(other);
      enter_object(std::move(object), handle, context, stack);
    }
  }
  errno = error;
}

int destroy_object(const void* handle, const char* verb, const Stack& stack, int (*destroy)(const void*)) {
  {
    const Locked locked;
    const Object* const object = find_object(handle);
    if (object != nullptr && !object->alive) {
      report(rule("double-destroy"), text("%s: %s was destroyed before", verb, object->name.c_str()),
             {{"destroyed again here", keep_stack(stack)},
              {"destroyed here", object->destroyed},
              {"made here", object->created}});
      return errno = EINVAL;
    }
  }
  int error;
  {
    const KeepingMemory keeping(handle);
    const Destroying waiting(handle, stack);
    error = destroy(handle);
  }
  const int before = errno;
  {
    const Locked locked;
    Object* const object = find_object(handle);
    if (object == nullptr) return error;
    if (error == 0) {
      end_object(*object, keep_stack(stack));
    } else if (error == EBUSY) {
      StackId user = 0;
      const std::string users = users_of(*object, &user);
      report(rule("destroy-busy"),
             text("%s: %s is in use%s%s", verb, object->name.c_str(), users.empty() ? "" : " by ",
                  users.c_str()),
             {{"destroyed here", keep_stack(stack)},
              {"what uses it was made here", user},
              {"made here", object->created}});
    }
  }
  errno = before;
  return error;
}

void enter_device(ibv_context* context) {
  const char* const name = context->device != nullptr ? context->device->name : "";
  made(Kind::kDevice, context, context, "ibv_open_device", capture_stack(), {}, "device %s", name);
  const Locked locked;
  report_device(name);
}

void check_objects(rdma_core::ContextOps& table) {
  table.alloc_pd = alloc_pd;
  table.alloc_td = alloc_td;
  table.alloc_parent_domain = alloc_parent_domain;
  table.alloc_mw = alloc_mw;
  table.create_ah = create_ah;
  table.alloc_dm = alloc_dm;
  table.open_xrcd = open_xrcd;
  table.reg_mr = reg_mr;
  table.reg_mr_ex = reg_mr_ex;
  table.reg_dmabuf_mr = reg_dmabuf_mr;
  table.reg_dm_mr = reg_dm_mr;
  table.alloc_null_mr = alloc_null_mr;
  table.import_mr = import_mr;
  table.rereg_mr = rereg_mr;
  table.dereg_mr = dereg_mr;
  table.unimport_mr = unimport_mr;
  table.dealloc_pd = dealloc_pd;
  table.dealloc_td = dealloc_td;
  table.dealloc_mw = dealloc_mw;
  table.free_dm = free_dm;
  table.destroy_ah = destroy_ah;
  table.close_xrcd = close_xrcd;
  table.free_context = free_context;
}

}  // namespace verbena::check
