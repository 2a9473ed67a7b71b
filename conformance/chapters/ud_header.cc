// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams: every field of the 40 bytes before the data, by each kind of GID that the port has; datagrams
// without data; receives that are too short; the same on an SRQ.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "support/pair.h"

namespace conformance::ud_header_chapter {
namespace {

constexpr uint8_t traffic_class = 0x24;
constexpr uint32_t flow_label = 0x12345;

enum class Header : uint8_t { ipv4, ipv6, infiniband };

// What the header says of its packet's length counts what follows it: with RoCE v2 UDP (8 bytes); BTH (12),
// DETH (8), immediate data (4), the padded payload, ICRC (4).
uint32_t behind_header(Header header, uint32_t data, bool has_immediate) {
  return (header == Header::infiniband ? 0 : 8) + 12 + 8 + (has_immediate ? 4 : 0) + (data + 3) / 4 * 4 + 4;
}

uint32_t big_endian(const std::string& bytes, size_t at, size_t count) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

// RFC 1071: over a header with its checksum the sum is all ones.
bool sums_up(const std::string& header) {
  uint32_t sum = 0;
  for (size_t i = 0; i < header.size(); i += 2) sum += big_endian(header, i, 2);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

// A QP that sends to itself by an address handle with a GID of the kind in question.
class HeaderTest : public PairTest {
 protected:
  void use(Header header) {
    header_ = header;
    find_gid();
    wire::MakeEnd spec;
    spec.type = IBV_QPT_UD;
    end_.emplace(topology().near(), spec);
    if (const int error = end_->connect(end_->facts()); error != 0)
      throw Deviation{"to connect an end; expected: 0; seen: " + errno_text(error), Where::current()};
    ibv_ah_attr attr = device().own_address();
    attr.is_global = 1;
    attr.grh.dgid = gid_.gid;
    attr.grh.sgid_index = static_cast<uint8_t>(gid_.gid_index);
    attr.grh.traffic_class = traffic_class;
    attr.grh.flow_label = flow_label;
    ah_ = Ah(CALL(ibv_create_ah(own().pd, &attr)));
    if (!ah_)
      throw NotTested{"no address handle to itself: ibv_create_ah.reaches; seen: " + errno_text(errno)};
  }
  // The 40 bytes of a datagram of so many bytes. IPv4: the last 20 of them.
  std::string header_of(uint32_t data, bool has_immediate = false) {
    EXPECT_TRUE(succeeded(own().post_receive(0, 256, 2)));
    ibv_sge element = own().sge(1024, data);
    ibv_send_wr wr = own().request(has_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, &element);
    wr.wr.ud = {ah_, end_->facts().qpn, own().qkey};
    EXPECT_TRUE(succeeded(own().post(wr)));
    for (const ibv_wc& wc : completions(own().cq, 2)) {
      if (wc.status != IBV_WC_SUCCESS)
        throw Deviation{"a datagram to itself; seen: " + wc_text(wc), Where::current()};
      if (wc.wr_id == 2 && (wc.wc_flags & IBV_WC_GRH) == 0) throw NotTested{"the message has no GRH"};
    }
    const std::string bytes(reinterpret_cast<const char*>(own().buffer.data()), 40);
    return header_ == Header::ipv4 ? bytes.substr(20) : bytes;
  }
  std::string gid(size_t from = 0) const {
    return std::string(reinterpret_cast<const char*>(gid_.gid.raw) + from, sizeof gid_.gid.raw - from);
  }
  Header kind() const { return header_; }

 private:
  const End& own() { return topology().host().at(end_->facts().end).end; }

  void find_gid() {
    ibv_gid_entry entries[256];
    const ssize_t count = CALL(ibv_query_gid_table(context(), entries, std::size(entries), 0));
    for (ssize_t i = 0; i < count; ++i) {
      const ibv_gid_entry& entry = entries[i];
      if (entry.port_num != device().port_number()) continue;
      const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(entry.gid.raw)) != 0;
      const Header header = entry.gid_type != IBV_GID_TYPE_ROCE_V2 ? Header::infiniband
                            : is_ipv4                              ? Header::ipv4
                                                                   : Header::ipv6;
      const bool is_other = header_ == Header::ipv6 && header == Header::infiniband && !is_ipv4;
      if (header != header_ && !is_other) continue;
      gid_ = entry;
      if (header == header_) return;
    }
    if (gid_.port_num == 0) throw NotTested{"the port has no GID of this kind"};
    header_ = Header::infiniband;
  }

  Header header_ = Header::ipv4;
  ibv_gid_entry gid_ = {};
  std::optional<Endpoint> end_;
  Ah ah_;
};

namespace header {
using Fixture = HeaderTest;

CONFORMANCE_TEST(ud, Ipv4Header, "ud.grh.ipv4.version", "ud.grh.ipv4.checksum", "ud.grh.ipv4.length",
                 "ud.grh.ipv4.protocol", "ud.grh.ipv4.addresses") {
  use(Header::ipv4);
  for (const bool has_immediate : {false, true}) {
    for (const uint32_t data : {0u, 1u, 8u, 201u}) {
      const std::string ip = header_of(data, has_immediate);
      ABOUT("ud.grh.ipv4.version") EXPECT_EQ(big_endian(ip, 0, 1), 0x45u);
      ABOUT("ud.grh.ipv4.checksum") EXPECT_TRUE(sums_up(ip));
      ABOUT("ud.grh.ipv4.length") {
        EXPECT_EQ(big_endian(ip, 2, 2), 20 + behind_header(kind(), data, has_immediate)) << data << " bytes";
      }
      ABOUT("ud.grh.ipv4.protocol") EXPECT_EQ(big_endian(ip, 9, 1), unsigned{IPPROTO_UDP});
      ABOUT("ud.grh.ipv4.addresses") {
        EXPECT_EQ(ip.substr(12, 4), gid(12)) << "source address";
        EXPECT_EQ(ip.substr(16, 4), gid(12)) << "destination address";
      }
    }
  }
}

CONFORMANCE_TEST(ud, Ipv6Header, "ud.grh.ipv6.fields", "ud.grh.ipv6.payload-length",
                 "ud.grh.ipv6.next-header", "ud.grh.ipv6.gids") {
  use(Header::ipv6);
  for (const bool has_immediate : {false, true}) {
    for (const uint32_t data : {0u, 1u, 8u, 201u}) {
      const std::string ip = header_of(data, has_immediate);
      ABOUT("ud.grh.ipv6.fields") {
        const uint32_t word = big_endian(ip, 0, 4);
        EXPECT_EQ(word >> 28, 6u) << "version";
        EXPECT_EQ(word >> 22 & 0x3f, unsigned{traffic_class} >> 2) << "traffic class, without ECN";
        EXPECT_EQ(word & 0xfffff, flow_label);
      }
      ABOUT("ud.grh.ipv6.payload-length") {
        EXPECT_EQ(big_endian(ip, 4, 2), behind_header(kind(), data, has_immediate)) << data << " bytes";
      }
      ABOUT("ud.grh.ipv6.next-header") {
        EXPECT_EQ(big_endian(ip, 6, 1), kind() == Header::infiniband ? 0x1bu : unsigned{IPPROTO_UDP});
      }
      ABOUT("ud.grh.ipv6.gids") {
        EXPECT_EQ(ip.substr(8, 16), gid()) << "the sender's";
        EXPECT_EQ(ip.substr(24, 16), gid()) << "the receiver's";
      }
    }
  }
}

}  // namespace header

// The near end sends to the far one, which is in question.
class DatagramTest : public PairTest {
 protected:
  static PairSpec spec(bool has_srq, uint32_t receive_sges = 1) {
    PairSpec spec;
    spec.both.type = IBV_QPT_UD;
    spec.both.receive_sges = receive_sges;
    spec.far = spec.both;
    spec.far->srq = has_srq;
    spec.tests_far = true;
    return spec;
  }
  void send(uint32_t bytes) {
    ASSERT_EQ(near().post(send_request({{1024, bytes}})), 0);
    ASSERT_EQ(near().completion().status, IBV_WC_SUCCESS);
  }
  void empty_datagram(bool has_srq) {
    pair(spec(has_srq));
    ASSERT_EQ(far().receive(64, 40), 0);
    ASSERT_EQ(near().post(send_request({})), 0);
    ASSERT_EQ(near().completion().status, IBV_WC_SUCCESS);
    const Completion received = far().received();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.bytes, 40u);
    EXPECT_TRUE(far().untouched(0, 64));
    EXPECT_TRUE(far().untouched(104, 256));
  }
};

namespace datagrams {
using Fixture = DatagramTest;

CONFORMANCE_TEST(ud, WithoutData, "ud.empty") { empty_datagram(false); }
CONFORMANCE_TEST(ud, WithoutDataOnAnSrq, "ud.srq.empty") { empty_datagram(true); }

CONFORMANCE_TEST(ud, HeaderIsScatteredOnAnSrq, "ud.grh.srq-scatter") {
  if (device().attributes().max_srq_sge < 3) throw NotClaimed{"max_srq_sge is below 3"};
  pair(spec(true, 3));
  near().fill_pattern(1024, 8, 5);
  // Once in a piece, to know the header's end; then in three.
  ASSERT_EQ(far().receive(1024, 128), 0);
  send(8);
  const Completion whole = far().received();
  EXPECT_EQ(whole.bytes, 48u);
  const std::string header = far().read(1024, 40);
  ASSERT_EQ(far().receive({{1, {{0, 7}, {100, 35}, {200, 64}}}}), 0);
  send(8);
  EXPECT_EQ(far().received().bytes, 48u);
  EXPECT_TRUE(far().has_pattern(133, 2, 5));
  EXPECT_TRUE(far().untouched(135, 65));
  EXPECT_TRUE(far().has_pattern(200, 6, 5, 2));
  EXPECT_TRUE(far().untouched(206, 64));
  if ((whole.flags & IBV_WC_GRH) == 0) return;
  // With IPv4 the first 20 bytes are undefined; an identification differs from packet to packet.
  EXPECT_EQ(far().read(129, 4), header.substr(36)) << "the last four bytes of the header";
}

CONFORMANCE_TEST(ud, ShortReceiveOfAnSrq, "ud.srq.short-receive") {
  for (const uint32_t length : {1u, 20u, 40u, 47u}) {
    new_pair(spec(true));
    ASSERT_EQ(far().receive({{1, {{64, length}}}, {2, {{512, 128}}}}), 0);
    send(8);
    for (const Completion& received : far().poll(1, scaled(std::chrono::milliseconds(20)), true))
      EXPECT_NE(received.status, IBV_WC_SUCCESS) << "a receive of " << length << " bytes";
    EXPECT_TRUE(far().untouched(0, 64));
    EXPECT_TRUE(far().untouched(64 + length, 256));
    if (far().state() != IBV_QPS_RTS) continue;  // the error may be the QP's
    send(8);
    // A device that leaves the short one in its place fails with it again.
    for (const Completion& received : far().poll(1, scaled(std::chrono::milliseconds(20)), true)) {
      if (received.id == 2) {
        EXPECT_EQ(received.bytes, 48u);
      } else {
        EXPECT_NE(received.status, IBV_WC_SUCCESS);
      }
    }
  }
}

}  // namespace datagrams

}  // namespace
}  // namespace conformance::ud_header_chapter
