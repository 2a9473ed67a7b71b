// SPDX-License-Identifier: BSD-2-Clause
//
// What ucma_write (drivers/infiniband/core/ucma.c) returns for malformed commands, and what every command
// returns for an id that does not exist and for a response address that is not mapped.
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
  EXPECT_EQ(write_header(rdma_cm::kWriteCmEvent + 1, 0, 0, 0), EINVAL);
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

// ---- ids and responses ------------------------------------------------------------------------------------

using Bytes = std::vector<uint8_t>;

template <typename Request>
Bytes bytes_of(const Request& request) {
  const auto* begin = reinterpret_cast<const uint8_t*>(&request);
  return {begin, begin + sizeof request};
}

template <typename Storage>
void put_address(Storage* to, const char* text) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, text, &address.sin_addr);
  memcpy(to, &address, sizeof address);
}

// A command about an id, valid but for what a test makes wrong.
struct About {
  const char* name;
  uint32_t command;
  uint16_t out;  // 0: it has no response
  // `fd`: of the file that has the id.
  Bytes (*request)(uint32_t id, uint64_t response, int fd);
};

template <typename Request>
Bytes id_alone(uint32_t id, uint64_t, int) {
  Request request = {};
  request.id = id;
  return bytes_of(request);
}
template <typename Request>
Bytes id_and_response(uint32_t id, uint64_t response, int) {
  Request request = {};
  request.id = id;
  request.response = response;
  return bytes_of(request);
}
template <uint32_t option>
Bytes query(uint32_t id, uint64_t response, int) {
  return bytes_of(rdma_ucm_query{.response = response, .id = id, .option = option});
}
Bytes bind_ip(uint32_t id, uint64_t, int) {
  rdma_ucm_bind_ip request = {};
  request.id = id;
  put_address(&request.addr, "127.0.0.1");
  return bytes_of(request);
}
Bytes bind_any(uint32_t id, uint64_t, int) {
  rdma_ucm_bind request = {};
  request.id = id;
  request.addr_size = sizeof(sockaddr_in);
  put_address(&request.addr, "127.0.0.1");
  return bytes_of(request);
}
Bytes resolve_ip(uint32_t id, uint64_t, int) {
  rdma_ucm_resolve_ip request = {};
  request.id = id;
  put_address(&request.dst_addr, "127.0.0.1");
  return bytes_of(request);
}
Bytes resolve_any(uint32_t id, uint64_t, int) {
  rdma_ucm_resolve_addr request = {};
  request.id = id;
  request.dst_size = sizeof(sockaddr_in);
  put_address(&request.dst_addr, "127.0.0.1");
  return bytes_of(request);
}
template <typename Request>
Bytes with_parameters(uint32_t id, uint64_t, int) {
  Request request = {};
  request.id = id;
  request.conn_param.valid = 1;
  return bytes_of(request);
}
Bytes set_option(uint32_t id, uint64_t, int) {
  static const int on = 1;
  return bytes_of(rdma_ucm_set_option{.optval = reinterpret_cast<uintptr_t>(&on),
                                      .id = id,
                                      .level = RDMA_OPTION_ID,
                                      .optname = RDMA_OPTION_ID_REUSEADDR,
                                      .optlen = sizeof on});
}
Bytes join_ip(uint32_t id, uint64_t response, int) {
  rdma_ucm_join_ip_mcast request = {};
  request.response = response;
  request.id = id;
  put_address(&request.addr, "239.1.2.3");
  return bytes_of(request);
}
Bytes join_any(uint32_t id, uint64_t response, int) {
  rdma_ucm_join_mcast request = {};
  request.response = response;
  request.id = id;
  request.addr_size = sizeof(sockaddr_in);
  put_address(&request.addr, "239.1.2.4");
  return bytes_of(request);
}
Bytes migrate(uint32_t id, uint64_t response, int fd) {
  return bytes_of(rdma_ucm_migrate_id{.response = response, .id = id, .fd = static_cast<uint32_t>(fd)});
}

