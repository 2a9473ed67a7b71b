// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/vendor_error.h"

namespace verbena {
namespace {

constexpr ibv_wc_status kNoReceive = IBV_WC_SUCCESS;

constexpr VendorErrorText kVendorErrors[] = {
#define REFUSAL(...)
#define COMPLETION(code, status, receive, event, rule, source, remedy) \
  {VendorError::code, status, receive, event, #code, rule},
#include "observe/diagnostics.def"
#undef COMPLETION
#undef REFUSAL
};

constexpr VendorErrorText kUnknownError = {
    VendorError::none, IBV_WC_GENERAL_ERR, kNoReceive, kNoEvent, "unknown", "no vendor_err of this adapter"};

}  // namespace

const VendorErrorText* find_vendor_error(uint32_t vendor_err) noexcept {
  for (const VendorErrorText& row : kVendorErrors)
    if (static_cast<uint32_t>(row.error) == vendor_err) return &row;
  return &kUnknownError;
}

}  // namespace verbena
