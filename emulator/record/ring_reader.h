// SPDX-License-Identifier: BSD-2-Clause
//
// Reads the ring of a process, living or dead, from outside (record_ring.h). What it reads is not trusted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "record/record_ring.h"

namespace verbena::record {

class RingReader {
 public:
  // Opens the file at `path`, which must be this user's. errno; EPROTO: not a ring, or not (yet) complete.
  int open(const std::string& path);

  enum class Next { kRecord, kNone, kDamaged };
  // The next record, appended to *records. kDamaged: the rest of the ring cannot be read.
  Next append(std::vector<std::byte>* records);
  // The next record alone.
  Next next(std::vector<std::byte>* record) {
    record->clear();
    return append(record);
  }
  bool has_more() const { return ring_.header().head.load(std::memory_order_acquire) != position_; }

  // The process still writes into it, or has died doing so.
  bool is_written() const { return ring_.header().is_written.load(std::memory_order_acquire) != 0; }
  uint64_t file() const { return file_; }  // its inode

  // Records that were overwritten before they were read, so far.
  uint64_t lost() const { return lost_; }
  // Records whose payload was too long for the ring.
  const RingOwner& owner() const { return owner_; }

 private:
  uint64_t position_ahead(uint64_t head, uint64_t tail) const;

  RingMapping ring_;
  RingOwner owner_;
  uint64_t file_ = 0;
  uint64_t position_ = 0;
  uint64_t expected_ = 0;  // number of the next record
  uint64_t lost_ = 0;
};

}  // namespace verbena::record
