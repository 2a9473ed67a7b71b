// SPDX-License-Identifier: BSD-2-Clause
#include "cm/message.h"

#include <cstring>

#include "cm/message_fields.h"

namespace verbena::cm {
namespace {

constexpr uint32_t kMagic = 0x56'43'4d'01;  // "VCM", version 1

// ib_mad.h: base version, class (communication management), class version, method (Send).
constexpr uint8_t kMadBegin[4] = {1, 7, 2, 3};
constexpr size_t kAttributeId = 16;

uint64_t load(const uint8_t* bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value = value << 8 | bytes[i];
  return value;
}

void store(uint8_t* bytes, size_t count, uint64_t value) {
  for (size_t i = count; i-- > 0; value >>= 8) bytes[i] = static_cast<uint8_t>(value);
}

struct Bits {
  size_t bytes;    // that the field touches
  unsigned shift;  // to its right
  uint64_t mask;   // at the right end
  explicit Bits(const FieldPlace& place)
      : bytes((place.bit + place.width + 7u) / 8),
        shift(static_cast<unsigned>(bytes) * 8 - place.bit - place.width),
        mask(place.width == 64 ? ~uint64_t{0} : (uint64_t{1} << place.width) - 1) {}
};

uint64_t get(const uint8_t* mad, const FieldPlace& place) {
  const Bits bits(place);
  return load(mad + place.byte, bits.bytes) >> bits.shift & bits.mask;
}

void put(uint8_t* mad, const FieldPlace& place, uint64_t value) {
  const Bits bits(place);
  const uint64_t rest = load(mad + place.byte, bits.bytes) & ~(bits.mask << bits.shift);
  store(mad + place.byte, bits.bytes, rest | (value & bits.mask) << bits.shift);
}

bool consistent(const Message& message) {
  if (message.kind != MessageKind::kReq) return true;
  // Transport type 2 is reserved. The extended type is used if and only if the type is 3.
  return message[Field::kTransportType] != 2 &&
         (message[Field::kTransportType] == 3) == (message[Field::kExtendedTransportType] != 0);
}

}  // namespace

size_t private_data_size(MessageKind kind) {
  const MessageLayout* layout = layout_of(kind);
  return layout == nullptr ? 0 : layout->private_data_size;
}

void encode(const Message& message, Frame& out) {
  out.fill(0);
  store(out.data(), 4, kMagic);
  std::memcpy(out.data() + 8, message.source.data(), 16);
  std::memcpy(out.data() + 24, message.destination.data(), 16);
  uint8_t* mad = out.data() + kFrameHead;
  std::memcpy(mad, kMadBegin, sizeof kMadBegin);
  store(mad + kAttributeId, 2, static_cast<uint16_t>(message.kind));
  const MessageLayout* layout = layout_of(message.kind);
  if (layout == nullptr) return;
  for (const FieldPlace& place : layout->fields) put(mad, place, message[place.field]);
  auto& bytes_of = const_cast<Message&>(message);  // read only
  for (const BytesPlace& place : layout->bytes)
    std::memcpy(mad + place.byte, place.bytes(bytes_of), place.size);
}

namespace {

// The fields are within their ranges.
bool decode_fields(std::span<const uint8_t> bytes, Message* out) {
  const uint8_t* mad = bytes.data() + kFrameHead;
  *out = Message{};
  out->kind = static_cast<MessageKind>(load(mad + kAttributeId, 2));
  const MessageLayout* layout = layout_of(out->kind);
  if (layout == nullptr) return false;
  std::memcpy(out->source.data(), bytes.data() + 8, 16);
  std::memcpy(out->destination.data(), bytes.data() + 24, 16);
  for (const FieldPlace& place : layout->fields) {
    const uint64_t value = get(mad, place);
    if (value < place.min || value > place.max) return false;
    (*out)[place.field] = value;
  }
  for (const BytesPlace& place : layout->bytes) std::memcpy(place.bytes(*out), mad + place.byte, place.size);
  return consistent(*out);
}

}  // namespace

bool decode(std::span<const uint8_t> bytes, Message* out) {
  if (bytes.size() != kFrameSize || load(bytes.data(), 4) != kMagic) return false;
  if (!decode_fields(bytes, out)) return false;
  // Bits that belong to no field (and the MAD's head) must be what encode() writes.
  Frame again;
  encode(*out, again);
  return std::memcmp(again.data(), bytes.data(), kFrameSize) == 0;
}

bool decode_mad(std::span<const uint8_t, kMadSize> mad, const Gid& source, const Gid& destination,
                Message* out) {
  constexpr size_t kStatus = 4;
  if (std::memcmp(mad.data(), kMadBegin, sizeof kMadBegin) != 0 || load(mad.data() + kStatus, 2) != 0)
    return false;
  Frame frame;
  std::memcpy(frame.data() + 8, source.data(), 16);
  std::memcpy(frame.data() + 24, destination.data(), 16);
  std::memcpy(frame.data() + kFrameHead, mad.data(), kMadSize);
  return decode_fields(frame, out);
}

}  // namespace verbena::cm
