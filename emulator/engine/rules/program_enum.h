// SPDX-License-Identifier: BSD-2-Clause
//
// A C program may write any number into a field of enumeration type: an opcode of 200, a state of 12. C++
// lets nobody load such a value (UBSan, -fsanitize=enum), so these fields are read as the number that they
// hold. Take them by reference up to here.
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
