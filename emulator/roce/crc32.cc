// SPDX-License-Identifier: BSD-2-Clause
//
// Source of the folding: Gopal, Ozturk et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel 2009; the kernel's arch/x86/crypto/crc32-pclmul_asm.S has the same constants.
#include "roce/crc32.h"

#include <array>
#include <atomic>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace verbena::roce {
namespace {

// kCrcTables[k][b]: the CRC of byte b with k bytes of zero after it.
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;
constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ kCrcPolynomial : crc >> 1;
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; ++byte)
    for (size_t k = 1; k < tables.size(); ++k)
      tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}
constexpr CrcTables kCrcTables = make_crc_tables();

// Fewer are not worth multiplications.
constexpr size_t kFewBytes = 64;

uint32_t four_bytes(const uint8_t* from) {
  return uint32_t{from[0]} | uint32_t{from[1]} << 8 | uint32_t{from[2]} << 16 | uint32_t{from[3]} << 24;
}

}  // namespace

uint32_t crc32_update_by_tables(uint32_t state, std::span<const uint8_t> bytes) noexcept {
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    const uint32_t low = four_bytes(at) ^ state, high = four_bytes(at + 4);
    state = kCrcTables[7][low & 0xff] ^ kCrcTables[6][low >> 8 & 0xff] ^ kCrcTables[5][low >> 16 & 0xff] ^
            kCrcTables[4][low >> 24] ^ kCrcTables[3][high & 0xff] ^ kCrcTables[2][high >> 8 & 0xff] ^
            kCrcTables[1][high >> 16 & 0xff] ^ kCrcTables[0][high >> 24];
  }
  if (left >= 4) {
    const uint32_t word = four_bytes(at) ^ state;
    state = kCrcTables[3][word & 0xff] ^ kCrcTables[2][word >> 8 & 0xff] ^ kCrcTables[1][word >> 16 & 0xff] ^
            kCrcTables[0][word >> 24];
    at += 4, left -= 4;
  }
  for (; left != 0; ++at, --left) state = state >> 8 ^ kCrcTables[0][(state ^ *at) & 0xff];
  return state;
}

