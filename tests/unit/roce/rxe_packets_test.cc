// SPDX-License-Identifier: BSD-2-Clause
//
// Packets that the kernel's rxe has made (rxe/packets.txt says how they were captured): each is read, has the
// ICRC that icrc.h computes, and is written again byte by byte.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "roce/cm_mad.h"
#include "roce/icrc.h"
#include "roce/packet.h"

namespace verbena::roce {
namespace {

struct Captured {
  std::string what;
  std::vector<uint8_t> ip;  // from the IP header on

  bool is_ipv4() const { return ip[0] >> 4 == 4; }
  size_t ip_header() const { return is_ipv4() ? 20 : 40; }
  std::span<const uint8_t> datagram() const { return std::span(ip).subspan(ip_header() + 8); }
  uint16_t number(size_t at) const { return static_cast<uint16_t>(ip[at] << 8 | ip[at + 1]); }

  Ipv4Flow ipv4() const {
    Ipv4Flow flow{{}, {}, number(20), number(22), number(4), (ip[6] & 0x40) != 0};
    std::copy_n(&ip[12], 4, flow.source);
    std::copy_n(&ip[16], 4, flow.destination);
    return flow;
  }
  Ipv6Flow ipv6() const {
    Ipv6Flow flow{{}, {}, number(40), number(42)};
    std::copy_n(&ip[8], 16, flow.source);
    std::copy_n(&ip[24], 16, flow.destination);
    return flow;
  }
  uint32_t icrc_of(std::span<const uint8_t> packet) const {
    return is_ipv4() ? icrc(ipv4(), packet) : icrc(ipv6(), packet);
  }
};

std::vector<Captured> captured() {
  std::vector<Captured> all;
  std::ifstream file(VERBENA_SOURCE_DIR "/tests/unit/roce/rxe/packets.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    Captured one;
    std::string hex;
    std::istringstream(line) >> one.what >> hex;
    for (size_t at = 0; at + 1 < hex.size(); at += 2)
      one.ip.push_back(static_cast<uint8_t>(std::stoul(hex.substr(at, 2), nullptr, 16)));
    all.push_back(one);
  }
  return all;
}

TEST(RxePackets, AreReadAndWrittenByteByByte) {
  std::set<unsigned> opcodes;
  for (const Captured& one : captured()) {
    Packet packet;
    ASSERT_EQ(parse(one.datagram(), &packet), Parsed::kPacket) << one.what;
    opcodes.insert(packet.bth.opcode);
    std::vector<uint8_t> written(kMaxPacket);
    const size_t size = write(packet, written);
    put_icrc(&written[size], one.icrc_of(std::span(written).first(size)));
    written.resize(size + kIcrcSize);
    EXPECT_EQ(written, std::vector<uint8_t>(one.datagram().begin(), one.datagram().end())) << one.what;
  }
  // RC: SEND, WRITE, READ, their answers, atomics; UC; UD.
  for (unsigned opcode : {0x00, 0x02, 0x04, 0x06, 0x07, 0x08, 0x0a, 0x0c, 0x0d, 0x0e, 0x0f, 0x11, 0x12, 0x13,
                          0x14, 0x20, 0x22, 0x64})
    EXPECT_TRUE(opcodes.contains(opcode)) << opcode;
}

TEST(RxePackets, TellTheirIdentification) {
  int ipv4 = 0, ipv6 = 0;
  for (const Captured& one : captured()) {
    if (!one.is_ipv4()) {
      ++ipv6;
      continue;
    }
    ++ipv4;
    const auto datagram = one.datagram();
    uint16_t identification;
    ASSERT_TRUE(find_identification(one.ipv4(), datagram.first(datagram.size() - kIcrcSize),
                                    get_icrc(datagram.last(kIcrcSize).data()), &identification))
        << one.what;
    EXPECT_EQ(identification, one.number(4)) << one.what;
  }
  EXPECT_GT(ipv4, 20);
  EXPECT_GT(ipv6, 2);
}

TEST(RxePackets, OfItsConnectionManagerAreReadAndWritten) {
  std::set<size_t> kinds;
  for (const Captured& one : captured()) {
    Packet packet;
    ASSERT_EQ(parse(one.datagram(), &packet), Parsed::kPacket);
    if (packet.bth.destination_qpn != kManagementQpn) continue;
    EXPECT_EQ(packet.deth.qkey, kManagementQkey);
    const auto mad = parse_cm_mad(packet.payload);
    ASSERT_TRUE(mad.has_value()) << one.what;
    std::array<uint8_t, kMadSize> written;
    write_cm_mad(*mad, written);
    EXPECT_TRUE(std::equal(written.begin(), written.end(), packet.payload.begin(), packet.payload.end()))
        << one.what;
    kinds.insert(mad->message.index());
    if (const CmReq* req = std::get_if<CmReq>(&mad->message)) {
      EXPECT_EQ(req->service_id >> 16, 0x0000000106u);  // RDMA_PS_TCP
      EXPECT_EQ(req->pkey, kDefaultPkey);
      EXPECT_EQ(req->path_mtu, 5);  // 4096
    }
  }
  EXPECT_EQ(kinds, (std::set<size_t>{0, 2, 3, 4, 5, 6, 7,
                                     8}));  // REQ, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP
}

}  // namespace
}  // namespace verbena::roce
