// SPDX-License-Identifier: BSD-2-Clause
//
// CONNECT, ACCEPT, REJECT, NOTIFY and SET_OPTION: what reaches the connection manager.
#include "fixture.h"

namespace verbena::test {
namespace {

class Connection : public RdmaCm {
 protected:
  template <typename Value>
  int set(uint32_t level, uint32_t name, const Value& value, uint32_t size = sizeof(Value)) {
    const rdma_ucm_set_option request = {.optval = reinterpret_cast<uintptr_t>(&value),
                                         .id = create(),
                                         .level = level,
                                         .optname = name,
                                         .optlen = size};
    return channel_.command(RDMA_USER_CM_CMD_SET_OPTION, request);
  }
};

TEST_F(Connection, ConnectPassesParametersAndEce) {
  rdma_ucm_connect request = {};
  request.id = create();
  request.conn_param.valid = 1;
  request.conn_param.qp_num = 5;
  request.conn_param.qkey = 6;
  request.conn_param.private_data_len = 2;
  request.conn_param.private_data[1] = 9;
  request.conn_param.rnr_retry_count = 7;
  request.ece = {.vendor_id = 3, .attr_mod = 4};
  ASSERT_EQ(channel_.command(RDMA_USER_CM_CMD_CONNECT, request), 0);
  EXPECT_EQ(fake.parameters.qp_number, 5u);
  EXPECT_EQ(fake.parameters.qkey, 0u) << "counts with AF_IB only";
  EXPECT_EQ(fake.parameters.private_data.length, 2);
  EXPECT_EQ(fake.parameters.private_data.bytes[1], 9);
  EXPECT_EQ(fake.parameters.rnr_retry_count, 7);
  EXPECT_EQ(fake.ece.vendor_id, 3u);
  EXPECT_EQ(fake.ece.attr_mod, 4u);
}

TEST_F(Connection, ConnectWithoutParametersIsRefused) {
  rdma_ucm_connect request = {};
  request.id = create();
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_CONNECT, request), EINVAL);
}

TEST_F(Connection, AcceptWithoutParametersIsTheActiveSides) {
  rdma_ucm_accept request = {};
  request.id = create();
  ASSERT_EQ(channel_.command(RDMA_USER_CM_CMD_ACCEPT, request), 0);
  EXPECT_FALSE(fake.parameters_given);
}

TEST_F(Connection, RejectSaysConsumerUnlessToldOtherwise) {
  rdma_ucm_reject request = {};
  request.id = create();
  ASSERT_EQ(channel_.command(RDMA_USER_CM_CMD_REJECT, request), 0);
  EXPECT_EQ(fake.reason, 28);
  request.reason = 35;  // vendor option not supported
  ASSERT_EQ(channel_.command(RDMA_USER_CM_CMD_REJECT, request), 0);
  EXPECT_EQ(fake.reason, 35);
  request.reason = 1;
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_REJECT, request), EINVAL);
}

TEST_F(Connection, NotifyPassesTheEvent) {
  const rdma_ucm_notify request = {.id = create(), .event = IBV_EVENT_COMM_EST};
  ASSERT_EQ(channel_.command(RDMA_USER_CM_CMD_NOTIFY, request), 0);
  EXPECT_EQ(fake.value, IBV_EVENT_COMM_EST);
}

TEST_F(Connection, OptionsReachTheManager) {
  const uint8_t tos = 0x20;
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, tos), 0);
  EXPECT_EQ(fake.last, "set_service_type");
  EXPECT_EQ(fake.value, 0x20);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, int{2}), 0);
  EXPECT_EQ(fake.last, "set_reuse_address");
  EXPECT_EQ(fake.value, 1);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, int{0}), 0);
  EXPECT_EQ(fake.last, "set_family_only");
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, tos), 0);
  EXPECT_EQ(fake.last, "set_ack_timeout");
}

TEST_F(Connection, OptionOfTheWrongLengthIsRefused) {
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, int{1}), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, uint8_t{1}), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, uint8_t{1}, 0), EINVAL);
}

TEST_F(Connection, UnknownOptionIsNotThere) {
  EXPECT_EQ(set(RDMA_OPTION_ID, 4, int{1}), ENOSYS);
  EXPECT_EQ(set(2, 0, int{1}), ENOSYS);
}

TEST_F(Connection, OptionWhoseValueIsNotMemory) {
  const rdma_ucm_set_option request = {
      .optval = kNowhere, .id = create(), .level = 0, .optname = 0, .optlen = 1};
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_SET_OPTION, request), EFAULT);
}

TEST_F(Connection, OptionOfAnAbsurdLengthIsRefused) {
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, uint8_t{1}, ~0u), EINVAL);
}

TEST_F(Connection, PrimaryPathReachesTheManager) {
  ib_path_rec_data paths[2] = {};
  paths[0].flags = IB_PATH_GMP;
  paths[1].flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  ASSERT_EQ(set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, paths), 0);
  EXPECT_EQ(fake.last, "set_path");
  EXPECT_EQ(fake.value, 1);
}

TEST_F(Connection, PathThatIsNotThePrimaryOneIsRefused) {
  ib_path_rec_data path = {};
  path.flags = IB_PATH_GMP;
  EXPECT_EQ(set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, path), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, path, 71), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, path, 0), EINVAL);
}

}  // namespace
}  // namespace verbena::test
