// SPDX-License-Identifier: BSD-2-Clause
//
// Address handles and what a datagram says of its sender.
#include <arpa/inet.h>

#include <cstring>
#include <optional>

#include "support/ends.h"
#include "support/fixture.h"
#include "support/hop_limit.h"

namespace conformance::ah_chapter {
namespace {

class Fixture : public DeviceTest {
 protected:
  Ends& ends() {
    if (!ends_) {
      EndsSpec spec;
      spec.qp.type = IBV_QPT_UD;
      ends_.emplace(device(), spec);
    }
    return *ends_;
  }
  End& near() { return ends().near; }
  End& far() { return ends().far; }

  Ah create(ibv_ah_attr attr) { return Ah(CALL(ibv_create_ah(near().pd, &attr))); }

  // Sends a datagram from one end by this handle; returns the receiver's completion.
  ibv_wc send(End& from, ibv_ah* ah, End& to) {
    EXPECT_TRUE(succeeded(to.post_receive(0, 256)));
    from.buffer[1000] = 0x77;
    ibv_sge element = from.sge(1000, 20);
    ibv_send_wr wr = from.request(IBV_WR_SEND, &element);
    wr.wr.ud.ah = ah;
    EXPECT_TRUE(succeeded(from.post(wr)));
    EXPECT_EQ(completion(from.cq).status, IBV_WC_SUCCESS);
    return completion(to.cq);
  }
  // A protocol of its own, whose packets may have no GRH.
  bool has_other_headers() { return device().port().link_layer == IBV_LINK_LAYER_UNSPECIFIED; }
  ibv_grh* header(End& end) { return reinterpret_cast<ibv_grh*>(end.buffer.data()); }

