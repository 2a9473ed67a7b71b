// SPDX-License-Identifier: BSD-2-Clause
//
// A C program may write any number into a field of enumeration type: an opcode of 200, a state of 12. In C++,
// loading such a value is undefined (UBSan, -fsanitize=enum). So these fields are read as plain numbers. Pass
// them by reference down to number_in(): a copy would load the value.
#pragma once

#include <cstring>
#include <type_traits>

namespace verbena {

template <typename Enum>
unsigned number_in(const Enum& field) noexcept {
  static_assert(std::is_enum_v<Enum> && sizeof(Enum) == sizeof(unsigned));
  unsigned number;
  std::memcpy(&number, &field, sizeof number);
  return number;
}

}  // namespace verbena
