// SPDX-License-Identifier: BSD-2-Clause
//
// magic_enum for the suite, which only prints what it returns: the number of an enumerator instead of its
// name.
#pragma once

#include <string>

namespace magic_enum {

template <typename Enum>
std::string enum_name(Enum value) {
  return std::to_string(static_cast<long>(value));
}

}  // namespace magic_enum
