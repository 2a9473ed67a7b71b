// SPDX-License-Identifier: BSD-2-Clause
//
// Writes a capture file in the format pcapng: one section, one Ethernet interface, times in nanoseconds
// (draft-ietf-opsawg-pcapng). Blocks are whole in each write, so that a reader of a pipe can follow.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace verbena::capture {

struct CaptureFileOptions {
  std::string application;  // that writes the file
  std::string interface;
  std::string description;
  uint32_t snap = 0;  // most bytes of a packet; 0: all
};

struct CaptureCounts {
  uint64_t begin = 0, end = 0;  // ns, CLOCK_REALTIME
  uint64_t received = 0;        // packets, dropped ones included
  uint64_t dropped = 0;
};

class CaptureFile {
 public:
  // The descriptor stays the caller's. Writes the head of the file. errno.
  int begin(int file, const CaptureFileOptions& options);

  // `time`: ns, CLOCK_REALTIME. `length`: bytes of the whole packet. Kept until flush().
  void add(uint64_t time, std::span<const uint8_t> packet, uint32_t length);
  static constexpr size_t kMuch = 1 << 20;
  size_t waiting() const { return out_.size(); }  // bytes
  // errno of write(2): EPIPE when a reader is gone.
  int flush();
  // Writes the statistics of the interface. errno.
  int end(const CaptureCounts& counts);

 private:
  void number(uint32_t value);
  void bytes(const void* from, size_t size);
  void option(uint16_t code, const void* value, size_t size);
  void option(uint16_t code, const std::string& text) { option(code, text.data(), text.size()); }
  void option(uint16_t code, uint64_t value) { option(code, &value, sizeof value); }
  size_t open_block(uint32_t type);
  void close_block(size_t at);

  int file_ = -1;
  std::vector<uint8_t> out_;
};

}  // namespace verbena::capture
