// SPDX-License-Identifier: BSD-2-Clause
//
// A fuzzer's input, taken from the front; zeros when it is used up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace verbena::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  void take(void* out, size_t size) {
    memset(out, 0, size);
    const size_t given = std::min(size, size_);
    if (given > 0) memcpy(out, data_, given);
    data_ += given;
    size_ -= given;
  }
  template <typename T>
  T take() {
    T value;
    take(&value, sizeof value);
    return value;
  }
  uint8_t byte() { return take<uint8_t>(); }
  uint8_t below(uint8_t end) { return static_cast<uint8_t>(byte() % end); }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Ends the process with this message when the condition does not hold.
void require(bool holds, const char* promise);

}  // namespace verbena::fuzz
