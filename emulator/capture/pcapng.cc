// SPDX-License-Identifier: BSD-2-Clause
#include "capture/pcapng.h"

#include <errno.h>
#include <unistd.h>

#include <cstring>

namespace verbena::capture {
namespace {

constexpr uint32_t kSectionHeader = 0x0a0d0d0a, kInterface = 1, kEnhancedPacket = 6, kStatistics = 5;
constexpr uint32_t kByteOrder = 0x1a2b3c4d;
constexpr uint16_t kEthernet = 1;
enum Option : uint16_t {
  kEndOfOptions = 0,
  kShbApplication = 4,
  kIfName = 2,
  kIfDescription = 3,
  kIfResolution = 9,
  kIsbStart = 2,
  kIsbEnd = 3,
  kIsbReceived = 4,
  kIsbDropped = 5,
};

}  // namespace

void CaptureFile::bytes(const void* from, size_t size) {
  const auto* const begin = static_cast<const uint8_t*>(from);
  out_.insert(out_.end(), begin, begin + size);
  out_.resize(out_.size() + (-size & 3));
}

void CaptureFile::number(uint32_t value) { bytes(&value, sizeof value); }

void CaptureFile::option(uint16_t code, const void* value, size_t size) {
  number(static_cast<uint32_t>(size) << 16 | code);
  bytes(value, size);
}

size_t CaptureFile::open_block(uint32_t type) {
  const size_t at = out_.size();
  number(type);
  number(0);
  return at;
}

void CaptureFile::close_block(size_t at) {
  const auto length = static_cast<uint32_t>(out_.size() - at + sizeof(uint32_t));
  std::memcpy(&out_[at + sizeof(uint32_t)], &length, sizeof length);
  number(length);
}

int CaptureFile::begin(int file, const CaptureFileOptions& options) {
  file_ = file;
  const size_t section = open_block(kSectionHeader);
  number(kByteOrder);
  number(1);  // version 1.0
  const int64_t unknown = -1;
  bytes(&unknown, sizeof unknown);
  option(kShbApplication, options.application);
  number(kEndOfOptions);
  close_block(section);
  const size_t interface = open_block(kInterface);
  number(kEthernet);
  number(options.snap);
  option(kIfName, options.interface);
  option(kIfDescription, options.description);
  const uint8_t nanoseconds = 9;
  option(kIfResolution, &nanoseconds, sizeof nanoseconds);
  number(kEndOfOptions);
  close_block(interface);
  return flush();
}

void CaptureFile::add(uint64_t time, std::span<const uint8_t> packet, uint32_t length) {
  const auto size = static_cast<uint32_t>(packet.size());
  const uint32_t padding = -size & 3, whole = 8 * sizeof(uint32_t) + size + padding;
  const uint32_t head[] = {
      kEnhancedPacket, whole, 0, static_cast<uint32_t>(time >> 32), static_cast<uint32_t>(time), size,
      length};
  const size_t at = out_.size();
  out_.resize(at + whole);  // with zeros
  uint8_t* const to = out_.data() + at;
  std::memcpy(to, head, sizeof head);
  if (size != 0) std::memcpy(to + sizeof head, packet.data(), size);
  std::memcpy(to + whole - sizeof whole, &whole, sizeof whole);
}

int CaptureFile::flush() {
  size_t done = 0;
  while (done < out_.size()) {
    const ssize_t n = write(file_, out_.data() + done, out_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    done += static_cast<size_t>(n);
  }
  out_.clear();
  return 0;
}

int CaptureFile::end(const CaptureCounts& counts) {
  const size_t block = open_block(kStatistics);
  number(0);
  number(static_cast<uint32_t>(counts.end >> 32));
  number(static_cast<uint32_t>(counts.end));
  const auto time = [](uint64_t t) { return t << 32 | t >> 32; };  // the upper half first
  option(kIsbStart, time(counts.begin));
  option(kIsbEnd, time(counts.end));
  option(kIsbReceived, counts.received);
  option(kIsbDropped, counts.dropped);
  number(kEndOfOptions);
  close_block(block);
  return flush();
}

}  // namespace verbena::capture
