// SPDX-License-Identifier: BSD-2-Clause
#include "observe/diagnostic.h"

namespace verbena {
namespace {

constexpr Diagnostic kDiagnostics[] = {
#define COMPLETION(code, status, receive, event, rule, source, remedy) {#code, true, "", rule, source, remedy},
#define REFUSAL(code, errors, rule, source, remedy) {#code, false, errors, rule, source, remedy},
#include "observe/diagnostics.def"
#undef REFUSAL
#undef COMPLETION
};

}  // namespace

std::span<const Diagnostic> all_diagnostics() { return kDiagnostics; }

const Diagnostic* find_diagnostic(std::string_view code) {
  for (const Diagnostic& diagnostic : kDiagnostics)
    if (diagnostic.code == code) return &diagnostic;
  return nullptr;
}

}  // namespace verbena
