// SPDX-License-Identifier: BSD-2-Clause
//
// The positions of the fields of each message (message.h). Positions count from the MAD's beginning, bits
// from the left.
#pragma once

#include <span>

#include "cm/message.h"

namespace verbena::cm {

struct FieldPlace {
  Field field;
  uint16_t byte;
  uint8_t bit;
  uint8_t width;      // bits; bit + width <= 64
  uint64_t min, max;  // what decode() takes
};

struct BytesPlace {
  uint8_t* (*bytes)(Message&);
  uint16_t byte;
  uint16_t size;
};

struct MessageLayout {
  MessageKind kind;
  std::span<const FieldPlace> fields;
  std::span<const BytesPlace> bytes;
  uint16_t private_data_size;
};

// nullptr: no such message.
const MessageLayout* layout_of(MessageKind kind);

}  // namespace verbena::cm
