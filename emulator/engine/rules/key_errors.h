// SPDX-License-Identifier: BSD-2-Clause
//
// The vendor_err of a completion whose key was refused (memory_table.h, translate()).
#pragma once

#include "adapter/memory_table.h"
#include "engine/rules/send_rules.h"

namespace verbena {

constexpr VendorError local_key_error(KeyCheck check) {
  constexpr VendorError kErrors[] = {VendorError::none, VendorError::lkey_unknown, VendorError::lkey_other_pd,
                                     VendorError::lkey_no_local_write, VendorError::lkey_out_of_range,
                                     VendorError::lkey_unknown};
  return kErrors[static_cast<unsigned>(check)];
}

constexpr VendorError remote_key_error(KeyCheck check) {
  constexpr VendorError kErrors[] = {VendorError::none, VendorError::rkey_unknown, VendorError::rkey_other_pd,
                                     VendorError::rkey_no_right, VendorError::rkey_out_of_range,
                                     VendorError::rkey_other_qp};
  return kErrors[static_cast<unsigned>(check)];
}

}  // namespace verbena
