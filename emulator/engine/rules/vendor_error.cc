// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/vendor_error.h"

#include <iterator>

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

const char* name_of_status(uint32_t status) noexcept {
  constexpr const char* kNames[] = {
      "SUCCESS",          "LOC_LEN_ERR",       "LOC_QP_OP_ERR",     "LOC_EEC_OP_ERR",
      "LOC_PROT_ERR",     "WR_FLUSH_ERR",      "MW_BIND_ERR",       "BAD_RESP_ERR",
      "LOC_ACCESS_ERR",   "REM_INV_REQ_ERR",   "REM_ACCESS_ERR",    "REM_OP_ERR",
      "RETRY_EXC_ERR",    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR",  "REM_INV_RD_REQ_ERR",
      "REM_ABORT_ERR",    "INV_EECN_ERR",      "INV_EEC_STATE_ERR", "FATAL_ERR",
      "RESP_TIMEOUT_ERR", "GENERAL_ERR"};
  return status < std::size(kNames) ? kNames[status] : "unknown";
}

}  // namespace verbena
