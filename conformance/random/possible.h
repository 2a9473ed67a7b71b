// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace conformance::random {

// The values that a byte of memory may have.
class PossibleByte {
 public:
  PossibleByte() = default;  // none
  static PossibleByte of(uint8_t value) {
    PossibleByte out;
    out.values_.set(value);
    return out;
  }
  static PossibleByte any() {
    PossibleByte out;
    out.values_.set();
    return out;
  }

  bool may_be(uint8_t value) const { return values_.test(value); }
  bool is_known() const { return values_.count() == 1; }
  uint8_t value() const { return static_cast<uint8_t>(values_._Find_first()); }  // if it is known
  size_t count() const { return values_.count(); }
  void add(const PossibleByte& other) { values_ |= other.values_; }

 private:
  std::bitset<256> values_;
};

inline PossibleByte either(PossibleByte one, const PossibleByte& other) {
  one.add(other);
  return one;
}

// Bytes of a buffer.
struct Span {
  uint32_t buffer, begin, length;
};

}  // namespace conformance::random
