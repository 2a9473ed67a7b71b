// SPDX-License-Identifier: BSD-2-Clause
//
// Error reporting: an errno for programs, and one line for people (`problem`, which may be nullptr).
#pragma once

#include <cstring>
#include <string>

namespace verbena {

inline int fail(int error, std::string* problem, const std::string& what) {
  if (problem != nullptr) *problem = what;
  return error;
}

// The same, followed by the text of the error.
inline int fail_errno(int error, std::string* problem, const std::string& what) {
  return fail(error, problem, what + ": " + std::strerror(error));
}

}  // namespace verbena
