// SPDX-License-Identifier: BSD-2-Clause
//
// Any commands to three open files of /dev/infiniband/rdma_cm, with the real connection manager behind them:
// no crash, no write outside the response, no thread blocked, and no id left when the files are closed.
//
// An input is a sequence of commands. Most are valid, with small ids and few addresses, so that requests meet
// listeners; some have bytes of the input, or wrong lengths or response pointers, instead.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/ib.h>
#include <poll.h>
#include <sys/mman.h>

#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

#include "boundary/claim.h"
#include "input.h"
#include "rdma_cm/open.h"
#include "rdma_cm/state.h"

namespace verbena::fuzz {
namespace {

constexpr size_t kFiles = 3;
constexpr size_t kCommands = RDMA_USER_CM_CMD_JOIN_MCAST + 1;
constexpr size_t kRoom = 2048;
constexpr uint8_t kGuard = 0xa5;

struct OpenFile {
  int fd = -1;
  verbena_boundary_handler handler = {nullptr, nullptr};
};

std::array<OpenFile, kFiles> files;

int find_file(int fd, verbena_boundary_handler* out) {
  for (const OpenFile& file : files) {
    if (file.fd != fd) continue;
    *out = file.handler;
    return 0;
  }
  return EBADF;
}

// Where responses go; the guard behind the response of the given length must not change.
struct Response {
  alignas(8) uint8_t bytes[2 * kRoom];
};

// The address stays away from all other memory, whichever byte of it an input changes: what is written
// through a wrong response pointer of the program is the program's own loss.
Response& make_response() {
  void* const place = reinterpret_cast<void*>(uintptr_t{0x2a2a'2a2a'2000});
  void* const memory = mmap(place, sizeof(Response), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  require(memory == place, "the response has a place of its own");
  return *static_cast<Response*>(memory);
}
Response& response = make_response();

uint64_t response_address(Input& input) {
  switch (input.below(16)) {
    case 0:
      return 0;
    case 1:
      return input.take<uint64_t>() | uint64_t{1} << 63;  // in no mapping
    default:
      return reinterpret_cast<uintptr_t>(response.bytes);
  }
}

uint32_t small_id(Input& input) { return input.below(32) == 0 ? input.take<uint32_t>() : input.below(8); }

template <typename Target>
uint16_t put_address(Input& input, Target* out) {
  static constexpr const char* kHosts[] = {"127.0.0.1", "0.0.0.0", "224.1.2.3", "10.255.255.1"};
  *out = {};
  const in_port_t port = htons(static_cast<uint16_t>(7000 + input.below(3)));
  const uint8_t family = input.below(8);
  if (family == 0) {
    sockaddr_in6 six = {};
    six.sin6_family = AF_INET6;
    six.sin6_port = port;
    if (input.below(2) == 0) six.sin6_addr = in6addr_loopback;
    memcpy(out, &six, sizeof six);
    return sizeof six;
  }
  if (family == 1 && sizeof *out >= sizeof(sockaddr_ib)) {
    sockaddr_ib ib = {};
    ib.sib_family = AF_IB;
    ib.sib_sid = htobe64(uint64_t{RDMA_PS_TCP} << 16 | ntohs(port));
    ib.sib_sid_mask = ~uint64_t{0};
    memcpy(out, &ib, std::min(sizeof ib, sizeof *out));
    return sizeof ib;
  }
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  four.sin_port = port;
  inet_pton(AF_INET, kHosts[input.below(4)], &four.sin_addr);
  memcpy(out, &four, sizeof four);
  return sizeof four;
}

// A command under construction: header and payload.
struct Command {
  rdma_ucm_cmd_hdr header;
  uint8_t payload[512];

  template <typename Request>
  void set(uint32_t number, const Request& request, size_t out = 0) {
    header = {.cmd = number, .in = sizeof request, .out = static_cast<uint16_t>(out)};
    memcpy(payload, &request, sizeof request);
  }
};

rdma_ucm_conn_param parameters(Input& input) {
  rdma_ucm_conn_param value = {};
  value.qp_num = input.byte();
  value.private_data_len = input.below(8) == 0 ? input.byte() : input.below(56);
  value.responder_resources = input.below(16);
  value.initiator_depth = input.below(16);
  value.retry_count = input.below(8);
  value.rnr_retry_count = input.below(8);
  value.valid = input.below(8) != 0;
  return value;
}

using Builder = void (*)(Input&, Command&);

void create(Input& input, Command& command) {
  static constexpr uint16_t kSpaces[] = {RDMA_PS_TCP, RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_PS_IPOIB};
  rdma_ucm_create_id request = {};
  request.uid = input.byte();
  request.response = response_address(input);
  request.ps = kSpaces[input.below(5)];
  request.qp_type = IBV_QPT_RC;
  command.set(RDMA_USER_CM_CMD_CREATE_ID, request, sizeof(rdma_ucm_create_id_resp));
}

template <uint32_t Number>
void end(Input& input, Command& command) {
  const rdma_ucm_destroy_id request = {
      .response = response_address(input), .id = small_id(input), .reserved = 0};
  command.set(Number, request, sizeof(rdma_ucm_destroy_id_resp));
}

void bind(Input& input, Command& command) {
  rdma_ucm_bind request = {};
  request.id = small_id(input);
  request.addr_size = put_address(input, &request.addr);
  command.set(RDMA_USER_CM_CMD_BIND, request);
}

void bind_ip(Input& input, Command& command) {
  rdma_ucm_bind_ip request = {};
  request.id = small_id(input);
  put_address(input, &request.addr);
  command.set(RDMA_USER_CM_CMD_BIND_IP, request);
}

void resolve(Input& input, Command& command) {
  rdma_ucm_resolve_addr request = {};
  request.id = small_id(input);
  request.timeout_ms = input.byte();
  request.dst_size = put_address(input, &request.dst_addr);
  if (input.below(4) == 0) request.src_size = put_address(input, &request.src_addr);
  command.set(RDMA_USER_CM_CMD_RESOLVE_ADDR, request);
}

void resolve_ip(Input& input, Command& command) {
  rdma_ucm_resolve_ip request = {};
  request.id = small_id(input);
  request.timeout_ms = input.byte();
  put_address(input, &request.dst_addr);
  command.set(RDMA_USER_CM_CMD_RESOLVE_IP, request);
}

void route(Input& input, Command& command) {
  const rdma_ucm_resolve_route request = {.id = small_id(input), .timeout_ms = input.byte()};
  command.set(RDMA_USER_CM_CMD_RESOLVE_ROUTE, request);
}

void listen(Input& input, Command& command) {
  const rdma_ucm_listen request = {.id = small_id(input), .backlog = input.below(4)};
  command.set(RDMA_USER_CM_CMD_LISTEN, request);
}

void connect(Input& input, Command& command) {
  rdma_ucm_connect request = {};
  request.id = small_id(input);
  request.conn_param = parameters(input);
  command.set(RDMA_USER_CM_CMD_CONNECT, request);
}

void accept(Input& input, Command& command) {
  rdma_ucm_accept request = {};
  request.id = small_id(input);
  request.uid = input.byte();
  request.conn_param = parameters(input);
  command.set(RDMA_USER_CM_CMD_ACCEPT, request);
}

void reject(Input& input, Command& command) {
  rdma_ucm_reject request = {};
  request.id = small_id(input);
  request.private_data_len = input.byte();
  request.reason = input.below(4) == 0 ? input.byte() : 0;
  command.set(RDMA_USER_CM_CMD_REJECT, request);
}

void disconnect(Input& input, Command& command) {
  const rdma_ucm_disconnect request = {.id = small_id(input)};
  command.set(RDMA_USER_CM_CMD_DISCONNECT, request);
}

void attributes(Input& input, Command& command) {
  const rdma_ucm_init_qp_attr request = {
      .response = response_address(input), .id = small_id(input), .qp_state = input.below(8)};
  command.set(RDMA_USER_CM_CMD_INIT_QP_ATTR, request, sizeof(ib_uverbs_qp_attr));
}

void event(Input& input, Command& command) {
  const rdma_ucm_get_event request = {.response = response_address(input)};
  command.set(RDMA_USER_CM_CMD_GET_EVENT, request, sizeof(rdma_ucm_event_resp));
}

void option(Input& input, Command& command) {
  rdma_ucm_set_option request = {};
  request.optval = response_address(input);
  request.id = small_id(input);
  request.level = input.below(3);
  request.optname = input.below(5);
  request.optlen = input.below(8) == 0  ? input.take<uint32_t>()
                   : request.level == 1 ? 72u
                                        : 1u << input.below(3);
  command.set(RDMA_USER_CM_CMD_SET_OPTION, request);
}

void notify(Input& input, Command& command) {
  const rdma_ucm_notify request = {.id = small_id(input), .event = input.byte()};
  command.set(RDMA_USER_CM_CMD_NOTIFY, request);
}

void join(Input& input, Command& command) {
  rdma_ucm_join_mcast request = {};
  request.response = response_address(input);
  request.uid = input.byte();
  request.id = small_id(input);
  request.addr_size = put_address(input, &request.addr);
  request.join_flags = input.below(3);
  command.set(RDMA_USER_CM_CMD_JOIN_MCAST, request, sizeof(rdma_ucm_create_id_resp));
}

void join_ip(Input& input, Command& command) {
  rdma_ucm_join_ip_mcast request = {};
  request.response = response_address(input);
  request.uid = input.byte();
  request.id = small_id(input);
  put_address(input, &request.addr);
  command.set(RDMA_USER_CM_CMD_JOIN_IP_MCAST, request, sizeof(rdma_ucm_create_id_resp));
}

void migrate(Input& input, Command& command) {
  const uint8_t from = input.below(kFiles + 1);
  rdma_ucm_migrate_id request = {};
  request.response = response_address(input);
  request.id = small_id(input);
  request.fd = static_cast<uint32_t>(from < kFiles ? files[from].fd : 2);
  command.set(RDMA_USER_CM_CMD_MIGRATE_ID, request, sizeof(rdma_ucm_migrate_resp));
}

template <uint32_t Number>
void query(Input& input, Command& command) {
  const rdma_ucm_query request = {
      .response = response_address(input), .id = small_id(input), .option = input.below(4)};
  command.set(Number, request, kRoom / 2);
}

void anything(Input& input, Command& command) {
  command.header = {.cmd = input.below(kCommands + 2), .in = input.below(128), .out = input.take<uint16_t>()};
  command.header.out %= kRoom;
  input.take(command.payload, command.header.in);
}

constexpr Builder kBuilders[] = {create,
                                 create,
                                 create,
                                 bind,
                                 bind,
                                 bind_ip,
                                 resolve,
                                 resolve,
                                 resolve_ip,
                                 route,
                                 route,
                                 listen,
                                 listen,
                                 connect,
                                 connect,
                                 accept,
                                 accept,
                                 reject,
                                 disconnect,
                                 attributes,
                                 event,
                                 event,
                                 event,
                                 event,
                                 option,
                                 notify,
                                 join,
                                 join_ip,
                                 migrate,
                                 end<RDMA_USER_CM_CMD_DESTROY_ID>,
                                 end<RDMA_USER_CM_CMD_LEAVE_MCAST>,
                                 query<RDMA_USER_CM_CMD_QUERY>,
                                 query<RDMA_USER_CM_CMD_QUERY_ROUTE>,
                                 anything};

// The boundary's part (boundary/hooks_write.cc).
void write_command(const OpenFile& file, const void* bytes, size_t length) {
  ssize_t answer = file.handler.write(file.handler.owner, bytes, length);
  while (answer == VERBENA_BOUNDARY_WAIT) {
    char token;
    if (read(file.fd, &token, 1) != 1) return;
    answer = file.handler.resume(file.handler.owner, bytes, length);
  }
  require(answer == -1 || static_cast<size_t>(answer) == length, "write(2) answers -1 or what it was given");
}

void run_command(Input& input) {
  const OpenFile& file = files[input.below(kFiles)];
  Command command = {};
  kBuilders[input.below(std::size(kBuilders))](input, command);
  const bool damaged = input.below(8) == 0;  // the response may point anywhere then
  if (damaged) command.payload[input.byte()] = input.byte();
  if (input.below(32) == 0) command.header.in = input.take<uint16_t>();
  if (input.below(32) == 0) command.header.out = static_cast<uint16_t>(input.take<uint16_t>() % kRoom);
  memset(response.bytes + command.header.out, kGuard, kRoom);
  write_command(file, &command, input.below(32) == 0 ? input.byte() : sizeof command);
  for (size_t i = 0; i < kRoom && !damaged; ++i)
    require(response.bytes[command.header.out + i] == kGuard, "nothing is written behind the response");
  // Lets the service's thread catch up now and then.
  if (input.below(8) == 0) std::this_thread::yield();
  if (input.below(16) == 0) {
    pollfd entry = {.fd = file.fd, .events = POLLIN, .revents = 0};
    poll(&entry, 1, 1);
  }
}

bool everything_is_gone() {
  rdma_cm::State* state = rdma_cm::current_state();
  const std::lock_guard lock(state->mutex);
  if (!state->files.empty()) return false;
  for (uint32_t id = 0; id < 4096; ++id)
    if (state->contexts.find(id) != nullptr || state->multicasts.find(id) != nullptr) return false;
  return true;
}

void run(Input input) {
  rdma_cm::find_descriptor = find_file;
  for (OpenFile& file : files) {
    file.fd = rdma_cm::open_device(O_RDWR | O_NONBLOCK | O_CLOEXEC, &file.handler);
    require(file.fd >= 0, "the device opens");
  }
  for (int i = 0; i < 200 && !input.empty(); ++i) run_command(input);
  for (OpenFile& file : files) close(file.fd);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!everything_is_gone()) {
    require(std::chrono::steady_clock::now() < deadline, "no id outlives its file");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace
}  // namespace verbena::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  verbena::fuzz::run(verbena::fuzz::Input(data, size));
  return 0;
}
