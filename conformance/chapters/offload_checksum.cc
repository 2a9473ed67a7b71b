// SPDX-License-Identifier: BSD-2-Clause
//
// Checksum offload: IBV_SEND_IP_CSUM and IBV_WC_IP_CSUM_OK, of raw packet QPs. The frames come back as in
// offload_frames.cc.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>

#include "chapters/frames_fixture.h"
#include "support/pair.h"

namespace conformance::offload_checksum_chapter {
namespace {

constexpr size_t ip_at = 14, ip_size = 20, transport_at = ip_at + ip_size, payload_size = 31;

// RFC 1071: over what its checksum covers, that one included, the sum is all ones.
uint32_t sum(const std::vector<uint8_t>& bytes, size_t from, size_t end) {
  uint32_t out = 0;
  for (size_t i = from; i < end; ++i) out += i % 2 == from % 2 ? uint32_t{bytes[i]} << 8 : bytes[i];
  return out;
}
uint16_t folded(uint32_t sum) {
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}
bool ip_sums_up(const std::vector<uint8_t>& frame) {
  return folded(sum(frame, ip_at, transport_at)) == 0xffff;
}
uint32_t pseudo_header_sum(const std::vector<uint8_t>& frame) {
  return sum(frame, ip_at + 12, ip_at + 20) + frame[ip_at + 9] +
         static_cast<uint32_t>(frame.size() - transport_at);
}
bool transport_sums_up(const std::vector<uint8_t>& frame) {
  return folded(pseudo_header_sum(frame) + sum(frame, transport_at, frame.size())) == 0xffff;
}

size_t checksum_at(uint8_t protocol) { return transport_at + (protocol == IPPROTO_UDP ? 6 : 16); }
const char* name_of_protocol(uint8_t protocol) { return protocol == IPPROTO_UDP ? "UDP" : "TCP"; }
void put(std::vector<uint8_t>& bytes, size_t at, uint16_t word) {
  bytes[at] = static_cast<uint8_t>(word >> 8);
  bytes[at + 1] = static_cast<uint8_t>(word);
}

// UDP or TCP over IPv4, with wrong checksums that are not 0.
std::vector<uint8_t> packet(const Mac& to, uint8_t protocol) {
  const size_t header = protocol == IPPROTO_UDP ? 8 : 20;
  std::vector<uint8_t> out(transport_at + header + payload_size);
  const Mac from = mac(0xff);
  std::copy(to.begin(), to.end(), out.begin());
  std::copy(from.begin(), from.end(), out.begin() + 6);
  put(out, 12, 0x0800);
  const uint8_t ip[] = {0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, protocol, 0x12, 0x34, 192, 0, 2, 1, 192, 0, 2, 2};
  std::copy(std::begin(ip), std::end(ip), out.begin() + ip_at);
  put(out, ip_at + 2, static_cast<uint16_t>(out.size() - ip_at));
  put(out, transport_at, 40000);
  put(out, transport_at + 2, 9);
  if (protocol == IPPROTO_UDP) {
    put(out, transport_at + 4, static_cast<uint16_t>(header + payload_size));
  } else {
    out[transport_at + 12] = 5 << 4;  // the header's length
  }
  put(out, checksum_at(protocol), 0x5678);
  for (size_t i = 0; i < payload_size; ++i) out[transport_at + header + i] = static_cast<uint8_t>(i * 7 + 1);
  return out;
}

void correct(std::vector<uint8_t>& frame) {
  put(frame, ip_at + 10, 0);
  put(frame, ip_at + 10, static_cast<uint16_t>(~folded(sum(frame, ip_at, transport_at))));
  const size_t at = checksum_at(frame[ip_at + 9]);
  put(frame, at, 0);
  put(frame, at,
      static_cast<uint16_t>(~folded(pseudo_header_sum(frame) + sum(frame, transport_at, frame.size()))));
}

class ChecksumTest : public FramesTest {
 protected:
  void need_checksums() {
    if ((device().attributes().device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) == 0)
      throw NotClaimed{"IBV_DEVICE_RAW_IP_CSUM is not set"};
    need_frames();
    to_ = receiver();
    rule_ = rule(*to_, mac(1));
  }
  Arrival sent(const std::vector<uint8_t>& frame, unsigned flags = 0) {
    send(frame, flags);
    auto out = arrival(*to_);
    if (!out) throw NotTested{"no frame of the device comes back to it"};
    return *out;
  }

