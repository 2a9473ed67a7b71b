// SPDX-License-Identifier: BSD-2-Clause
//
// Which private ABI the libibverbs of this process has (layouts.h), and the structures of a provider in the
// form that this ABI wants. One provider serves all of them: it chooses when it is loaded.
#pragma once

#include <array>
#include <cstddef>

#include "rdma_core/operations.h"
#include "rdma_core/structures.h"

namespace verbena::rdma_core {

struct Layout {
  int release;                  // of rdma-core, the first one with this layout
  int abi;                      // NN of IBVERBS_PRIVATE_NN and -rdmavNN.so
  const char* register_driver;  // "verbs_register_driver_NN"
  const char* private_version;  // "IBVERBS_PRIVATE_NN"
  const char* newest_function;  // the library has this function ...
  const char* newest_version;   // ... in this symbol version
  size_t context_offset;        // of `context` in struct verbs_context
};

inline constexpr size_t kLargestContextOffset = 46 * sizeof(void*);  // of all layouts

// Does the libibverbs of this process have `symbol` in `version`?
using HasSymbol = bool (*)(const char* symbol, const char* version);

// nullptr: refuse it, with refusal().
const Layout* layout_of(HasSymbol has_symbol);

// One sentence that says why there is no device, and what to do.
const char* refusal(HasSymbol has_symbol);

// For the libibverbs that this library is linked with at run time. Any thread may call it.
bool process_has_symbol(const char* symbol, const char* version);
const Layout* installed_layout();

// All operations of all releases, by name. Null: the context does not have the operation, and libibverbs
// answers EOPNOTSUPP.
struct ContextOps {
#define VERBENA_MEMBER(releases, result, name, arguments) result(*name) arguments = nullptr;
  PABI_OPERATIONS(VERBENA_MEMBER)
#undef VERBENA_MEMBER
};

using Operation = void (*)();
constexpr size_t kMostOperations = sizeof(ContextOps) / sizeof(Operation);

// The struct verbs_context_ops of `layout`: its operations in their order. The rest of the array is null.
std::array<Operation, kMostOperations> operations_of(const Layout& layout, const ContextOps& ops);

}  // namespace verbena::rdma_core
