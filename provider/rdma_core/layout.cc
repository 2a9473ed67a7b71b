// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_core/layout.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>

#include "rdma_core/layouts.h"

namespace verbena::rdma_core {
namespace {

#define VERBENA_LAYOUT(release, abi, function, version, fields) \
  {release,                                                     \
   abi,                                                         \
   "verbs_register_driver_" #abi,                               \
   "IBVERBS_PRIVATE_" #abi,                                     \
   function,                                                    \
   version,                                                     \
   (PABI_CONTEXT_FIELDS + (fields)) * sizeof(void*)},
constexpr Layout kLayouts[] = {PABI_LAYOUTS(VERBENA_LAYOUT)};
#undef VERBENA_LAYOUT

constexpr bool within_room(const Layout& layout) { return layout.context_offset <= kLargestContextOffset; }
static_assert(std::all_of(std::begin(kLayouts), std::end(kLayouts), within_room));

struct Releases {
  int first;
  int last;
};
constexpr int kOpen = 1 << 16;
constexpr Releases ALWAYS{0, kOpen}, BEFORE_33{0, 32}, SINCE_31{31, kOpen}, SINCE_34{34, kOpen},
    SINCE_35{35, kOpen}, SINCE_36{36, kOpen}, SINCE_59{59, kOpen}, SINCE_62{62, kOpen}, SINCE_64{64, kOpen};

// The linker defines each symbol version as an absolute symbol of the same name.
bool is_newer_than_all(HasSymbol has_symbol) {
  return has_symbol(PABI_UNKNOWN_VERSION, PABI_UNKNOWN_VERSION);
}

}  // namespace

// RTLD_DEFAULT includes the libraries that this library depends on, even if the program has loaded them with
// RTLD_LOCAL. The address of a symbol version (0) does not tell whether it exists; dlerror(3) does.
bool process_has_symbol(const char* symbol, const char* version) {
  dlerror();
  dlvsym(RTLD_DEFAULT, symbol, version);
  return dlerror() == nullptr;
}

const Layout* layout_of(HasSymbol has_symbol) {
  if (is_newer_than_all(has_symbol)) return nullptr;
  const Layout* found = nullptr;
  for (const Layout& layout : kLayouts)
    if (has_symbol(layout.register_driver, layout.private_version) &&
        has_symbol(layout.newest_function, layout.newest_version))
      found = &layout;
  return found;
}

const char* refusal(HasSymbol has_symbol) {
  const Layout& oldest = kLayouts[0];
  if (!is_newer_than_all(has_symbol) && has_symbol(oldest.register_driver, oldest.private_version))
    return "this libibverbs is older than rdma-core 28, so Verbena offers no device: install a newer "
           "rdma-core, or put one first in LD_LIBRARY_PATH";
  return "this libibverbs is newer than rdma-core 64, so Verbena offers no device: install a newer Verbena, "
         "or "
         "put the libraries of rdma-core 64 first in LD_LIBRARY_PATH";
}

const Layout* installed_layout() {
  static const Layout* const layout = layout_of(process_has_symbol);
  return layout;
}

std::array<Operation, kMostOperations> operations_of(const Layout& layout, const ContextOps& ops) {
  std::array<Operation, kMostOperations> table = {};
  size_t next = 0;
  const auto place = [&](const Releases& releases, Operation operation) {
    if (layout.release >= releases.first && layout.release <= releases.last) table[next++] = operation;
  };
#define VERBENA_PLACE(releases, result, name, arguments) \
  place(releases, reinterpret_cast<Operation>(ops.name));
  PABI_OPERATIONS(VERBENA_PLACE)
#undef VERBENA_PLACE
  return table;
}

}  // namespace verbena::rdma_core
