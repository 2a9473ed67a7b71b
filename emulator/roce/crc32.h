// SPDX-License-Identifier: BSD-2-Clause
//
// CRC-32 of Ethernet, and arithmetic modulo its polynomial. Pure functions.
//
// Bits are reflected: of a state or polynomial of 32 bits the most significant bit is the coefficient of x^0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace verbena::roce {

// CRC-32 (reflected polynomial 0xedb88320) of more bytes. Begin with ~0; the CRC is the complement of the
// result. By the fastest of the functions below that the processor has.
uint32_t crc32_update(uint32_t state, std::span<const uint8_t> bytes) noexcept;

// Eight bytes at a time, by tables.
uint32_t crc32_update_by_tables(uint32_t state, std::span<const uint8_t> bytes) noexcept;
// By carry-less multiplication, 64 bytes at a time (PCLMULQDQ), or 256 (VPCLMULQDQ). Only if the processor
// has it.
bool has_carryless_multiplication() noexcept;
uint32_t crc32_update_by_multiplication(uint32_t state, std::span<const uint8_t> bytes) noexcept;
bool has_wide_multiplication() noexcept;
uint32_t crc32_update_by_wide_multiplication(uint32_t state, std::span<const uint8_t> bytes) noexcept;

// ---- polynomials modulo that of the CRC ----

inline constexpr uint32_t kCrcPolynomial = 0xedb88320;

constexpr uint32_t multiply_polynomials(uint32_t a, uint32_t b) noexcept {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    product ^= b & (0u - (a >> bit & 1));
    b = b >> 1 ^ (kCrcPolynomial & (0u - (b & 1)));
  }
  return product;
}

// x to the power of `exponent`.
constexpr uint32_t power_of_x(uint32_t exponent) noexcept {
  uint32_t result = 0x80000000, square = 0x40000000;
  for (; exponent != 0; exponent >>= 1, square = multiply_polynomials(square, square))
    if ((exponent & 1) != 0) result = multiply_polynomials(result, square);
  return result;
}

}  // namespace verbena::roce
