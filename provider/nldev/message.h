// SPDX-License-Identifier: BSD-2-Clause
//
// Netlink messages: writing replies, reading requests (netlink(7), include/net/netlink.h of the kernel).
// Pure; nothing that is read is trusted.
#pragma once

#include <linux/netlink.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "nldev/abi.h"

namespace verbena::nldev {

// The kernel's NLMSG_GOODSIZE with pages of 4 KiB: no datagram is longer, so a buffer of a page takes it.
inline constexpr size_t kDatagramSize = 3776;

// Writes one datagram. What does not fit is not written, and `full` says so.
class Writer {
 public:
  // Begins a message, and ends it.
  size_t begin(uint16_t type, uint16_t flags, uint32_t sequence, uint32_t port);
  void end(size_t message);

  void put(uint16_t attribute, const void* data, size_t size);
  void put8(uint16_t attribute, uint8_t value) { put(attribute, &value, sizeof value); }
  void put32(uint16_t attribute, uint32_t value) { put(attribute, &value, sizeof value); }
  void put64(uint16_t attribute, uint64_t value) { put(attribute, &value, sizeof value); }
  void put_text(uint16_t attribute, std::string_view text);  // with its final zero

  size_t begin_nest(uint16_t attribute);
  void end_nest(size_t nest);

  void append(const void* data, size_t size);  // without a header; padded

  size_t size() const { return bytes_.size(); }
  bool full() const { return full_; }
  // Removes what was written since the datagram had this size.
  void cut(size_t size);
  std::string take() { return std::move(bytes_); }

 private:
  void* reserve(size_t size);  // zeroed, padded; nullptr: full
  std::string bytes_;
  bool full_ = false;
};

// The attributes of a request, as the kernel parses them (NL_VALIDATE_LIBERAL): unknown ones are ignored, and
// of several of one type the last one counts.
class Attributes {
 public:
  // 0; ERANGE: one is shorter than its type, or a text too long; EINVAL: a text does not end.
  int parse(const void* data, size_t size);

  bool has(uint16_t attribute) const { return found_[attribute].data != nullptr; }
  uint32_t get32(uint16_t attribute) const;  // 0: absent
  uint8_t get8(uint16_t attribute) const;
  std::string_view get_text(uint16_t attribute) const;

 private:
  struct Found {
    const void* data = nullptr;
    size_t size = 0;
  };
  std::array<Found, kAttributes> found_{};
};

}  // namespace verbena::nldev
