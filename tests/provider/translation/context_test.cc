// SPDX-License-Identifier: BSD-2-Clause
//
// Opening and closing a context, and queries of the device: who owns which descriptor, and which errno is
// returned.
#include <rdma/ib_user_verbs.h>

#include <vector>

#include "fixture.h"

namespace verbena::test {
namespace {

TEST_F(TranslationTest, OpensTheDeviceByItsName) {
  verbs_context* context = verbs::alloc_context(&device_.device, cmd_fd_, nullptr);
  ASSERT_NE(context, nullptr);
  EXPECT_STREQ(fake.device, "verbena7");
  ibv_close_device(&context->context);
}

TEST_F(TranslationTest, CloseGivesBackBothDescriptors) {
  verbs_context* context = verbs::alloc_context(&device_.device, cmd_fd_, nullptr);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(context->context.async_fd, fake.async_fd);
  ibv_close_device(&context->context);
  EXPECT_FALSE(is_open(cmd_fd_));
  EXPECT_FALSE(is_open(fake.async_fd));
}

TEST_F(TranslationTest, FailureToOpenClosesTheCommandDescriptor) {
  fake.error = EMFILE;
  EXPECT_EQ(verbs::alloc_context(&device_.device, cmd_fd_, nullptr), nullptr);
  EXPECT_EQ(errno, EMFILE);
  EXPECT_FALSE(is_open(cmd_fd_));
  EXPECT_EQ(device_.refcount, 1);
}

// libibverbs begins each of them with the context.
TEST_F(ContextTest, WithObjectsLeftItStaysForThem) {
  ibv_pd* pd = ibv_alloc_pd(context_);
  ASSERT_NE(pd, nullptr);
  fake.objects_left = true;
  ibv_close_device(context_);
  EXPECT_FALSE(is_open(cmd_fd_));
  EXPECT_FALSE(is_open(fake.async_fd));
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  context_ = nullptr;
}

TEST_F(ContextTest, HasTheEmulatorsCompletionVectors) {
  EXPECT_EQ(context_->num_comp_vectors, kCompletionVectors);
}

TEST_F(ContextTest, QueryDeviceFillsTheOldStructureAndNoMore) {
  struct {
    ibv_device_attr attr;
    uint8_t behind[64];
  } box = {};
  ASSERT_EQ(ibv_query_device(context_, &box.attr), 0);
  EXPECT_EQ(box.attr.phys_port_cnt, 0x5a);
  for (uint8_t byte : box.behind) EXPECT_EQ(byte, 0);
}

TEST_F(ContextTest, QueryDeviceExZeroesWhatANewerProgramAsksBeyond) {
  std::vector<uint8_t> box(sizeof(ibv_device_attr_ex) + 32, 0xff);
  auto* attr = reinterpret_cast<ibv_device_attr_ex*>(box.data());
  ASSERT_EQ(verbs_get_ctx(context_)->query_device_ex(context_, nullptr, attr, box.size()), 0);
  EXPECT_EQ(box[sizeof(ibv_device_attr_ex) - 1], 0x5a);
  EXPECT_EQ(box[sizeof(ibv_device_attr_ex)], 0);
  EXPECT_EQ(box.back(), 0);
}

TEST_F(ContextTest, QueryDeviceExRefusesUnknownInput) {
  const ibv_query_device_ex_input input = {.comp_mask = 1};
  ibv_device_attr_ex attr;
  EXPECT_EQ(verbs_get_ctx(context_)->query_device_ex(context_, &input, &attr, sizeof(attr)), EINVAL);
}

TEST_F(ContextTest, QueryDeviceExRefusesTooSmallAStructure) {
  ibv_device_attr_ex attr;
  EXPECT_EQ(verbs_get_ctx(context_)->query_device_ex(context_, nullptr, &attr, 16), EINVAL);
}

TEST_F(ContextTest, TheRawClockIsToldInItsOwnUnits) {
  fake.clock = 5'000'000'000;
  ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK, .raw_clock = {.tv_sec = 1, .tv_nsec = 1}};
  ASSERT_EQ(ibv_query_rt_values_ex(context_, &values), 0);
  EXPECT_EQ(values.comp_mask, static_cast<uint32_t>(IBV_VALUES_MASK_RAW_CLOCK));
  EXPECT_EQ(values.raw_clock.tv_sec, 0);
  EXPECT_EQ(values.raw_clock.tv_nsec, 5'000'000'000);
}
TEST_F(ContextTest, UnknownRealTimeValuesAreRefused) {
  ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK << 1, .raw_clock = {}};
  EXPECT_EQ(ibv_query_rt_values_ex(context_, &values), EINVAL);
}

TEST_F(ContextTest, QueryPortPassesTheErrorOn) {
  ibv_port_attr attr;
  fake.error = EINVAL;
  errno = 0;
  EXPECT_EQ(ibv_query_port(context_, 9, &attr), EINVAL);
  EXPECT_EQ(errno, EINVAL);
}

// ibv_query_port_speed(3) of rdma-core 62 and newer, in 100 Mb/s.
TEST_F(ContextTest, PortSpeedIsThatOfAllLanes) {
  uint64_t speed = 0;
  fake.active_speed = 64;  // HDR
  fake.active_width = 2;   // 4 lanes
  EXPECT_EQ(verbs::query_port_speed(context_, 1, &speed), 0);
  EXPECT_EQ(speed, 2000u);
  fake.active_speed = 1;  // SDR
  fake.active_width = 1;
  EXPECT_EQ(verbs::query_port_speed(context_, 1, &speed), 0);
  EXPECT_EQ(speed, 25u);
  EXPECT_EQ(verbs::query_port_speed(context_, 0x101, &speed), EINVAL);
  fake.error = EINVAL;
  EXPECT_EQ(verbs::query_port_speed(context_, 9, &speed), EINVAL);
}

// ---- CREATE_COMP_CHANNEL, as libibverbs writes it ----

struct Command {
  ib_uverbs_cmd_hdr header = {
      .command = IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, .in_words = 4, .out_words = 1};
  ib_uverbs_create_comp_channel payload = {};
};

class CommandTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    command_.payload.response = reinterpret_cast<uintptr_t>(&response_);
  }
  ssize_t write_command(size_t length = sizeof(Command)) {
    errno = 0;
    return verbs::answer_command(verbs::to_context(context_), &command_, length);
  }

  Command command_;
  ib_uverbs_create_comp_channel_resp response_ = {.fd = 0};
};