 private:
  std::unique_ptr<Receiver> to_;
  Flow rule_;
};

namespace frames {
using Fixture = ChecksumTest;

CONFORMANCE_TEST(offload, ChecksumsAreFilledIn, "ibv_post_send.ip-csum.header",
                 "ibv_post_send.ip-csum.transport") {
  need_checksums();
  for (const uint8_t protocol : {IPPROTO_UDP, IPPROTO_TCP}) {
    std::vector<uint8_t> frame = packet(mac(1), protocol);
    // As network stacks leave them to an adapter (Linux include/linux/skbuff.h, CHECKSUM_PARTIAL).
    put(frame, ip_at + 10, 0);
    put(frame, checksum_at(protocol), folded(pseudo_header_sum(frame)));
    const Arrival came = sent(frame, IBV_SEND_IP_CSUM);
    ASSERT_EQ(came.bytes.size(), frame.size());
    ABOUT("ibv_post_send.ip-csum.header") EXPECT_TRUE(ip_sums_up(came.bytes)) << name_of_protocol(protocol);
    ABOUT("ibv_post_send.ip-csum.transport")
    EXPECT_TRUE(transport_sums_up(came.bytes)) << name_of_protocol(protocol);
    correct(frame);
    std::copy_n(came.bytes.begin() + ip_at + 10, 2, frame.begin() + ip_at + 10);
    ABOUT("ibv_post_send.ip-csum.transport") EXPECT_EQ(came.bytes, frame) << "other bytes have changed";
  }
}

CONFORMANCE_TEST(offload, ChecksumsAreLeftAlone, "ibv_post_send.ip-csum.only-asked") {
  need_checksums();
  const std::vector<uint8_t> frame = packet(mac(1), IPPROTO_UDP);
  EXPECT_EQ(sent(frame).bytes, frame);
}

CONFORMANCE_TEST(offload, WrongChecksumsAreSeen, "ibv_poll_cq.ip-csum-ok.wrong",
                 "ibv_poll_cq.ip-csum-ok.right") {
  need_checksums();
  for (const uint8_t protocol : {IPPROTO_UDP, IPPROTO_TCP}) {
    std::vector<uint8_t> frame = packet(mac(1), protocol);
    correct(frame);
    const Arrival came = sent(frame);
    ABOUT("ibv_poll_cq.ip-csum-ok.right")
    EXPECT_NE(came.flags & IBV_WC_IP_CSUM_OK, 0u) << name_of_protocol(protocol);
    const About about("ibv_poll_cq.ip-csum-ok.wrong");
    for (const size_t at : {ip_at + 11, checksum_at(protocol) + 1, frame.size() - 1}) {
      std::vector<uint8_t> damaged = frame;
      damaged[at] ^= 0x10;
      EXPECT_EQ(sent(damaged).flags & IBV_WC_IP_CSUM_OK, 0u)
          << name_of_protocol(protocol) << ", byte " << at << " is another";
    }
  }
}

}  // namespace frames

namespace claims {
using Fixture = DeviceTest;

CONFORMANCE_TEST(offload, ChecksumsAreClaimedOnce, "ibv_query_device_ex.raw-ip-csum") {
  if ((device().extended().raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM) == 0)
    throw NotClaimed{"raw_packet_caps has no IBV_RAW_PACKET_CAP_IP_CSUM"};
  EXPECT_NE(device().attributes().device_cap_flags & IBV_DEVICE_RAW_IP_CSUM, 0u);
}

}  // namespace claims

namespace messages {
using Fixture = PairTest;

// A message looks like a packet with a wrong checksum: nobody may mend it.
CONFORMANCE_TEST(offload, MessagesHaveNoChecksums, "ibv_post_send.ip-csum.message") {
  const std::vector<uint8_t> frame = packet(mac(1), IPPROTO_UDP);
  for (const size_t begin : {size_t{0}, ip_at}) {
    const std::string bytes(frame.begin() + static_cast<std::ptrdiff_t>(begin), frame.end());
    near().write(0, bytes);
    ASSERT_EQ(far().receive(1024, 1024), 0);
    SendRequest request = send_request({{0, static_cast<uint32_t>(bytes.size())}});
    request.flags |= IBV_SEND_IP_CSUM;
    if (const int error = near().post(request); error != 0) {
      EXPECT_GT(error, 0) << "refused, but not with an errno value";
      return;
    }
    EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
    EXPECT_EQ(far().read(1024, bytes.size()), bytes);
  }
}

}  // namespace messages

}  // namespace
}  // namespace conformance::offload_checksum_chapter
