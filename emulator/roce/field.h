// SPDX-License-Identifier: BSD-2-Clause
//
// Headers of packets as tables of fields. A header is a plain struct, and Layout<struct> says for each member
// which bits of the bytes it takes:
//
//   template <> struct Layout<Deth> {
//     static constexpr size_t kSize = 8;
//     static constexpr auto kFields = std::tuple{Field<&Deth::qkey>{0, 32}, Field<&Deth::source_qpn>{40,
//     24}};
//   };
//
// Bits count from the most significant bit of the first byte, as in the InfiniBand specification. Numbers are
// big-endian. encode() writes the bits of no field as 0, and decode() ignores them. Both are pure, need no
// alignment, and touch kSize bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

namespace verbena::roce {

// Bits [first_bit, first_bit + bits) belong to `kMember`: a number of at most 64 bits, or an array of bytes
// (then both are multiples of 8).
template <auto kMember>
struct Field {
  uint16_t first_bit;
  uint16_t bits;
};

template <typename T>
struct Layout;

// The number in these bits.
constexpr uint64_t get_bits(const uint8_t* bytes, unsigned first_bit, unsigned bits) noexcept {
  uint64_t value = 0;
  for (unsigned at = first_bit, end = first_bit + bits; at < end;) {
    const unsigned in_byte = at % 8, count = std::min(8 - in_byte, end - at);
    value = value << count | ((bytes[at / 8] >> (8 - in_byte - count)) & ((1u << count) - 1));
    at += count;
  }
  return value;
}

// Bits of `value` above `bits` are dropped.
constexpr void put_bits(uint8_t* bytes, unsigned first_bit, unsigned bits, uint64_t value) noexcept {
  for (unsigned at = first_bit + bits; at > first_bit;) {
    const unsigned in_byte = (at - 1) % 8 + 1, count = std::min(in_byte, at - first_bit);
    const unsigned shift = 8 - in_byte, mask = ((1u << count) - 1) << shift;
    uint8_t& byte = bytes[(at - 1) / 8];
    byte = static_cast<uint8_t>((byte & ~mask) | ((static_cast<unsigned>(value) << shift) & mask));
    value >>= count;
    at -= count;
  }
}

namespace internal {

template <typename T>
inline constexpr bool kIsArray = false;
template <size_t kCount>
inline constexpr bool kIsArray<std::array<uint8_t, kCount>> = true;

template <typename T, auto kMember>
constexpr void put_field(const T& value, const Field<kMember>& field, uint8_t* to) noexcept {
  const auto& member = value.*kMember;
  if constexpr (kIsArray<std::remove_cvref_t<decltype(member)>>)
    std::copy(member.begin(), member.end(), to + field.first_bit / 8);
  else
    put_bits(to, field.first_bit, field.bits, static_cast<uint64_t>(member));
}

template <typename T, auto kMember>
constexpr void get_field(T& value, const Field<kMember>& field, const uint8_t* from) noexcept {
  auto& member = value.*kMember;
  if constexpr (kIsArray<std::remove_cvref_t<decltype(member)>>)
    std::copy_n(from + field.first_bit / 8, member.size(), member.begin());
  else
    member = static_cast<std::remove_cvref_t<decltype(member)>>(get_bits(from, field.first_bit, field.bits));
}

// Does the field fit into the header, and into its member?
template <typename T, auto kMember>
constexpr bool is_sound(const Field<kMember>& field) noexcept {
  using Member = std::remove_cvref_t<decltype(std::declval<T&>().*kMember)>;
  if (field.first_bit + field.bits > Layout<T>::kSize * 8) return false;
  if constexpr (kIsArray<Member>)
    return field.first_bit % 8 == 0 && field.bits == 8 * std::tuple_size_v<Member>;
  else
    return field.bits != 0 && field.bits <= 8 * sizeof(Member);
}

}  // namespace internal

// Do all fields fit, and does no bit belong to two of them?
template <typename T>
constexpr bool is_sound_layout() noexcept {
  std::array<uint8_t, Layout<T>::kSize> taken{};
  bool sound = true;
  std::apply(
      [&](const auto&... field) {
        const auto take = [&](const auto& one) {
          if (!(sound = sound && internal::is_sound<T>(one))) return;
          for (unsigned bit = one.first_bit; bit < unsigned{one.first_bit} + one.bits; ++bit) {
            sound = sound && (taken[bit / 8] >> (bit % 8) & 1) == 0;
            taken[bit / 8] = static_cast<uint8_t>(taken[bit / 8] | 1u << (bit % 8));
          }
        };
        (take(field), ...);
      },
      Layout<T>::kFields);
  return sound;
}

template <typename T>
constexpr void encode(const T& header, uint8_t* to) noexcept {
  std::fill_n(to, Layout<T>::kSize, uint8_t{0});
  std::apply([&](const auto&... field) { (internal::put_field(header, field, to), ...); },
             Layout<T>::kFields);
}

template <typename T>
constexpr T decode(const uint8_t* from) noexcept {
  T header{};
  std::apply([&](const auto&... field) { (internal::get_field(header, field, from), ...); },
             Layout<T>::kFields);
  return header;
}

}  // namespace verbena::roce
