// SPDX-License-Identifier: BSD-2-Clause
#include "wire/frame.h"

#include <bit>
#include <cstring>
#include <iterator>

namespace verbena::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "heads are copied as they lie");

struct Shape {
  uint32_t head_size;
  uint32_t most_bytes;
};

// Indexed by FrameKind.
constexpr Shape kShapes[] = {
    {0, 0},
    {sizeof(RequestHead), kChunkBytes},
    {sizeof(AnswerHead), 0},
    {sizeof(AnswerHead), 0},
    {sizeof(AnswerHead), 0},
    {sizeof(AnswerHead), 0},
    {sizeof(AnswerHead), kChunkBytes},
    {sizeof(AnswerHead), 0},
    {sizeof(DatagramHead), kMaxDatagram},
    {sizeof(QueryHead), 0},
    {sizeof(WhereaboutsHead), 0},
    {sizeof(AnswerHead), 0},
};

constexpr uint32_t kMostQpn = 0xffffff;

bool lies_within(uint32_t offset, uint32_t bytes, uint32_t size) {
  return size <= kMaxMessage && offset <= size && bytes <= size - offset;
}

bool is_sound(const Frame& frame) {
  const FrameHead& head = frame.head;
  switch (head.start.kind) {
    case FrameKind::kRequest:
      return lies_within(head.request.offset, frame.payload, head.request.size) &&
             head.request.target_qpn <= kMostQpn && head.request.source_qpn <= kMostQpn &&
             head.request.finished_below <= head.request.number && head.request.psn <= kMostQpn;
    case FrameKind::kReadData:
      return lies_within(head.answer.offset(), frame.payload, head.answer.size());
    case FrameKind::kDatagram:
      return frame.payload >= 40;
    default:
      return true;
  }
}

}  // namespace

Decoded decode(const std::byte* bytes, size_t available, Frame* out) noexcept {
  if (available < sizeof(FrameStart)) return Decoded::kIncomplete;
  FrameStart start;
  std::memcpy(&start, bytes, sizeof start);
  const auto kind = static_cast<size_t>(start.kind);
  if (kind == 0 || kind >= std::size(kShapes)) return Decoded::kMalformed;
  const Shape& shape = kShapes[kind];
  if (start.length < shape.head_size || start.length - shape.head_size > shape.most_bytes)
    return Decoded::kMalformed;
  if (available < shape.head_size) return Decoded::kIncomplete;
  std::memcpy(&out->head, bytes, shape.head_size);
  out->head_size = shape.head_size;
  out->payload = start.length - shape.head_size;
  return is_sound(*out) ? Decoded::kFrame : Decoded::kMalformed;
}

}  // namespace verbena::wire
