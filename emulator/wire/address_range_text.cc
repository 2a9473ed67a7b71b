// SPDX-License-Identifier: BSD-2-Clause
#include "wire/address_range_text.h"

#include <algorithm>
#include <charconv>

#include "wire/net_address.h"

namespace verbena::wire {
namespace {

constexpr uint32_t kMappedBits = 96;  // bits before an IPv4 address

}  // namespace

bool read_range(const std::string& text, AddressRange* out) {
  const size_t slash = text.find('/');
  NetAddress address;
  if (!NetAddress::from_text(text.substr(0, slash), &address)) return false;
  const uint32_t before = address.is_ipv4() ? kMappedBits : 0;
  uint32_t length = 128 - before;
  if (slash != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + slash + 1, end, length);
    if (read.ec != std::errc{} || read.ptr != end || length > 128 - before) return false;
  }
  const AddressRange range{address.bytes, before + length};
  for (uint32_t i = range.bits; i < 128; ++i)
    if ((address.bytes[i / 8] >> (7 - i % 8) & 1) != 0) return false;
  *out = range;
  return true;
}

std::string range_text(const AddressRange& range) {
  const NetAddress address{range.address};
  const uint32_t before = address.is_ipv4() && range.bits >= kMappedBits ? kMappedBits : 0;
  return address.text() + "/" + std::to_string(std::min(range.bits, 128u) - before);
}

}  // namespace verbena::wire
