// SPDX-License-Identifier: BSD-2-Clause
#include "capture/network_frame.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "roce/icrc.h"

namespace verbena::capture {
namespace {

constexpr uint16_t kIpv4Type = 0x0800, kIpv6Type = 0x86dd;
constexpr uint8_t kUdp = 17;
constexpr size_t kUdpHeader = 8;
using Gid = std::array<uint8_t, 16>;

bool is_ipv4(const Gid& gid) {
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.data(), kMapped, sizeof kMapped) == 0;
}

// Fills `bytes` from the beginning, and no more than they are.
class Writer {
 public:
  explicit Writer(std::span<uint8_t> bytes) : bytes_(bytes) {}
  void byte(unsigned value) { bytes_[size_++] = static_cast<uint8_t>(value); }
  void word(unsigned value) { byte(value >> 8), byte(value); }
  template <typename Bytes>
  void all(const Bytes& bytes) {
    std::copy(std::begin(bytes), std::end(bytes), more(std::size(bytes)).begin());
  }
  std::span<uint8_t> more(size_t size) {
    size_ += size;
    return bytes_.subspan(size_ - size, size);
  }
  std::span<uint8_t> from(size_t at) { return bytes_.subspan(at, size_ - at); }
  size_t size() const { return size_; }

 private:
  std::span<uint8_t> bytes_;
  size_t size_ = 0;
};

uint32_t sum_words(std::span<const uint8_t> bytes, uint32_t sum) {
  size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) sum += uint32_t{bytes[i]} << 8 | bytes[i + 1];
  return i < bytes.size() ? sum + (uint32_t{bytes[i]} << 8) : sum;
}

// RFC 1071.
uint16_t checksum(uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

void put_word(std::span<uint8_t> to, size_t at, unsigned value) {
  to[at] = static_cast<uint8_t>(value >> 8);
  to[at + 1] = static_cast<uint8_t>(value);
}

void write_ipv4(Writer& out, const PacketRoute& route, size_t udp_length) {
  const size_t begin = out.size();
  out.byte(0x45), out.byte(route.traffic_class);
  out.word(static_cast<unsigned>(20 + udp_length));
  out.word(0), out.word(0x4000);
  out.byte(route.hop_limit), out.byte(kUdp), out.word(0);
  out.all(std::span(route.source).last(4));
  out.all(std::span(route.destination).last(4));
  put_word(out.from(begin), 10, checksum(sum_words(out.from(begin), 0)));
}

void write_ipv6(Writer& out, const PacketRoute& route, size_t udp_length) {
  out.byte(0x60u | route.traffic_class >> 4);
  out.byte((route.traffic_class & 0xfu) << 4 | (route.flow_label >> 16 & 0xf));
  out.word(route.flow_label & 0xffff);
  out.word(static_cast<unsigned>(udp_length));
  out.byte(kUdp), out.byte(route.hop_limit);
  out.all(route.source);
  out.all(route.destination);
}

uint32_t find_icrc(bool is_v4, const PacketRoute& route, uint16_t port, std::span<const uint8_t> packet) {
  if (is_v4) {
    roce::Ipv4Flow flow{{}, {}, port, roce::kUdpPort};
    std::copy_n(route.source.end() - 4, 4, flow.source);
    std::copy_n(route.destination.end() - 4, 4, flow.destination);
    return roce::icrc(flow, packet);
  }
  roce::Ipv6Flow flow{{}, {}, port, roce::kUdpPort};
  std::ranges::copy(route.source, flow.source);
  std::ranges::copy(route.destination, flow.destination);
  return roce::icrc(flow, packet);
}

bool is_link_local(const Gid& gid) { return gid[0] == 0xfe && gid[1] == 0x80; }

// From the GUID, as in the EUI-64 of a link-local address; of others a local one.
HardwareAddress address_in(const Gid& gid) {
  if (is_link_local(gid) && gid[11] == 0xff && gid[12] == 0xfe)
    return {static_cast<uint8_t>(gid[8] ^ 2), gid[9], gid[10], gid[13], gid[14], gid[15]};
  return {0x02, 0x00, gid[12], gid[13], gid[14], gid[15]};
}

}  // namespace

uint16_t source_port(uint32_t flow_label, uint32_t source_qpn, uint32_t target_qpn) noexcept {
  if (flow_label == 0) {
    uint64_t v = uint64_t{source_qpn} * target_qpn;
    v ^= v >> 20;
    v ^= v >> 40;
    flow_label = static_cast<uint32_t>(v & 0xfffff);
  }
  const uint32_t low = (flow_label & 0x3fff) ^ (flow_label & 0xfc000) >> 14;
  return static_cast<uint16_t>(low | 0xc000);
}

HardwareAddress hardware_address(const Gid& gid, const DeviceTable& devices) noexcept {
  const bool v4 = is_ipv4(gid);
  if (v4 && gid[12] >> 4 == 0xe)
    return {0x01, 0x00, 0x5e, static_cast<uint8_t>(gid[13] & 0x7f), gid[14], gid[15]};
  if (gid[0] == 0xff) return {0x33, 0x33, gid[12], gid[13], gid[14], gid[15]};
  if (is_link_local(gid)) return address_in(gid);
  for (uint32_t d = 0; d < std::min(devices.count, kMaxDevices); ++d)
    for (uint32_t port = 1; port <= devices.devices[d].count_ports(); ++port) {
      const PortDescription& described = devices.devices[d].port(port);
      for (uint32_t i = 1; i < std::min(described.gid_count, kMaxGids); ++i)
        if (described.gids[i].raw == gid && described.gids[0].raw[0] == 0xfe)
          return address_in(described.gids[0].raw);
    }
  return address_in(gid);
}

const HardwareAddress& FrameWriter::address_of(const Gid& gid) {
  for (const Known& known : known_)
    if (known.is_set && known.gid == gid) return known.address;
  Known& known = known_[next_++ % known_.size()];
  known = {gid, hardware_address(gid, devices_), true};
  return known.address;
}

std::span<const uint8_t> FrameWriter::make(const PacketRoute& route, uint16_t port,
                                          const roce::Packet& packet) {
  const size_t size = roce::packet_size(packet);
  const size_t udp_length = kUdpHeader + size + roce::kIcrcSize;
  const bool is_v4 = is_ipv4(route.source) && is_ipv4(route.destination);
  frame_.resize(14 + (is_v4 ? 20 : 40) + udp_length);
  Writer out(frame_);
  out.all(address_of(route.destination));
  out.all(address_of(route.source));
  out.word(is_v4 ? kIpv4Type : kIpv6Type);
  is_v4 ? write_ipv4(out, route, udp_length) : write_ipv6(out, route, udp_length);
  const size_t udp = out.size();
  out.word(port), out.word(roce::kUdpPort);
  out.word(static_cast<unsigned>(udp_length)), out.word(0);
  const std::span<uint8_t> bytes = out.more(size);
  roce::write(packet, bytes);
  const uint32_t icrc = find_icrc(is_v4, route, port, bytes);
  roce::put_icrc(out.more(roce::kIcrcSize).data(), icrc);
  if (!is_v4) {
    const uint32_t pseudo =
        sum_words(route.source, sum_words(route.destination, static_cast<uint32_t>(udp_length) + kUdp));
    const uint16_t sum = checksum(sum_words(out.from(udp), pseudo));
    put_word(out.from(udp), 6, sum == 0 ? 0xffff : sum);
  }
  return frame_;
}

}  // namespace verbena::capture
