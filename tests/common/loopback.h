// SPDX-License-Identifier: BSD-2-Clause
//
// Loopback addresses chosen by this process's pid, so that tests that run at the same time do not share any.
#pragma once

#include <unistd.h>

#include "wire/net_address.h"

namespace verbena::wire {

// 127.x.y.`last`.
inline NetAddress loopback(uint8_t last) {
  const auto pid = static_cast<uint32_t>(getpid());
  NetAddress address;
  address.bytes.fill(0);
  address.bytes[10] = address.bytes[11] = 0xff;
  address.bytes[12] = 127;
  address.bytes[13] = static_cast<uint8_t>(1 + pid / 256 % 254);
  address.bytes[14] = static_cast<uint8_t>(pid);
  address.bytes[15] = last;
  return address;
}

}  // namespace verbena::wire
