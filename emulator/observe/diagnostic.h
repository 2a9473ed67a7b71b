// SPDX-License-Identifier: BSD-2-Clause
//
// The table of everything that Verbena reports (diagnostics.def).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace verbena {

// log.h takes one of these, so that no line is written without a row of the table.
enum class DiagnosticCode : uint16_t {
#define COMPLETION(code, status, receive, event, rule, source, remedy) code,
#define REFUSAL(code, errors, rule, source, remedy) code,
#include "observe/diagnostics.def"
#undef REFUSAL
#undef COMPLETION
};

struct Diagnostic {
  std::string_view code;
  bool is_completion;       // the name of a vendor_err (engine/rules/vendor_error.h); else a refused call
  std::string_view errors;  // of a call: "EINVAL, ENOMEM"; "": the call succeeds, or there is none
  std::string_view rule;
  std::string_view source;
  std::string_view remedy;
};

// All of them, failed work requests first.
std::span<const Diagnostic> all_diagnostics();

// nullptr: there is no such code.
const Diagnostic* find_diagnostic(std::string_view code);

}  // namespace verbena
