// SPDX-License-Identifier: BSD-2-Clause
//
// The kernel finds an object by the handle in the program's structure (drivers/infiniband/core/uverbs_cmd.c),
// and refuses a handle that it does not know. Here the structure itself leads to the object. So that a
// damaged structure is noticed as early as there, each verb that is a command to the kernel compares the
// handle with the object's own: another object's handle is refused, too. The kernel knows a handle in the file
// that the object was made in (rdma_lookup_get_uobject(), rdma_core.c), so the context is compared as well.
#pragma once

#include "emulator.h"
#include "observe/log.h"
#include "verbs/objects.h"

namespace verbena::verbs {

// No verb names an address handle to the kernel except ibv_destroy_ah(3).
inline constexpr uint32_t kAhHandle = 0;

struct Named {
  const char* what;
  uint32_t given;
  uint32_t own;
  bool is_here = true;  // in the file of the context that the structure names
};

template <typename Structure, typename Emulated>
Named named(const char* what, const Structure& given, uint32_t (*handle)(const Emulated*),
            const Emulated* emulated) {
  return {what, given.handle, handle(emulated), is_of(emulated, to_context(given.context)->emulated)};
}

inline Named named(ibv_pd* pd) { return named("PD", *pd, pd_handle, to_pd(pd)->emulated); }
inline Named named(pabi_mr* mr) { return named("MR", mr->ibv_mr, mr_handle, to_mr(mr)->emulated); }
inline Named named(ibv_mw* mw) { return named("MW", *mw, mw_handle, to_mw(mw)->emulated); }
inline Named named(ibv_dm* dm) { return named("DM", *dm, dm_handle, to_dm(dm)->emulated); }
inline Named named(ibv_ah* ah) { return {"AH", ah->handle, kAhHandle}; }
inline Named named(ibv_cq* cq) { return named("CQ", *cq, cq_handle, to_cq(cq)->emulated); }
inline Named named(ibv_srq* srq) { return named("SRQ", *srq, srq_handle, to_srq(srq)->emulated); }
inline Named named(ibv_qp* qp) { return named("QP", *qp, qp_handle, to_qp(qp)->emulated); }

inline Named named(ibv_wq* wq) { return named("WQ", *wq, wq_handle, to_wq(wq)->emulated); }

inline bool is_own(const char* verb, const Named& object) {
  if (object.given == object.own && object.is_here) return true;
  VERBENA_WARN(unknown_handle, "%s: %s with handle %u: %s", verb, object.what, object.given,
               object.is_here ? "the context has no such object" : "it was made in another context");
  return false;
}

// For a verb that uses objects: 0 or EINVAL, as uobj_get_obj_read() and its callers. nullptr: no object.
template <typename... Objects>
int check_handles(const char* verb, Objects*... objects) {
  return ((objects == nullptr || is_own(verb, named(objects))) && ...) ? 0 : EINVAL;
}

// For a verb that ends an object: 0 or ENOENT, as uobj_perform_destroy().
template <typename Object>
int check_end(const char* verb, Object* object) {
  return is_own(verb, named(object)) ? 0 : ENOENT;
}

}  // namespace verbena::verbs
