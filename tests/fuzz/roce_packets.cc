// SPDX-License-Identifier: BSD-2-Clause
//
// Any bytes as a RoCE v2 datagram and as a MAD. No crash; what is read is written and read again as the same;
// a packet whose ICRC was made here is accepted with the identification that it was made for.
#include <array>
#include <vector>

#include "input.h"
#include "roce/cm_mad.h"
#include "roce/icrc.h"
#include "roce/packet.h"

namespace verbena::fuzz {
namespace {

using namespace roce;

bool are_same(const Packet& a, const Packet& b) {
  return a.bth == b.bth && a.deth == b.deth && a.xrceth == b.xrceth && a.reth == b.reth &&
         a.atomic == b.atomic && a.aeth == b.aeth && a.atomic_ack == b.atomic_ack &&
         a.immediate == b.immediate && a.invalidate == b.invalidate &&
         std::equal(a.payload.begin(), a.payload.end(), b.payload.begin(), b.payload.end());
}

void read_packet(std::span<const uint8_t> bytes) {
  Packet packet;
  if (parse(bytes, &packet) != Parsed::kPacket) return;
  std::vector<uint8_t> written(bytes.size());
  const size_t size = write(packet, written);
  // Padding of four bytes and more is possible only where a peer has written it.
  require(size != 0 && size + kIcrcSize <= bytes.size(), "a packet that was read can be written");
  written.resize(size + kIcrcSize);
  Packet again;
  require(parse(written, &again) == Parsed::kPacket, "a packet that was written can be read");
  require(are_same(packet, again), "a packet is read as it was written");
}

void read_mad(std::span<const uint8_t> bytes) {
  const auto mad = parse_cm_mad(bytes);
  if (!mad) return;
  std::array<uint8_t, kMadSize> written;
  write_cm_mad(*mad, written);
  const auto again = parse_cm_mad(written);
  require(again && again->message == mad->message && again->transaction_id == mad->transaction_id,
          "a MAD is read as it was written");
}

void check_icrc(Input& input, std::span<const uint8_t> bytes) {
  if (bytes.size() < 12) return;
  Ipv4Flow flow{{10, 0, 0, 1}, {10, 0, 0, 2}, input.take<uint16_t>(), kUdpPort, input.take<uint16_t>(), true};
  const uint32_t made = icrc(flow, bytes);
  uint16_t found = 0;
  require(find_identification(flow, bytes, made, &found) && found == flow.identification,
          "an identification is found");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  read_packet({data, size});
  // The bytes of a MAD after a proper header.
  std::array<uint8_t, kMadSize> mad;
  write_cm_mad({0, CmRtu{}}, mad);
  mad[17] = static_cast<uint8_t>(0x10 + input.below(11));
  input.take(mad.data() + 24, mad.size() - 24);
  read_mad(mad);
  read_mad({data, size});
  check_icrc(input, {data, size});
  return 0;
}

}  // namespace verbena::fuzz
