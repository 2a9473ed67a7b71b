// SPDX-License-Identifier: BSD-2-Clause
#include "check/patterns.h"

#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "check/outstanding.h"

namespace verbena::check {
namespace {

constexpr unsigned char kPattern = 0xa5;
constexpr uint64_t kLongestFill = 1 << 20;  // bytes of a receive
constexpr size_t kPiece = 16384;

// By system calls: the memory may be gone. False: it is.
bool fill(uintptr_t address, uint64_t length) {
  static unsigned char pattern[kPiece];
  memset(pattern, kPattern, sizeof pattern);
  while (length != 0) {
    const size_t part = std::min<uint64_t>(length, sizeof pattern);
    const iovec local = {pattern, part};
    const iovec remote = {reinterpret_cast<void*>(address), part};
    if (process_vm_writev(getpid(), &local, 1, &remote, 1, 0) != static_cast<ssize_t>(part)) return false;
    address += part;
    length -= part;
  }
  return true;
}

// The first byte that is not the pattern; `address + length` if all are, or if they cannot be read.
uintptr_t find_change(uintptr_t address, uint64_t length) {
  static unsigned char bytes[kPiece];
  const uintptr_t end = address + length;
  while (address != end) {
    const size_t part = std::min<uint64_t>(end - address, sizeof bytes);
    const iovec local = {bytes, part};
    const iovec remote = {reinterpret_cast<void*>(address), part};
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != static_cast<ssize_t>(part)) return end;
    const auto* const found =
        std::find_if(bytes, bytes + part, [](unsigned char byte) { return byte != kPattern; });
    if (found != bytes + part) return address + static_cast<size_t>(found - bytes);
    address += part;
  }
  return end;
}

}  // namespace

void fill_pattern(const ibv_context* context, Request& receive) {
  if (!is_enabled(rule("receive-buffer-written")) || receive.accused || receive.bytes > kLongestFill) return;
  for (const Range& range : receive.ranges) {
    if (range.memory == 0 || peers_may_write(context, range.lkey) ||
        find_use_of(range.memory, range.memory + range.length) != nullptr)
      return;
  }
  receive.has_pattern = true;
  for (const Range& range : receive.ranges)
    receive.has_pattern = receive.has_pattern && fill(range.memory, range.length);
}

void check_pattern(const QueuePair& qp, const Request& receive, uint64_t length, const Stack& polling) {
  if (!receive.has_pattern) return;
  uint64_t offset = 0;
  for (const Range& range : receive.ranges) {
    const uint64_t message = std::min<uint64_t>(length - std::min(length, offset), range.length);
    const uintptr_t change = find_change(range.memory + message, range.length - message);
    if (change != range.memory + range.length)
      return report(
          rule("receive-buffer-written"),
          text("%s: byte %llu of a receive with wr_id 0x%llx, behind a message of %llu bytes",
               qp.name.c_str(), static_cast<unsigned long long>(offset + (change - range.memory)),
               static_cast<unsigned long long>(receive.wr_id), static_cast<unsigned long long>(length)),
          {{"posted here", receive.posted}, {"completion polled here", keep_stack(polling)}});
    offset += range.length;
  }
}

}  // namespace verbena::check
