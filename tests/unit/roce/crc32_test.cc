// SPDX-License-Identifier: BSD-2-Clause
#include "roce/crc32.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace verbena::roce {
namespace {

TEST(Crc32, IsTheCrcOfEthernet) {
  const uint8_t digits[] = {'1', '2', '3', '4', '5', '6', '7', '8', '9'};
  EXPECT_EQ(~crc32_update(~0u, digits), 0xcbf43926u);
  for (size_t cut = 0; cut <= 9; ++cut) {
    const auto bytes = std::span<const uint8_t>(digits);
    EXPECT_EQ(~crc32_update(crc32_update(~0u, bytes.first(cut)), bytes.subspan(cut)), 0xcbf43926u);
  }
}

// All ways of the processor give what the tables give, from any address and for each length.
TEST(Crc32, IsTheSameByMultiplication) {
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(5000);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (size_t size = 0; size + 3 < bytes.size(); size += size < 700 ? 1 : 37)
    for (size_t from = 0; from < 3; ++from) {
      const uint32_t state = random();
      const auto part = std::span<const uint8_t>(bytes).subspan(from, size);
      const uint32_t expected = crc32_update_by_tables(state, part);
      ASSERT_EQ(crc32_update(state, part), expected) << size;
      if (has_carryless_multiplication()) {
        ASSERT_EQ(crc32_update_by_multiplication(state, part), expected) << size;
      }
      if (has_wide_multiplication()) {
        ASSERT_EQ(crc32_update_by_wide_multiplication(state, part), expected) << size;
      }
    }
}

TEST(Crc32, ATableIsTheRemainderByThePolynomial) {
  const uint8_t one[] = {0x80};
  // Reflected, x^0 is the last bit of a byte; 32 bits of zero follow.
  EXPECT_EQ(crc32_update_by_tables(0, one), power_of_x(32));
  EXPECT_EQ(multiply_polynomials(power_of_x(1000), power_of_x(0xffffffff - 1000)), power_of_x(0));
}

}  // namespace
}  // namespace verbena::roce