#ifdef __x86_64__
namespace {

// A block of 128 bits that lies `bits` before another one is added to that one after multiplication with
// these: the low half, which comes first, by x^(bits + 64), the high half by x^bits; less 32 for the CRC's
// own shift, and one place to the left, because the product of two reflected numbers is one place short.
struct FoldBy {
  uint64_t low, high;
};
constexpr FoldBy fold_by(uint32_t bits) {
  return {uint64_t{power_of_x(bits + 32)} << 1, uint64_t{power_of_x(bits - 32)} << 1};
}
constexpr FoldBy kFold128 = fold_by(128), kFold512 = fold_by(512), kFold2048 = fold_by(2048);
static_assert(kFold512.low == 0x154442bd4 && kFold512.high == 0x1c6e41596);
static_assert(kFold128.low == 0x1751997d0 && kFold128.high == 0x0ccaa009e);

#define VERBENA_CLMUL __attribute__((target("pclmul,sse4.1"), always_inline)) inline
#define VERBENA_WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul"), always_inline)) inline

VERBENA_CLMUL __m128i load_block(const uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

VERBENA_CLMUL __m128i constants(const FoldBy& by) {
  return _mm_set_epi64x(static_cast<long long>(by.high), static_cast<long long>(by.low));
}

VERBENA_CLMUL __m128i fold(__m128i block, __m128i by, __m128i onto) {
  const __m128i low = _mm_clmulepi64_si128(block, by, 0x00), high = _mm_clmulepi64_si128(block, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

// Four blocks in a row into one, with the blocks of 16 bytes that follow; the rest by tables.
VERBENA_CLMUL uint32_t finish(const __m128i (&lanes)[4], const uint8_t* at, size_t left) {
  const __m128i by = constants(kFold128);
  __m128i block = lanes[0];
  for (int i = 1; i < 4; ++i) block = fold(block, by, lanes[i]);
  for (; left >= 16; at += 16, left -= 16) block = fold(block, by, load_block(at));
  alignas(16) uint8_t bytes[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(bytes), block);
  return crc32_update_by_tables(crc32_update_by_tables(0, bytes), {at, left});
}

}  // namespace

bool has_carryless_multiplication() noexcept {
  return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

__attribute__((target("pclmul,sse4.1"))) uint32_t crc32_update_by_multiplication(
    uint32_t state, std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() < kFewBytes) return crc32_update_by_tables(state, bytes);
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  __m128i lanes[4];
  for (int i = 0; i < 4; ++i) lanes[i] = load_block(at + 16 * i);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  const __m128i by = constants(kFold512);
  for (at += 64, left -= 64; left >= 64; at += 64, left -= 64)
    for (int i = 0; i < 4; ++i) lanes[i] = fold(lanes[i], by, load_block(at + 16 * i));
  return finish(lanes, at, left);
}

bool has_wide_multiplication() noexcept {
  return has_carryless_multiplication() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("vpclmulqdq");
}

namespace {

VERBENA_WIDE __m512i wide_constants(const FoldBy& by) {
  const auto low = static_cast<long long>(by.low), high = static_cast<long long>(by.high);
  return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

VERBENA_WIDE __m512i fold_wide(__m512i blocks, __m512i by, __m512i onto) {
  const __m512i low = _mm512_clmulepi64_epi128(blocks, by, 0x00),
                high = _mm512_clmulepi64_epi128(blocks, by, 0x11);
  return _mm512_ternarylogic_epi64(low, high, onto, 0x96);  // the sum of the three
}

}  // namespace

__attribute__((target("avx512f,vpclmulqdq,pclmul"))) uint32_t crc32_update_by_wide_multiplication(
    uint32_t state, std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() < 256) return crc32_update_by_multiplication(state, bytes);
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  __m512i lanes[4];
  for (int i = 0; i < 4; ++i) lanes[i] = _mm512_loadu_si512(at + 64 * i);
  lanes[0] = _mm512_xor_si512(lanes[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  const __m512i by = wide_constants(kFold2048), by_one = wide_constants(kFold512);
  for (at += 256, left -= 256; left >= 256; at += 256, left -= 256)
    for (int i = 0; i < 4; ++i) lanes[i] = fold_wide(lanes[i], by, _mm512_loadu_si512(at + 64 * i));
  __m512i blocks = lanes[0];
  for (int i = 1; i < 4; ++i) blocks = fold_wide(blocks, by_one, lanes[i]);
  for (; left >= 64; at += 64, left -= 64) blocks = fold_wide(blocks, by_one, _mm512_loadu_si512(at));
  alignas(64) uint8_t bytes_of_all[64];
  _mm512_store_si512(bytes_of_all, blocks);
  __m128i quarters[4];
  for (int i = 0; i < 4; ++i) quarters[i] = load_block(bytes_of_all + 16 * i);
  return finish(quarters, at, left);
}

#undef VERBENA_CLMUL
#undef VERBENA_WIDE
#else

bool has_carryless_multiplication() noexcept { return false; }
bool has_wide_multiplication() noexcept { return false; }
uint32_t crc32_update_by_multiplication(uint32_t state, std::span<const uint8_t> bytes) noexcept {
  return crc32_update_by_tables(state, bytes);
}
uint32_t crc32_update_by_wide_multiplication(uint32_t state, std::span<const uint8_t> bytes) noexcept {
  return crc32_update_by_tables(state, bytes);
}

#endif

namespace {

using CrcUpdate = uint32_t (*)(uint32_t, std::span<const uint8_t>) noexcept;

uint32_t choose_crc_update(uint32_t state, std::span<const uint8_t> bytes) noexcept;

constinit std::atomic<CrcUpdate> crc_update{choose_crc_update};

uint32_t choose_crc_update(uint32_t state, std::span<const uint8_t> bytes) noexcept {
  const CrcUpdate chosen = has_wide_multiplication()        ? crc32_update_by_wide_multiplication
                           : has_carryless_multiplication() ? crc32_update_by_multiplication
                                                            : crc32_update_by_tables;
  crc_update.store(chosen, std::memory_order_relaxed);
  return chosen(state, bytes);
}

}  // namespace

uint32_t crc32_update(uint32_t state, std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() < kFewBytes) return crc32_update_by_tables(state, bytes);
  return crc_update.load(std::memory_order_relaxed)(state, bytes);
}

}  // namespace verbena::roce
