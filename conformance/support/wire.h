// SPDX-License-Identifier: BSD-2-Clause
//
// Messages as bytes: fixed-width numbers, least significant byte first; lists and texts begin with their
// count. A structure names its fields once, for both directions:
//
//   struct Poll {
//     uint32_t end = 0;
//     std::vector<Element> elements;
//     template <typename Archive> void fields(Archive& archive) { archive(end, elements); }
//   };
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace conformance::wire {

// The bytes are invalid: too few, too many, or an impossible count.
struct Malformed {};

class Writer {
 public:
  std::string bytes;

  template <typename... Values>
  void operator()(const Values&... values) {
    (put(values), ...);
  }

 private:
  template <typename Value>
  void put(const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      put(static_cast<uint32_t>(value));
    } else if constexpr (std::is_integral_v<Value>) {
      for (size_t i = 0; i < sizeof value; ++i)
        bytes.push_back(static_cast<char>(static_cast<uint64_t>(value) >> 8 * i));
    } else {
      const_cast<Value&>(value).fields(*this);  // fields() only reads here
    }
  }
  void put(const std::string& text) {
    put(static_cast<uint32_t>(text.size()));
    bytes += text;
  }
  void put(const std::array<uint8_t, 16>& gid) {
    for (const uint8_t byte : gid) put(byte);
  }
  template <typename Value>
  void put(const std::vector<Value>& list) {
    put(static_cast<uint32_t>(list.size()));
    for (const Value& value : list) put(value);
  }
};

// Throws Malformed instead of reading beyond the end.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  template <typename... Values>
  void operator()(Values&... values) {
    (get(values), ...);
  }
  void expect_end() const {
    if (at_ != bytes_.size()) throw Malformed{};
  }

 private:
  size_t left() const { return bytes_.size() - at_; }

  template <typename Value>
  void get(Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      uint32_t number;
      get(number);
      value = static_cast<Value>(number);
    } else if constexpr (std::is_same_v<Value, bool>) {
      uint8_t byte;
      get(byte);
      value = byte != 0;
    } else if constexpr (std::is_integral_v<Value>) {
      if (left() < sizeof value) throw Malformed{};
      uint64_t number = 0;
      for (size_t i = 0; i < sizeof value; ++i)
        number |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[at_ + i])) << 8 * i;
      value = static_cast<Value>(number);
      at_ += sizeof value;
    } else {
      value.fields(*this);
    }
  }
  uint32_t count() {
    uint32_t number;
    get(number);
    if (number > left()) throw Malformed{};  // nothing on a list is shorter than a byte
    return number;
  }
  void get(std::string& text) {
    const uint32_t length = count();
    text = bytes_.substr(at_, length);
    at_ += length;
  }
  void get(std::array<uint8_t, 16>& gid) {
    for (uint8_t& byte : gid) get(byte);
  }
  template <typename Value>
  void get(std::vector<Value>& list) {
    list.clear();
    for (uint32_t left_over = count(); left_over > 0; --left_over) get(list.emplace_back());
  }

  const std::string& bytes_;
  size_t at_ = 0;
};

template <typename Message>
std::string to_bytes(const Message& message) {
  Writer writer;
  writer(message);
  return std::move(writer.bytes);
}

// All of the bytes, or Malformed.
template <typename Message>
Message from_bytes(const std::string& bytes) {
  Message message;
  Reader reader(bytes);
  reader(message);
  reader.expect_end();
  return message;
}

}  // namespace conformance::wire