constexpr uint16_t kAddressResponse = sizeof(rdma_ucm_query_addr_resp);
// All but CREATE_ID and GET_EVENT, which name no id, and LEAVE_MCAST, whose id is a membership's.
constexpr About kAbouts[] = {
    {"Destroy", RDMA_USER_CM_CMD_DESTROY_ID, 4, id_and_response<rdma_ucm_destroy_id>},
    {"BindIp", RDMA_USER_CM_CMD_BIND_IP, 0, bind_ip},
    {"ResolveIp", RDMA_USER_CM_CMD_RESOLVE_IP, 0, resolve_ip},
    {"ResolveRoute", RDMA_USER_CM_CMD_RESOLVE_ROUTE, 0, id_alone<rdma_ucm_resolve_route>},
    {"QueryRoute", RDMA_USER_CM_CMD_QUERY_ROUTE, sizeof(rdma_ucm_query_route_resp),
     id_and_response<rdma_ucm_query>},
    {"Connect", RDMA_USER_CM_CMD_CONNECT, 0, with_parameters<rdma_ucm_connect>},
    {"Listen", RDMA_USER_CM_CMD_LISTEN, 0, id_alone<rdma_ucm_listen>},
    {"Accept", RDMA_USER_CM_CMD_ACCEPT, 0, with_parameters<rdma_ucm_accept>},
    {"Reject", RDMA_USER_CM_CMD_REJECT, 0, id_alone<rdma_ucm_reject>},
    {"Disconnect", RDMA_USER_CM_CMD_DISCONNECT, 0, id_alone<rdma_ucm_disconnect>},
    {"InitQpAttr", RDMA_USER_CM_CMD_INIT_QP_ATTR, sizeof(ib_uverbs_qp_attr),
     id_and_response<rdma_ucm_init_qp_attr>},
    {"SetOption", RDMA_USER_CM_CMD_SET_OPTION, 0, set_option},
    {"Notify", RDMA_USER_CM_CMD_NOTIFY, 0, id_alone<rdma_ucm_notify>},
    {"JoinIpMcast", RDMA_USER_CM_CMD_JOIN_IP_MCAST, 4, join_ip},
    {"Migrate", RDMA_USER_CM_CMD_MIGRATE_ID, 4, migrate},
    {"QueryAddr", RDMA_USER_CM_CMD_QUERY, kAddressResponse, query<RDMA_USER_CM_QUERY_ADDR>},
    {"QueryPath", RDMA_USER_CM_CMD_QUERY, kAddressResponse, query<RDMA_USER_CM_QUERY_PATH>},
    {"QueryGid", RDMA_USER_CM_CMD_QUERY, kAddressResponse, query<RDMA_USER_CM_QUERY_GID>},
    {"Bind", RDMA_USER_CM_CMD_BIND, 0, bind_any},
    {"ResolveAddr", RDMA_USER_CM_CMD_RESOLVE_ADDR, 0, resolve_any},
    {"JoinMcast", RDMA_USER_CM_CMD_JOIN_MCAST, 4, join_any},
};

class EveryCommand : public Malformed {
 protected:
  int send(const Bytes& request, uint32_t command, uint16_t out) {
    const rdma_ucm_cmd_hdr header = {.cmd = command, .in = static_cast<uint16_t>(request.size()), .out = out};
    Bytes bytes = bytes_of(header);
    bytes.insert(bytes.end(), request.begin(), request.end());
    return channel_.write(bytes.data(), bytes.size());
  }
  int ask(const About& about, uint32_t id) {
    return ask_at(about, id, reinterpret_cast<uintptr_t>(response_));
  }
  int ask_at(const About& about, uint32_t id, uint64_t response) {
    return send(about.request(id, response, channel_.fd()), about.command, about.out);
  }

  alignas(8) uint8_t response_[1024] = {};
};

// These requests have no other fault.
TEST_F(EveryCommand, IsTakenWithAnIdThatIsOne) {
  for (const About& about : kAbouts) EXPECT_EQ(ask(about, create()), 0) << about.name;
}

TEST_F(EveryCommand, KnowsNoIdThatWasNeverMade) {
  const uint32_t last = create();
  for (const About& about : kAbouts)
    for (const uint32_t id : {last + 1, 0x7fffffffu, 0x80000000u, ~0u})
      EXPECT_EQ(ask(about, id), ENOENT) << about.name << " " << id;
}

TEST_F(EveryCommand, KnowsNoIdThatIsDestroyed) {
  const uint32_t id = create();
  ASSERT_EQ(destroy(id), 0);
  for (const About& about : kAbouts) EXPECT_EQ(ask(about, id), ENOENT) << about.name;
}

// _ucma_find_context.
TEST_F(EveryCommand, TakesNoIdOfAnotherFile) {
  Channel other;
  const uint32_t id = create_on(other);
  for (const About& about : kAbouts) EXPECT_EQ(ask(about, id), EINVAL) << about.name;
  EXPECT_EQ(destroy_on(other, id), 0);
}

// What the command does is done or undone all the same: the fixture checks whether an id is left.
TEST_F(EveryCommand, SaysThatItsResponseHasNoPlace) {
  for (const About& about : kAbouts) {
    if (about.out == 0) continue;
    const uint32_t id = create();
    EXPECT_EQ(ask_at(about, id, kNowhere), EFAULT) << about.name;
    EXPECT_EQ(destroy(id), about.command == RDMA_USER_CM_CMD_DESTROY_ID ? ENOENT : 0) << about.name;
  }
}

// The id is a membership's.
TEST_F(EveryCommand, LeavingIsOfAMembershipThatIsOne) {
  const About leave = {"Leave", RDMA_USER_CM_CMD_LEAVE_MCAST, 4, id_and_response<rdma_ucm_destroy_id>};
  const uint32_t id = create();
  EXPECT_EQ(ask(leave, id), ENOENT) << "an id is no membership";
  EXPECT_EQ(ask(leave, ~0u), ENOENT);
  rdma_ucm_create_id_resp joined = {};
  ASSERT_EQ(send(join_ip(id, address_of(joined), 0), RDMA_USER_CM_CMD_JOIN_IP_MCAST, sizeof joined), 0);
  Channel other;
  const rdma_ucm_destroy_id request = {
      .response = reinterpret_cast<uintptr_t>(response_), .id = joined.id, .reserved = 0};
  EXPECT_EQ(other.command(RDMA_USER_CM_CMD_LEAVE_MCAST, request, 4), EINVAL) << "of another file";
  EXPECT_EQ(ask_at(leave, joined.id, kNowhere), EFAULT);
  EXPECT_EQ(ask(leave, joined.id), ENOENT) << "it is left, although nobody was told";
}

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