 private:
  std::optional<Ends> ends_;
};

CONFORMANCE_TEST(ah, ReachesWhatItNames, "ibv_create_ah.pointer", "ibv_create_ah.reaches",
                 "ibv_destroy_ah.zero") {
  Ah ah = create(device().own_address());
  ABOUT("ibv_create_ah.pointer") {
    ASSERT_NE(ah, nullptr);
    EXPECT_EQ(ah->context, context());
    EXPECT_EQ(ah->pd, near().pd.get());
  }
  ABOUT("ibv_create_ah.reaches") {
    EXPECT_EQ(send(near(), ah, far()).status, IBV_WC_SUCCESS);
    EXPECT_EQ(far().buffer[40], 0x77);
  }
  ABOUT("ibv_destroy_ah.zero") EXPECT_SUCCEEDS(ah.destroy());
}

// An address of the documentation's ranges (RFC 5737, RFC 3849), which nobody has.
ibv_ah_attr of_nobody(ibv_ah_attr address) {
  uint8_t* const raw = address.grh.dgid.raw;
  const bool is_ipv4 = raw[0] == 0 && raw[10] == 0xff;
  const uint8_t ipv6[] = {0x20, 0x01, 0x0d, 0xb8}, ipv4[] = {192, 0, 2, 77};
  std::memcpy(is_ipv4 ? raw + 12 : raw, is_ipv4 ? ipv4 : ipv6, 4);
  return address;
}

CONFORMANCE_TEST_AS(Traits().slow().limit(60), ah, AddressOfNobody, "ibv_create_ah.unreachable") {
  if (device().own_address().is_global == 0) throw NotClaimed{"the port's addresses are LIDs"};
  const Ah ah = create(of_nobody(device().own_address()));
  const std::string seen = ah ? "a handle" : "refused with " + errno_text(errno);
  EXPECT_TRUE(create(device().own_address()));
  observe("ibv_create_ah.unreachable", seen);
}

CONFORMANCE_TEST(ah, NonsenseIsRefused, "ibv_create_ah.bad-port", "ibv_create_ah.bad-sgid") {
  {
    const About about("ibv_create_ah.bad-port");
    for (const uint8_t port : {0, 254}) {
      ibv_ah_attr attr = device().own_address();
      attr.port_num = port;
      EXPECT_EQ(create(attr), nullptr) << "port " << static_cast<int>(port);  // the page promises no errno
    }
  }
  const About about("ibv_create_ah.bad-sgid");
  if (!device().is_ethernet()) throw NotClaimed{"the port's link layer is not Ethernet"};
  if (device().port().gid_tbl_len > 255)
    throw NotTested{"the GID table has as many entries as an index can name"};
  ibv_ah_attr attr = device().own_address();
  attr.is_global = 1;
  attr.grh.dgid = device().gid();
  attr.grh.sgid_index = 255;
  EXPECT_EQ(create(attr), nullptr);
}

CONFORMANCE_TEST(ah, EthernetNeedsAGrh, "ibv_create_ah.grh-required") {
  if (!device().is_ethernet()) throw NotClaimed{"the port's link layer is not Ethernet"};
  ibv_ah_attr attr = device().own_address();
  attr.is_global = 0;
  EXPECT_EQ(create(attr), nullptr);
}

CONFORMANCE_TEST(ah, NothingIsUsedUp, "ibv_create_ah.reuse") {
  ibv_ah_attr attr = device().own_address();
  for (int i = 0; i < 1000; ++i) {
    Ah ah(ibv_create_ah(near().pd, &attr));
    ASSERT_NE(ah, nullptr) << "round " << i;
    ASSERT_EQ(ah.destroy(), 0) << "round " << i;
  }
}

CONFORMANCE_TEST(ah, CompletionNamesTheSender, "ibv_poll_cq.src-qp", "ibv_poll_cq.ud-byte-len",
                 "ibv_poll_cq.grh-flag") {
  const ibv_wc wc = send(near(), near().ah, far());
  ABOUT("ibv_poll_cq.src-qp") EXPECT_EQ(wc.src_qp, near().qp->qp_num);
  ABOUT("ibv_poll_cq.ud-byte-len") EXPECT_EQ(wc.byte_len, 60u);
  const About about("ibv_poll_cq.grh-flag");
  if (has_other_headers()) throw NotTested{"neither Ethernet nor InfiniBand: its packets may have no GRH"};
  const bool has_flag = (wc.wc_flags & IBV_WC_GRH) != 0;
  if (device().own_address().is_global != 0) {
    EXPECT_TRUE(has_flag);
  } else if (has_flag) {
    EXPECT_EQ(ntohl(header(far())->version_tclass_flow) >> 28, 6u) << "what the flag tells of is no GRH";
  }
}

CONFORMANCE_TEST(ah, HeaderHasTheHandlesFields, "ibv_create_ah.grh-fields", "ibv_create_ah.hop-limit") {
  ibv_ah_attr attr = device().own_address();
  if (!attr.is_global) throw NotTested{"the handle has no GRH"};
  attr.grh.traffic_class = 0x24;
  attr.grh.flow_label = 0x12345;
  attr.grh.hop_limit = 33;
  const Ah ah = create(attr);
  ASSERT_NE(ah, nullptr);
  const ibv_wc wc = send(near(), ah, far());
  if (has_other_headers() && (wc.wc_flags & IBV_WC_GRH) == 0)
    throw NotTested{"neither Ethernet nor InfiniBand: its packets may have no GRH"};
  ASSERT_NE(wc.wc_flags & IBV_WC_GRH, 0u);
  const uint8_t* bytes = far().buffer.data();
  const bool is_ipv4 = (bytes[20] >> 4) == 4 && (bytes[0] >> 4) != 6;  // the last 20 of the 40 bytes
  if (is_ipv4) {
    ABOUT("ibv_create_ah.grh-fields") EXPECT_EQ(bytes[21] >> 2, 0x24 >> 2) << "type of service, without ECN";
    const About about("ibv_create_ah.hop-limit");
    expect_hop_limit(device(), bytes[28], 33);
    return;
  }
  const uint32_t word = ntohl(header(far())->version_tclass_flow);
  ABOUT("ibv_create_ah.grh-fields") {
    EXPECT_EQ(word >> 28, 6u);
    EXPECT_EQ(word >> 22 & 0x3f, 0x24u >> 2) << "traffic class, without ECN";
    EXPECT_EQ(word & 0xfffff, 0x12345u);
  }
  const About about("ibv_create_ah.hop-limit");
  expect_hop_limit(device(), header(far())->hop_limit, 33);
}

CONFORMANCE_TEST(ah, AttributesFromACompletion, "ibv_init_ah_from_wc.fields", "ibv_init_ah_from_wc.usable") {
  ibv_wc wc = send(near(), near().ah, far());
  ibv_ah_attr attr = {};
  ASSERT_EQ(CALL(ibv_init_ah_from_wc(context(), device().port_number(), &wc, header(far()), &attr)), 0);
  ABOUT("ibv_init_ah_from_wc.fields") {
    EXPECT_EQ(attr.port_num, device().port_number());
    EXPECT_EQ(attr.sl, wc.sl);
    if ((wc.wc_flags & IBV_WC_GRH) != 0) {
      EXPECT_EQ(attr.is_global, 1);
      EXPECT_EQ(memcmp(attr.grh.dgid.raw, device().gid().raw, 16), 0) << gid_text(attr.grh.dgid);
    }
  }
  const About about("ibv_init_ah_from_wc.usable");
  const Ah ah(CALL(ibv_create_ah(far().pd, &attr)));
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(send(far(), ah, near()).src_qp, far().qp->qp_num);
}

CONFORMANCE_TEST(ah, HandleFromACompletion, "ibv_create_ah_from_wc.reaches",
                 "ibv_create_ah_from_wc.bad-port") {
  ibv_wc wc = send(near(), near().ah, far());
  const Ah ah(CALL(ibv_create_ah_from_wc(far().pd, &wc, header(far()), device().port_number())));
  ABOUT("ibv_create_ah_from_wc.reaches") ASSERT_NE(ah, nullptr);
  const About about("ibv_create_ah_from_wc.bad-port");
  const Ah none(CALL(ibv_create_ah_from_wc(far().pd, &wc, header(far()), 254)));
  EXPECT_EQ(none, nullptr);
  const About reaches("ibv_create_ah_from_wc.reaches");
  EXPECT_EQ(send(far(), ah, near()).src_qp, far().qp->qp_num);
}

}  // namespace
}  // namespace conformance::ah_chapter
