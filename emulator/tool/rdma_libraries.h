// SPDX-License-Identifier: BSD-2-Clause
//
// The rdma-core that programs of this environment get.
#pragma once

#include <string>

#include "fabric/installation.h"
#include "tool/elf_file.h"

namespace verbena::tool {

// The path at which ld.so finds `name`. "", and *problem says why, if it does not.
std::string locate_library(const char* name, std::string* problem);

// The provider ABI, "34" for instance, from the version of the symbols that libibverbs exports to its
// providers. "": it is no libibverbs.
std::string provider_abi(const ElfFile& library);

// The newest public symbol version of a libibverbs.
std::string latest_version(const ElfFile& library);

// What libibverbs loads: the driver with the name of its ABI.
std::string provider_path(const Installation& installation, const std::string& abi);

// One sentence if the installed libibverbs has an ABI that this Verbena does not know: libibverbs itself
// would only say that it cannot load the driver. "": it is known, or there is neither a libibverbs nor a
// provider.
std::string unknown_rdma_core(const Installation& installation);

}  // namespace verbena::tool