TEST_F(CommandTest, CreateCompChannelAnswersThroughTheResponsePointer) {
  EXPECT_EQ(write_command(), 16);
  EXPECT_EQ(static_cast<int>(response_.fd), fake.channel_fd);
  close(fake.channel_fd);
}

TEST_F(CommandTest, AnotherCommandIsNotSupported) {
  command_.header.command = IB_USER_VERBS_CMD_QUERY_DEVICE;
  EXPECT_EQ(write_command(), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(CommandTest, AnExtendedCommandIsNotSupported) {
  command_.header.command = 0x80000000u | IB_USER_VERBS_EX_CMD_CREATE_CQ;
  EXPECT_EQ(write_command(), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(CommandTest, LessThanAHeaderIsInvalid) {
  EXPECT_EQ(write_command(4), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(CommandTest, ALengthThatTheHeaderContradictsIsInvalid) {
  command_.header.in_words = 5;
  EXPECT_EQ(write_command(), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(CommandTest, NoRoomForTheAnswer) {
  command_.header.out_words = 0;
  EXPECT_EQ(write_command(), -1);
  EXPECT_EQ(errno, ENOSPC);
}

TEST_F(CommandTest, TheEmulatorsErrorIsTheCommands) {
  fake.error = EMFILE;
  EXPECT_EQ(write_command(), -1);
  EXPECT_EQ(errno, EMFILE);
}

TEST_F(ContextTest, WithoutThePreloadNobodyAnswersCreateCompChannel) {
  // /dev/null takes any write; /dev/full, which the preload opens, refuses it.
  const int full = open("/dev/full", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(dup3(full, context_->cmd_fd, O_CLOEXEC), context_->cmd_fd);
  close(full);
  EXPECT_EQ(ibv_create_comp_channel(context_), nullptr);
  EXPECT_EQ(errno, ENOSPC);
}

}  // namespace
}  // namespace verbena::test
