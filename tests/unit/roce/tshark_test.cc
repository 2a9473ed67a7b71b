// SPDX-License-Identifier: BSD-2-Clause
//
// tshark reads what the codec writes: a packet of each opcode and a MAD of each kind, over IPv4 and IPv6. It
// names each as InfiniBand, and finds none malformed. Its heuristic for RPC over RDMA takes short SENDs for
// its own, and is off.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "roce/cm_mad.h"
#include "roce/icrc.h"
#include "roce/packet.h"
#include "unit/common/temporary_folder.h"

namespace verbena::roce {
namespace {

using Bytes = std::vector<uint8_t>;

// A capture of IP packets (LINKTYPE_RAW) as libpcap writes it.
class Capture {
 public:
  Capture() { numbers({0xa1b2c3d4, 2u | 4u << 16, 0, 0, 65535, 101}); }

  void add(const Packet& packet, bool ipv6) {
    Bytes datagram(kMaxPacket);
    datagram.resize(write(packet, datagram));
    const size_t udp_size = 8 + datagram.size() + kIcrcSize;
    Bytes ip(ipv6 ? 40 : 20);
    uint32_t crc;
    if (ipv6) {
      Ipv6Flow flow{{0xfd, 1}, {0xfd, 2}, 0xc123, kUdpPort};
      ip[0] = 0x60;
      put_bits(&ip[0], 32, 16, udp_size);
      ip[6] = 17;
      ip[7] = 64;
      std::copy_n(flow.source, 16, &ip[8]);
      std::copy_n(flow.destination, 16, &ip[24]);
      crc = icrc(flow, datagram);
    } else {
      const Ipv4Flow flow{{10, 0, 0, 1}, {10, 0, 0, 2}, 0xc123, kUdpPort};
      ip[0] = 0x45;
      put_bits(&ip[0], 16, 16, 20 + udp_size);
      ip[6] = 0x40;
      ip[8] = 64;
      ip[9] = 17;
      std::copy_n(flow.source, 4, &ip[12]);
      std::copy_n(flow.destination, 4, &ip[16]);
      crc = icrc(flow, datagram);
    }
    uint8_t udp[8] = {};
    put_bits(udp, 0, 16, 0xc123);
    put_bits(udp, 16, 16, kUdpPort);
    put_bits(udp, 32, 16, udp_size);
    datagram.resize(datagram.size() + kIcrcSize);
    put_icrc(&datagram[datagram.size() - kIcrcSize], crc);
    const auto size = static_cast<uint32_t>(ip.size() + udp_size);
    numbers({++packets_, 0, size, size});
    for (const auto& part : {ip, Bytes(udp, udp + 8), datagram})
      bytes_.insert(bytes_.end(), part.begin(), part.end());
  }

  void save(const std::string& file) const {
    std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(bytes_.data()),
                                                static_cast<std::streamsize>(bytes_.size()));
  }
  uint32_t packets() const { return packets_; }

 private:
  void numbers(std::initializer_list<uint32_t> list) {
    for (uint32_t number : list)
      for (int i = 0; i < 4; ++i) bytes_.push_back(static_cast<uint8_t>(number >> (8 * i)));
  }

  Bytes bytes_;
  uint32_t packets_ = 0;
};

std::vector<std::string> lines_of(const std::string& command) {
  std::vector<std::string> lines;
  FILE* const out = popen(command.c_str(), "r");
  char line[4096];
  while (fgets(line, sizeof line, out) != nullptr) lines.emplace_back(line);
  EXPECT_EQ(pclose(out), 0) << command;
  return lines;
}

// Every message of the connection manager, and every opcode that tshark 4.0 knows (it knows no XRC).
void add_all(Capture& capture, bool ipv6) {
  Bytes payload(60, 7);
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo* info = find_opcode(static_cast<uint8_t>(opcode));
    if (info == nullptr || info->transport == TransportKind::kXrc) continue;
    Packet packet;
    packet.bth.opcode = static_cast<uint8_t>(opcode);
    packet.bth.destination_qpn = 0x123;
    packet.reth.length = 60;
    size_t size = info->has_payload ? 57 : 0;
    if (info->transport == TransportKind::kCnp) size = 16;
    packet.payload = {payload.data(), size};
    capture.add(packet, ipv6);
  }
  for (const CmMessage& message :
       {CmMessage(CmReq{}), CmMessage(CmMra{}), CmMessage(CmRej{}), CmMessage(CmRep{}), CmMessage(CmRtu{}),
        CmMessage(CmDreq{}), CmMessage(CmDrep{}), CmMessage(CmSidrReq{}), CmMessage(CmSidrRep{}),
        CmMessage(CmLap{}), CmMessage(CmApr{})}) {
    std::array<uint8_t, kMadSize> mad;
    write_cm_mad({1, message}, mad);
    Packet packet;
    packet.bth.opcode = opcode_of(TransportKind::kUd, PacketType::kSendOnly);
    packet.bth.destination_qpn = kManagementQpn;
    packet.deth = {kManagementQkey, kManagementQpn};
    packet.payload = mad;
    capture.add(packet, ipv6);
  }
}

TEST(Tshark, ReadsWhatIsWritten) {
  if (system("tshark --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "tshark is not installed";
  Capture capture;
  for (bool ipv6 : {false, true}) add_all(capture, ipv6);
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/packets.pcap";
  capture.save(file);
  const auto lines = lines_of("tshark -n -r " + file +
                              " --disable-heuristic rpcrdma_infiniband -o udp.ignore_ipv6_zero_checksum:TRUE "
                              "-T fields -e infiniband.bth.opcode -e _ws.malformed"
                              " -e _ws.expert.message 2>/dev/null");
  ASSERT_EQ(lines.size(), capture.packets());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_NE(lines[i][0], '\t') << "packet " << i + 1 << " is not InfiniBand: " << lines[i];
    EXPECT_NE(lines[i].find("\t\t\n"), std::string::npos) << "packet " << i + 1 << ": " << lines[i];
  }
}

}  // namespace
}  // namespace verbena::roce
