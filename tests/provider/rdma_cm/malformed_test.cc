// SPDX-License-Identifier: BSD-2-Clause
//
// What ucma_write (drivers/infiniband/core/ucma.c) says to commands that are none.
#include <sys/mman.h>

#include "fixture.h"

namespace verbena::test {
namespace {

class Malformed : public RdmaCm {
 protected:
  int write_header(uint32_t command, uint16_t in, uint16_t out, size_t payload) {
    std::vector<uint8_t> bytes(sizeof(rdma_ucm_cmd_hdr) + payload);
    const rdma_ucm_cmd_hdr header = {.cmd = command, .in = in, .out = out};
    memcpy(bytes.data(), &header, sizeof header);
    return channel_.write(bytes.data(), bytes.size());
  }
};

TEST_F(Malformed, ShorterThanItsHeader) {
  const uint8_t bytes[8] = {};
  for (size_t length = 0; length < 8; ++length) EXPECT_EQ(channel_.write(bytes, length), EINVAL) << length;
}

TEST_F(Malformed, ShorterThanItSays) {
  EXPECT_EQ(write_header(RDMA_USER_CM_CMD_CREATE_ID, sizeof(rdma_ucm_create_id), 4, 10), EINVAL);
}

TEST_F(Malformed, UnknownNumber) {
  EXPECT_EQ(write_header(RDMA_USER_CM_CMD_JOIN_MCAST + 1, 0, 0, 0), EINVAL);
  EXPECT_EQ(write_header(~0u, 0, 0, 0), EINVAL);
}

TEST_F(Malformed, GetOptionIsNotThere) {
  EXPECT_EQ(write_header(RDMA_USER_CM_CMD_GET_OPTION, 0, 0, 0), ENOSYS);
}

TEST_F(Malformed, CommandThatIsNotMemory) {
  const auto* nowhere = reinterpret_cast<const void*>(static_cast<uintptr_t>(kNowhere));
  EXPECT_EQ(channel_.write(nowhere, 32), EFAULT);
}

TEST_F(Malformed, CommandThatRunsOutOfMemory) {
  auto* page =
      static_cast<uint8_t*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  munmap(page + 4096, 4096);
  const rdma_ucm_cmd_hdr header = {
      .cmd = RDMA_USER_CM_CMD_CREATE_ID, .in = sizeof(rdma_ucm_create_id), .out = 4};
  memcpy(page + 4096 - sizeof header, &header, sizeof header);
  EXPECT_EQ(channel_.write(page + 4096 - sizeof header, sizeof header + header.in), EFAULT);
  munmap(page, 4096);
}

TEST_F(Malformed, LongerThanItNeedsToBeIsTaken) {
  uint8_t bytes[100] = {};
  const rdma_ucm_cmd_hdr header = {.cmd = RDMA_USER_CM_CMD_DISCONNECT, .in = 4, .out = 0};
  memcpy(bytes, &header, sizeof header);
  const uint32_t id = create();
  memcpy(bytes + sizeof header, &id, sizeof id);
  EXPECT_EQ(channel_.write(bytes, sizeof bytes), 0);
}

struct Sizes {
  uint32_t command;
  uint16_t in, out;
};

class MalformedSizes : public Malformed, public ::testing::WithParamInterface<Sizes> {};

TEST_P(MalformedSizes, RequestTooShort) {
  const auto [command, in, out] = GetParam();
  EXPECT_EQ(write_header(command, static_cast<uint16_t>(in - 1), out, in), EINVAL);
}

TEST_P(MalformedSizes, NoRoomForTheResponse) {
  const auto [command, in, out] = GetParam();
  if (out == 0) return;
  EXPECT_EQ(write_header(command, in, static_cast<uint16_t>(out - 1), in), ENOSPC);
}

INSTANTIATE_TEST_SUITE_P(
    Commands, MalformedSizes,
    ::testing::Values(
        Sizes{RDMA_USER_CM_CMD_CREATE_ID, 24, 4}, Sizes{RDMA_USER_CM_CMD_DESTROY_ID, 16, 4},
        Sizes{RDMA_USER_CM_CMD_BIND_IP, 40, 0}, Sizes{RDMA_USER_CM_CMD_RESOLVE_IP, 64, 0},
        Sizes{RDMA_USER_CM_CMD_RESOLVE_ROUTE, 8, 0},
        Sizes{RDMA_USER_CM_CMD_QUERY_ROUTE, 16, offsetof(rdma_ucm_query_route_resp, ibdev_index)},
        Sizes{RDMA_USER_CM_CMD_CONNECT, offsetof(rdma_ucm_connect, ece), 0},
        Sizes{RDMA_USER_CM_CMD_LISTEN, 8, 0},
        Sizes{RDMA_USER_CM_CMD_ACCEPT, offsetof(rdma_ucm_accept, ece), 0},
        Sizes{RDMA_USER_CM_CMD_REJECT, sizeof(rdma_ucm_reject), 0}, Sizes{RDMA_USER_CM_CMD_DISCONNECT, 4, 0},
        Sizes{RDMA_USER_CM_CMD_INIT_QP_ATTR, 16, sizeof(ib_uverbs_qp_attr)},
        Sizes{RDMA_USER_CM_CMD_GET_EVENT, 8, offsetof(rdma_ucm_event_resp, reserved)},
        Sizes{RDMA_USER_CM_CMD_SET_OPTION, 24, 0}, Sizes{RDMA_USER_CM_CMD_NOTIFY, 8, 0},
        Sizes{RDMA_USER_CM_CMD_JOIN_IP_MCAST, 48, 4}, Sizes{RDMA_USER_CM_CMD_LEAVE_MCAST, 16, 4},
        Sizes{RDMA_USER_CM_CMD_MIGRATE_ID, 16, 0}, Sizes{RDMA_USER_CM_CMD_QUERY, 16, 0},
        Sizes{RDMA_USER_CM_CMD_BIND, sizeof(rdma_ucm_bind), 0},
        Sizes{RDMA_USER_CM_CMD_RESOLVE_ADDR, sizeof(rdma_ucm_resolve_addr), 0},
        Sizes{RDMA_USER_CM_CMD_JOIN_MCAST, sizeof(rdma_ucm_join_mcast), 4}),
    [](const auto& entry) { return "Command" + std::to_string(entry.param.command); });

TEST_F(Malformed, ResponseThatIsNotMemoryLeavesNoId) {
  const rdma_ucm_create_id request = {
      .uid = 1, .response = kNowhere, .ps = RDMA_PS_TCP, .qp_type = 0, .reserved = {}};
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_CREATE_ID, request, 4), EFAULT);
  EXPECT_EQ(fake.alive, 0);
}

TEST_F(Malformed, ResponseThatIsReadOnlyIsRefused) {
  void* page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const rdma_ucm_create_id request = {.uid = 1,
                                      .response = reinterpret_cast<uintptr_t>(page),
                                      .ps = RDMA_PS_TCP,
                                      .qp_type = 0,
                                      .reserved = {}};
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_CREATE_ID, request, 4), EFAULT);
  munmap(page, 4096);
}

TEST_F(Malformed, FileOpenedForReadingOnlyTakesNoCommand) {
  Channel reader(O_RDONLY | O_CLOEXEC);
  const rdma_ucm_disconnect request = {.id = 0};
  EXPECT_EQ(reader.command(RDMA_USER_CM_CMD_DISCONNECT, request), EBADF);
}

}  // namespace
}  // namespace verbena::test
