// SPDX-License-Identifier: BSD-2-Clause
//
// Registration: libibverbs loads the library (dynamic_driver.c), whose constructor registers the driver.
// Nothing starts before a device is opened.
#include <cstdio>

#include "rdma_core/layout.h"
#include "rdma_core/libibverbs.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {
namespace {

// core_support stays 0, so libibverbs drops the optional access flags (IBV_ACCESS_RELAXED_ORDERING) before
// reg_mr. A device that never reorders would ignore them.
pabi_device* alloc_device(pabi_sysfs_device*) { return allocate<pabi_device>(); }
void uninit_device(pabi_device* device) { free(device); }

// A real adapter that a user has named "verbena", without a number, is not ours.
constexpr const char* kNamePattern = "rdma_device:Nverbena[0-9]*";
const pabi_match kMatches[] = {
    {.driver_data = nullptr,
     .u = {.modalias = kNamePattern},
     .vendor = 0,
     .device = 0,
     .kind = PABI_MATCH_MODALIAS},
    {.driver_data = nullptr, .u = {.modalias = nullptr}, .vendor = 0, .device = 0, .kind = PABI_MATCH_END},
};

const pabi_device_ops kDeviceOps = {
    .name = "verbena",
    .match_min_abi_version = 1,
    .match_max_abi_version = 1,
    .match_table = kMatches,
    .static_providers = nullptr,
    .match_device = nullptr,
    .alloc_context = alloc_context,
    .import_context = import_context,
    .alloc_device = alloc_device,
    .uninit_device = uninit_device,
};

const pabi_device_ops_28 kDeviceOps28 = {
    .name = kDeviceOps.name,
    .match_min_abi_version = kDeviceOps.match_min_abi_version,
    .match_max_abi_version = kDeviceOps.match_max_abi_version,
    .match_table = kMatches,
    .static_providers = nullptr,
    .match_device = nullptr,
    .alloc_context = alloc_context,
    .alloc_device = alloc_device,
    .uninit_device = uninit_device,
};

__attribute__((constructor)) void register_driver() {
  const rdma_core::Layout* layout = rdma_core::installed_layout();
  if (layout == nullptr) {
    fprintf(stderr, "verbena: %s\n", rdma_core::refusal(rdma_core::process_has_symbol));
    return;
  }
  const bool has_import = layout->release >= 31;
  rdma_core::libibverbs().register_driver(has_import ? static_cast<const void*>(&kDeviceOps) : &kDeviceOps28);
}

}  // namespace
}  // namespace verbena::verbs
