// SPDX-License-Identifier: BSD-2-Clause
//
// The entry of an instrument in the node directory (instruments.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena {

inline constexpr uint32_t kMaxInstruments = 8;

struct InstrumentEntry {
  std::atomic<uint64_t> holder;  // identity of its process (process_identity.h); 0: free
  std::atomic<uint64_t> wish;    // RecordWish
};

}  // namespace verbena
