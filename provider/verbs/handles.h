// SPDX-License-Identifier: BSD-2-Clause
//
// The kernel finds an object by the handle in the program's structure (drivers/infiniband/core/uverbs_cmd.c),
// and refuses a handle that it does not know. Here the structure itself leads to the object. So that a
// damaged structure is noticed as early as there, each verb that is a command to the kernel compares the
// handle with the object's own: another object's handle is refused, too.
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
};

inline Named named(ibv_pd* pd) { return {"PD", pd->handle, pd_handle(to_pd(pd)->emulated)}; }
inline Named named(pabi_mr* mr) { return {"MR", mr->ibv_mr.handle, mr_handle(to_mr(mr)->emulated)}; }
inline Named named(ibv_mw* mw) { return {"MW", mw->handle, mw_handle(to_mw(mw)->emulated)}; }
inline Named named(ibv_dm* dm) { return {"DM", dm->handle, dm_handle(to_dm(dm)->emulated)}; }
inline Named named(ibv_ah* ah) { return {"AH", ah->handle, kAhHandle}; }
inline Named named(ibv_cq* cq) { return {"CQ", cq->handle, cq_handle(to_cq(cq)->emulated)}; }
inline Named named(ibv_srq* srq) { return {"SRQ", srq->handle, srq_handle(to_srq(srq)->emulated)}; }
inline Named named(ibv_qp* qp) { return {"QP", qp->handle, qp_handle(to_qp(qp)->emulated)}; }

inline Named named(ibv_wq* wq) { return {"WQ", wq->handle, wq_handle(to_wq(wq)->emulated)}; }

inline bool is_own(const char* verb, const Named& object) {
  if (object.given == object.own) return true;
  VERBENA_WARN(unknown_handle, "%s: %s with handle %u: there is no such %s", verb, object.what, object.given,
               object.what);
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
