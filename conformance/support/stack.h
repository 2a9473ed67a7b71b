// SPDX-License-Identifier: BSD-2-Clause
//
// What a device is driven by: the kernel's driver, the provider library, libibverbs and librdmacm, each with
// its version. Found out without knowing any driver.
#pragma once

#include "suite/facts.h"
#include "support/device.h"

namespace conformance {

// How a fact of stack_of() begins where it stands beside those of the device.
constexpr const char* stack_prefix = "stack.";

// The file of the provider library; empty: unknown.
std::string provider_file(const Device& device);

// driver, driver_version, firmware, command_file, rdma_core, libibverbs, librdmacm, provider.
Facts stack_of(const Device& device);

}  // namespace conformance
