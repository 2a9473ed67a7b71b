// SPDX-License-Identifier: BSD-2-Clause
//
// Values worked out by hand from the kernel's rdma_calc_flow_label() and rdma_flow_label_to_udp_sport()
// (<rdma/ib_verbs.h>).
#include "engine/roce_transport/source_port.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

TEST(RoceSourcePort, FlowLabelMixesBothNumbers) {
  EXPECT_EQ(flow_label_of(0x12, 0x34), 0x3a8u);       // the product itself: nothing lies above 20 bits
  EXPECT_EQ(flow_label_of(0x1000, 0x200), 0x00002u);  // 0x200000 ^ 0x2
  // 0xfffffe000001 ^ 0xfffffe0 = 0xfffff1ffffe1, and that ^ 0xff = 0xfffff1ffff1e.
  EXPECT_EQ(flow_label_of(0xffffff, 0xffffff), 0xfff1eu);
  EXPECT_EQ(flow_label_of(0x123456, 0xabcdef), flow_label_of(0xabcdef, 0x123456))
      << "both ends have the same";
}

TEST(RoceSourcePort, PortHasAllBitsOfTheFlowLabel) {
  EXPECT_EQ(source_port_of(0), 0xc000);
  EXPECT_EQ(source_port_of(0x3fff), 0xffff);
  EXPECT_EQ(source_port_of(0x4000), 0xc001);
  EXPECT_EQ(source_port_of(0x12345), 0xe341);
  EXPECT_EQ(source_port_of(0xfffff), 0xffc0);
}

}  // namespace
}  // namespace verbena
