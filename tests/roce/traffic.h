// SPDX-License-Identifier: BSD-2-Clause
//
// What the two ends of a test agree on: `roce_end`, the machines of emulator/engine/packets over a UDP
// socket, and `rxe_end`, a verbs program on the kernel's rxe. Each end sends the same requests to the other
// one at the same time, and verifies what it gets.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace verbena::roce_test {

inline constexpr uint32_t kMtu = 1024;
inline constexpr uint32_t kRequests = 400;
inline constexpr uint32_t kMostBytes = 8 * kMtu;
inline constexpr uint32_t kReceives = 16;  // receive requests posted at once
inline constexpr uint32_t kInFlight = 8;   // requests posted at once
inline constexpr uint32_t kReadsInFlight = 4;

// The memory that an end registers: bytes to be read, bytes that are written, and the word of the atomics.
inline constexpr uint64_t kReadable = 0;
inline constexpr uint64_t kReadableSize = 256 * 1024;
inline constexpr uint64_t kWritable = kReadableSize;
inline constexpr uint64_t kWord = kWritable + uint64_t{kRequests} * kMostBytes;
inline constexpr uint64_t kMemory = kWord + 8;

enum class What : uint8_t { kSend, kWrite, kRead, kFetchAdd };

// Request number `i` of an end.
struct Step {
  What what;
  uint32_t length;
  uint64_t offset;  // in the memory of the other end
  uint32_t immediate;
  bool with_immediate;
};

inline Step step(uint32_t i) {
  const uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15;
  Step one{static_cast<What>(mixed >> 62), static_cast<uint32_t>(mixed >> 20) % (kMostBytes + 1), 0, i * 7,
           (mixed >> 50) % 3 == 0};
  if (i % 5 == 0) one.length = one.length / kMtu * kMtu;  // the borders of packets
  if (one.what == What::kWrite) one.offset = kWritable + uint64_t{i} * kMostBytes;
  if (one.what == What::kRead) one.offset = kReadable + (mixed >> 10) % (kReadableSize - kMostBytes);
  if (one.what == What::kFetchAdd) one.offset = kWord, one.length = 8;
  return one;
}

inline uint8_t byte_of(uint64_t what, uint64_t at) {
  return static_cast<uint8_t>((what * 0x9e3779b97f4a7c15 + at * 0x2545f4914f6cdd1d) >> 40);
}
inline constexpr uint64_t kReadableBytes = 1'000'000;  // `what` of the bytes to be read

[[noreturn]] inline void fail(const char* why, uint64_t number = 0) {
  fprintf(stderr, "FAILED: %s (%llu)\n", why, static_cast<unsigned long long>(number));
  exit(1);
}
inline void require(bool holds, const char* promise, uint64_t number = 0) {
  if (!holds) fail(promise, number);
}

// What the ends tell each other over TCP before they begin.
struct Introduction {
  uint32_t qpn;
  uint32_t psn;
  uint64_t address;
  uint32_t rkey;
};

inline void tell(int fd, const void* bytes, size_t size) {
  require(write(fd, bytes, size) == static_cast<ssize_t>(size), "the other end listens");
}
inline void hear(int fd, void* bytes, size_t size) {
  require(recv(fd, bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size), "the other end speaks");
}

inline sockaddr_in address_of(const char* ip, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  require(inet_pton(AF_INET, ip, &address.sin_addr) == 1, "an IPv4 address is given");
  return address;
}

// All that the other end has written is there, and it has counted up the word once for each atomic.
inline void verify_memory(const uint8_t* memory) {
  uint64_t atomics = 0, word;
  for (uint32_t i = 0; i < kRequests; ++i) {
    const Step one = step(i);
    atomics += one.what == What::kFetchAdd;
    if (one.what != What::kWrite) continue;
    for (uint32_t at = 0; at < kMostBytes; ++at) {
      const uint8_t expected = at < one.length ? byte_of(i, at) : uint8_t{0};
      require(memory[one.offset + at] == expected, "a WRITE arrives", i);
    }
  }
  memcpy(&word, memory + kWord, 8);
  require(word == atomics, "each atomic is carried out once", word);
}

inline uint32_t number_of_messages(What what) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < kRequests; ++i) count += step(i).what == what;
  return count;
}

}  // namespace verbena::roce_test
