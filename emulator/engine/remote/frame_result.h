// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>

namespace verbena {

// What has become of the frame at the head of a stream.
enum class FrameResult : uint8_t {
  kDone,     // the next one begins
  kMore,     // more of its bytes have to come
  kStalled,  // it cannot be carried out now; nothing will say when it can
};

}  // namespace verbena
