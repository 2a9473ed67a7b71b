// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/rss_hash.h"

#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <cstring>

namespace verbena {
namespace {

// The 32 bits of the key from bit `first` on.
uint32_t key_window(const std::array<uint8_t, kRssKeyBytes>& key, size_t first) {
  uint64_t five = 0;  // bytes
  for (size_t i = 0; i < 5; ++i) five = five << 8 | (first / 8 + i < key.size() ? key[first / 8 + i] : 0);
  return static_cast<uint32_t>(five >> (8 - first % 8));
}

class Toeplitz {
 public:
  explicit Toeplitz(const std::array<uint8_t, kRssKeyBytes>& key) : key_(key) {}
  void add(const void* bytes, size_t size) {
    for (size_t i = 0; i < size; ++i)
      for (int bit = 7; bit >= 0; --bit, ++position_)
        if ((static_cast<const uint8_t*>(bytes)[i] >> bit & 1) != 0) hash_ ^= key_window(key_, position_);
  }
  uint32_t hash() const { return hash_; }

 private:
  const std::array<uint8_t, kRssKeyBytes>& key_;
  size_t position_ = 0;
  uint32_t hash_ = 0;
};

}  // namespace

uint32_t rss_hash(const std::array<uint8_t, kRssKeyBytes>& key, uint64_t fields,
                  const FlowFields& frame) noexcept {
  Toeplitz sum(key);
  const bool four = frame.ip_version == 4, six = frame.ip_version == 6;
  const auto chosen = [&](uint64_t of_four, uint64_t of_six) {
    return (four && (fields & of_four) != 0) || (six && (fields & of_six) != 0);
  };
  const size_t address = four ? 4 : 16;
  if (chosen(IBV_RX_HASH_SRC_IPV4, IBV_RX_HASH_SRC_IPV6)) sum.add(frame.source_ip.data(), address);
  if (chosen(IBV_RX_HASH_DST_IPV4, IBV_RX_HASH_DST_IPV6)) sum.add(frame.destination_ip.data(), address);
  const bool tcp = frame.protocol == IPPROTO_TCP, udp = frame.protocol == IPPROTO_UDP;
  const auto has_port = [&](uint64_t of_tcp, uint64_t of_udp) {
    return (tcp && (fields & of_tcp) != 0) || (udp && (fields & of_udp) != 0);
  };
  if (has_port(IBV_RX_HASH_SRC_PORT_TCP, IBV_RX_HASH_SRC_PORT_UDP)) sum.add(&frame.source_port, 2);
  if (has_port(IBV_RX_HASH_DST_PORT_TCP, IBV_RX_HASH_DST_PORT_UDP)) sum.add(&frame.destination_port, 2);
  return sum.hash();
}

}  // namespace verbena
