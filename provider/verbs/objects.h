// SPDX-License-Identifier: BSD-2-Clause
//
// The objects of a program. Each but a context begins with the structure of libibverbs, so that the program's
// pointer is the address of the object. to_xxx() is the only conversion.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "emulator.h"
#include "rdma_core/layout.h"
#include "rdma_core/structures.h"

namespace verbena::verbs {

struct VerbsPd;

struct VerbsContext {
  // libibverbs' own part, struct verbs_context. It ends with the ibv_context that the program has, and has
  // grown at its beginning: so its end, not its beginning, has a fixed place.
  alignas(ibv_context) char room[rdma_core::kLargestContextOffset];
  ibv_context base;
  Context* emulated;
  std::atomic<VerbsPd*> unimported;  // a list by `next`; freed with the context
  VerbsContext* next_left;           // a closed context that still has objects
};

struct ParentDomain;  // domain.h

struct VerbsPd {
  ibv_pd base;
  Pd* emulated;                          // of a parent domain: that of the PD it contains
  ParentDomain* parent;                  // nullptr: an ordinary PD
  std::atomic<uint32_t> users;           // objects that refer to it, unknown to libibverbs (domain.h)
  std::atomic<uint32_t> parent_domains;  // of these
  VerbsPd* next;                         // in VerbsContext::unimported
};

struct VerbsMr {
  pabi_mr base;
  Mr* emulated;
};

struct VerbsMw {
  ibv_mw base;
  Mw* emulated;
};

struct VerbsDm {
  ibv_dm base;
  Dm* emulated;
};

using VerbsAh = AhOfProgram;  // the emulator reads its handle from requests

using VerbsCounters = CountersOfProgram;  // likewise, from the specifications of a flow

struct VerbsWq {
  ibv_wq base;
  Wq* emulated;
};

struct VerbsRwqTable {
  ibv_rwq_ind_table base;
  RwqTable* emulated;
};

struct VerbsFlow {
  ibv_flow base;
  SteeredFlow* emulated;
};

struct VerbsCq {
  union {
    ibv_cq cq;
    ibv_cq_ex cq_ex;
  } base;
  Cq* emulated;
  VerbsPd* domain;   // the parent domain it was created in, or nullptr
  bool from_domain;  // its memory is the domain's
  bool is_extended;  // of ibv_create_cq_ex(3)
};

struct VerbsXrcd {
  ibv_xrcd base;
  Xrcd* emulated;
};

struct VerbsSrq {
  ibv_srq base;
  Srq* emulated;
  bool from_domain;  // its memory is its PD's, which is a parent domain
};
struct WrArena;  // wr.h

struct VerbsQp {
  union {
    ibv_qp qp;
    ibv_qp_ex qp_ex;
    char room[sizeof(ibv_qp_ex) + 80];  // the mark of an extended QP lies behind its ibv_qp_ex (qp_mark.h)
  } base;
  Qp* emulated;
  WrArena* arena;    // of a QP with ibv_wr_*(3)
  bool from_domain;  // its memory is its PD's, which is a parent domain
};

inline VerbsContext* to_context(ibv_context* context) {
  return reinterpret_cast<VerbsContext*>(reinterpret_cast<char*>(context) - offsetof(VerbsContext, base));
}
inline VerbsPd* to_pd(ibv_pd* pd) { return reinterpret_cast<VerbsPd*>(pd); }
inline VerbsMr* to_mr(pabi_mr* mr) { return reinterpret_cast<VerbsMr*>(mr); }
inline VerbsMw* to_mw(ibv_mw* mw) { return reinterpret_cast<VerbsMw*>(mw); }
inline VerbsDm* to_dm(ibv_dm* dm) { return reinterpret_cast<VerbsDm*>(dm); }
inline VerbsWq* to_wq(ibv_wq* wq) { return reinterpret_cast<VerbsWq*>(wq); }
inline VerbsRwqTable* to_rwq_table(ibv_rwq_ind_table* table) {
  return reinterpret_cast<VerbsRwqTable*>(table);
}
inline VerbsFlow* to_flow(ibv_flow* flow) { return reinterpret_cast<VerbsFlow*>(flow); }
inline VerbsCounters* to_counters(ibv_counters* counters) {
  return reinterpret_cast<VerbsCounters*>(counters);
}
inline VerbsAh* to_ah(ibv_ah* ah) { return reinterpret_cast<VerbsAh*>(ah); }
inline VerbsCq* to_cq(ibv_cq* cq) { return reinterpret_cast<VerbsCq*>(cq); }
inline VerbsXrcd* to_xrcd(ibv_xrcd* xrcd) { return reinterpret_cast<VerbsXrcd*>(xrcd); }
inline VerbsSrq* to_srq(ibv_srq* srq) { return reinterpret_cast<VerbsSrq*>(srq); }
inline VerbsQp* to_qp(ibv_qp* qp) { return reinterpret_cast<VerbsQp*>(qp); }

static_assert(offsetof(VerbsMw, base) == 0 && offsetof(VerbsDm, base) == 0);
static_assert(offsetof(VerbsContext, base) == rdma_core::kLargestContextOffset);
static_assert(offsetof(VerbsPd, base) == 0 && offsetof(VerbsMr, base) == 0 && offsetof(VerbsAh, base) == 0 &&
              offsetof(VerbsCq, base) == 0 && offsetof(VerbsSrq, base) == 0 &&
              offsetof(VerbsXrcd, base) == 0 && offsetof(VerbsQp, base) == 0);

// Allocates a zeroed object, freed with free(3). nullptr and ENOMEM: no memory.
template <typename Object>
Object* allocate() {
  return static_cast<Object*>(calloc(1, sizeof(Object)));
}

// A refusal by a function that returns an object: frees the unfinished object and sets errno.
template <typename Object>
std::nullptr_t refuse(Object* object, int error) {
  free(object);
  errno = error;
  return nullptr;
}
inline std::nullptr_t refuse(int error) {
  errno = error;
  return nullptr;
}

// A refusal by a function that returns a number: "0 on success, or the value of errno on failure". errno has
// that value as well, as after a command that the kernel refused.
inline int answer(int error) {
  if (error != 0) errno = error;
  return error;
}

}  // namespace verbena::verbs
