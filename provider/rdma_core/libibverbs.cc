// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_core/libibverbs.h"

#include <dlfcn.h>

namespace verbena::rdma_core {
namespace {

template <typename Function>
void look_up(const char* name, const Layout& layout, Function* out) {
  *out = reinterpret_cast<Function>(dlvsym(RTLD_DEFAULT, name, layout.private_version));
}

Libibverbs look_up_all(const Layout& layout) {
  Libibverbs found = {};
  look_up(layout.register_driver, layout, &found.register_driver);
  look_up("_verbs_init_and_alloc_context", layout, &found.init_and_alloc_context);
  look_up("verbs_set_ops", layout, &found.set_ops);
  look_up("verbs_uninit_context", layout, &found.uninit_context);
  return found;
}

}  // namespace

const Libibverbs& libibverbs() {
  static const Libibverbs found = look_up_all(*installed_layout());
  return found;
}

}  // namespace verbena::rdma_core
