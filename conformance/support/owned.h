// SPDX-License-Identifier: BSD-2-Clause
//
// Owners of verbs objects: destroyed at the end of the scope, or earlier by destroy(), which returns the
// verb's result.
#pragma once

#include <infiniband/verbs.h>

#include <utility>

#include "suite/trace.h"

namespace conformance {

template <typename Object, typename Destroyer>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Object* object) : object_(object) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() {
    if (object_ != nullptr) Destroyer::destroy(object_);
  }

  Object* get() const { return object_; }
  Object* operator->() const { return object_; }
  operator Object*() const { return object_; }  // NOLINT: verbs take the pointer

  // Releases ownership.
  Object* release() { return std::exchange(object_, nullptr); }

  // The object stays owned when the verb refuses.
  int destroy() {
    const int result = Destroyer::destroy(object_);
    if (result == 0) object_ = nullptr;
    return result;
  }

 private:
  Object* object_ = nullptr;
};

// Some of these verbs are static inline functions, which cannot be template arguments of a shared type.
#define CONFORMANCE_OWNED(name, object, verb)                         \
  struct name##Destroyer {                                            \
    static int destroy(object* destroyed) { return verb(destroyed); } \
  };                                                                  \
  using name = Owned<object, name##Destroyer>;

CONFORMANCE_OWNED(Pd, ibv_pd, ibv_dealloc_pd)
CONFORMANCE_OWNED(Mr, ibv_mr, ibv_dereg_mr)
CONFORMANCE_OWNED(Mw, ibv_mw, ibv_dealloc_mw)
CONFORMANCE_OWNED(Cq, ibv_cq, ibv_destroy_cq)
CONFORMANCE_OWNED(Channel, ibv_comp_channel, ibv_destroy_comp_channel)
CONFORMANCE_OWNED(Qp, ibv_qp, ibv_destroy_qp)
CONFORMANCE_OWNED(Srq, ibv_srq, ibv_destroy_srq)
CONFORMANCE_OWNED(Ah, ibv_ah, ibv_destroy_ah)
CONFORMANCE_OWNED(Xrcd, ibv_xrcd, ibv_close_xrcd)
CONFORMANCE_OWNED(Td, ibv_td, ibv_dealloc_td)
CONFORMANCE_OWNED(Dm, ibv_dm, ibv_free_dm)
#undef CONFORMANCE_OWNED

}  // namespace conformance
