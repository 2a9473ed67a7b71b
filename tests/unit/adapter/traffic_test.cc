// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/traffic.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace verbena {
namespace {

class TrafficOfQp : public ::testing::Test {
 protected:
  void is_of(ibv_qp_type type) { qp_->type = static_cast<uint8_t>(type); }
  void sends(Passing passing, uint32_t length, uint64_t packets) {
    count_passing(qp_->requests_out, qp_->bytes_out, qp_->packets_out, passing, length, packets);
  }
  void receives(Passing passing, uint32_t length, uint64_t packets) {
    count_passing(qp_->requests_in, qp_->bytes_in, qp_->packets_in, passing, length, packets);
  }
  // "octets, packets, of them to groups; ..." that were sent; and that were received
  std::string traffic() const {
    const PortCountValues values = traffic_of(*qp_);
    const auto text = [&](PortCount count) { return std::to_string(values[static_cast<size_t>(count)]); };
    return text(PortCount::kSentOctets) + " in " + text(PortCount::kSentUnicast) + "+" +
           text(PortCount::kSentMulticast) + "; " + text(PortCount::kReceivedOctets) + " in " +
           text(PortCount::kReceivedUnicast) + "+" + text(PortCount::kReceivedMulticast);
  }
  std::string requests() const {
    const RequestCounts counts = requests_of(*qp_);
    return std::to_string(counts.bytes_out) + " in " + std::to_string(counts.requests_out) + "; " +
           std::to_string(counts.bytes_in) + " in " + std::to_string(counts.requests_in);
  }

  const std::unique_ptr<SharedQp> qp_ = std::make_unique<SharedQp>();
};

TEST_F(TrafficOfQp, IsNothingAtFirst) {
  is_of(IBV_QPT_RC);
  EXPECT_EQ(traffic(), "0 in 0+0; 0 in 0+0");
  EXPECT_EQ(requests(), "0 in 0; 0 in 0");
}

TEST_F(TrafficOfQp, HasTheAcknowledgementOfEachRequest) {
  is_of(IBV_QPT_RC);
  sends(Passing::kRequest, 0, 1);
  sends(Passing::kRequest, 5000, 5);
  EXPECT_EQ(traffic(), "5000 in 6+0; 0 in 2+0");
  receives(Passing::kRequest, 100, 1);
  EXPECT_EQ(traffic(), "5000 in 7+0; 100 in 3+0");
  EXPECT_EQ(requests(), "5000 in 2; 100 in 1");
}

TEST_F(TrafficOfQp, HasTheBytesOfAReadWhereTheResponseGoes) {
  is_of(IBV_QPT_RC);
  sends(Passing::kResponse, 5000, 5);
  EXPECT_EQ(traffic(), "0 in 1+0; 5000 in 5+0");
  receives(Passing::kResponse, 2048, 2);
  EXPECT_EQ(traffic(), "2048 in 3+0; 5000 in 6+0");
  sends(Passing::kResponse, 8, 1);  // an atomic
  EXPECT_EQ(traffic(), "2048 in 4+0; 5008 in 7+0");
  EXPECT_EQ(requests(), "5008 in 2; 2048 in 1");
}

TEST_F(TrafficOfQp, OfUcHasNoAcknowledgements) {
  is_of(IBV_QPT_UC);
  sends(Passing::kRequest, 5000, 5);
  receives(Passing::kRequest, 100, 1);
  EXPECT_EQ(traffic(), "5000 in 5+0; 100 in 1+0");
}

TEST_F(TrafficOfQp, OfUdTellsGroupsApart) {
  is_of(IBV_QPT_UD);
  sends(Passing::kRequest, 60, 1);
  sends(Passing::kToGroup, 100, 1);
  sends(Passing::kToGroup, 100, 1);
  receives(Passing::kToGroup, 30, 1);
  EXPECT_EQ(traffic(), "260 in 1+2; 30 in 0+1");
  EXPECT_EQ(requests(), "260 in 3; 30 in 1");
}

TEST_F(TrafficOfQp, OfFramesHasOnePacketForEach) {
  is_of(IBV_QPT_RAW_PACKET);
  sends(Passing::kRequest, 1514, 2);
  EXPECT_EQ(traffic(), "1514 in 1+0; 0 in 0+0");
}

}  // namespace
}  // namespace verbena
