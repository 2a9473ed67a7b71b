// SPDX-License-Identifier: BSD-2-Clause
//
// Parts of messages as events report them.
#pragma once

#include <algorithm>
#include <span>

#include "cm/cm.h"
#include "cm/message.h"

namespace verbena::cm {

// The whole field, whatever part the sender used: a message does not give the length of its private data.
inline void put_private_data(std::span<const uint8_t> data, PrivateData* out) {
  std::copy(data.begin(), data.end(), out->bytes);
  out->length = static_cast<uint8_t>(data.size());
}

inline Ece ece_of(const Message& m) {
  uint64_t vendor = m[Field::kVendorId];
  if (m.kind == MessageKind::kRep)
    vendor = vendor << 16 | m[Field::kVendorMiddle] << 8 | m[Field::kVendorLow];
  return {static_cast<uint32_t>(vendor), static_cast<uint32_t>(m[Field::kAttributeModifier])};
}

}  // namespace verbena::cm
