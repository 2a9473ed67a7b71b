// SPDX-License-Identifier: BSD-2-Clause
//
// Any bytes from somebody who has the fabric's key: to the decoder of frames by itself, and over a connection
// to a process that has a queue pair connected to his. No crash; memory without remote rights stays as it is;
// and who behaves is served.
#include "wire/frame.h"

#include <infiniband/verbs.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "emulator.h"
#include "fabric/node.h"
#include "input.h"
#include "loopback_node.h"
#include "wire/handshake.h"

namespace verbena::fuzz {
namespace {

using namespace wire;

constexpr uint16_t kPort = 47917;
constexpr uint32_t kTheirs = 0x123;  // the number of the stranger's queue pair
constexpr uint8_t kOurLast = 2, kTheirLast = 9;
constexpr int kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

void decode_any(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  Frame frame;
  if (decode(bytes, size, &frame) != Decoded::kFrame) return;
  require(frame.head_size <= size, "a frame's head is there as a whole");
  require(frame.head.start.length == frame.head_size + frame.payload, "a frame is its head and its bytes");
  if (frame.head.start.kind == FrameKind::kRequest) {
    const RequestHead& head = frame.head.request;
    require(uint64_t{head.offset} + frame.payload <= head.size, "bytes lie within their message");
    require(frame.payload <= kSliceBytes && head.size <= kMaxMessage, "messages are bounded");
  }
  Frame part;
  for (size_t i = 0; i < frame.head_size; ++i)
    require(decode(bytes, i, &part) != Decoded::kFrame, "part of a head is no frame");
}

// A process with an RC queue pair in RTS, with requests that wait for the stranger's answers, and receive
// requests.
struct Scene {
  Scene() : open(1 << 16), closed(4096, 0x5a) {
    folder = make_folder();
    setenv(kNodeVariable, make_node(folder, kOurLast, kPort).c_str(), 1);
    Context* context = nullptr;
    require(open_context("verbena0", &context) == 0, "the device opens");
    Pd* pd = nullptr;
    require(alloc_pd(context, &pd) == 0, "there is a protection domain");
    require(reg_mr(pd, open.data(), open.size(), address(open), kAll, &open_mr) == 0, "memory is registered");
    require(
        reg_mr(pd, closed.data(), closed.size(), address(closed), IBV_ACCESS_LOCAL_WRITE, &closed_mr) == 0,
        "memory is registered");
    require(create_cq(context, 512, -1, 0, 0, &cq) == 0, "there is a completion queue");
    ibv_qp_init_attr init{};
    init.cap = {64, 64, 4, 4, 0};
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = 1;
    require(create_qp(pd, &init, cq, cq, 0, &qp) == 0, "there is a queue pair");
  }
  ~Scene() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  static uint64_t address(const std::vector<uint8_t>& bytes) {
    return reinterpret_cast<uint64_t>(bytes.data());
  }

  // To RTS. What the stranger before has sent may be read only now, and end in ERR before RTS is asked for:
  // then once more, and he has hung up, so that it ends.
  void begin_anew() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!connected())
      require(std::chrono::steady_clock::now() < deadline, "who has hung up does no more harm");
    post();
  }

  // From RESET through INIT and RTR to RTS; false: a request that came in RTR has taken it to ERR.
  bool connected() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    require(modify_qp(qp, &attr, IBV_QP_STATE) == 0, "to RESET");
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAll;
    require(modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
            "to INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = kTheirs;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = 1;
    std::copy_n(loopback(kTheirLast).bytes.data(), 16, attr.ah_attr.grh.dgid.raw);
    require(modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
            "to RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.rnr_retry = attr.retry_cnt = 7;
    if (modify_qp(qp, &attr,
                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                      IBV_QP_MAX_QP_RD_ATOMIC) == 0)
      return true;
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    require(query_qp(qp, &now, &init) == 0 && now.qp_state == IBV_QPS_ERR, "to RTS");
    return false;
  }

  void post() {
    ibv_sge sge{address(open), 8192, mr_lkey(open_mr)};
    ibv_recv_wr receive{0, nullptr, &sge, 1}, *bad_receive;
    for (int i = 0; i < 16; ++i) require(post_recv(qp, &receive, &bad_receive) == 0, "a receive request");
    for (const ibv_wr_opcode opcode :
         {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND}) {
      ibv_sge part{address(open), opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8u : 64u, mr_lkey(open_mr)};
      ibv_send_wr request{}, *bad;
      request.sg_list = &part;
      request.num_sge = 1;
      request.opcode = opcode;
      request.wr.rdma.remote_addr = 4096;
      require(post_send(qp, &request, &bad) == 0, "a request");
    }
  }

  void poll() {
    ibv_wc wc[16];
    while (poll_cq(cq, 16, wc) > 0) {
    }
  }

  std::string folder;
  std::vector<uint8_t> open, closed;
  Mr *open_mr = nullptr, *closed_mr = nullptr;
  Cq* cq = nullptr;
  Qp* qp = nullptr;
  uint64_t runs = 0;
};

template <size_t size>
void hear(int fd, std::array<uint8_t, size>* out) {
  require(recv(fd, out->data(), size, MSG_WAITALL) == static_cast<ssize_t>(size),
          "who has the key is answered");
}

// A connection of the stranger's, who has the key.
class Stranger {
 public:
  explicit Stranger(uint32_t qpn) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const linger at_once{1, 0};  // no connections left in TIME_WAIT
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    const timeval patience{30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_storage where;
    socklen_t size = loopback(kTheirLast).to_socket_address(0, &where);
    require(bind(fd_, reinterpret_cast<const sockaddr*>(&where), size) == 0, "there is an address");
    size = loopback(kOurLast).to_socket_address(kPort, &where);
    require(connect(fd_, reinterpret_cast<const sockaddr*>(&where), size) == 0, "somebody listens");
    CallerHandshake caller(
        fabric_key(), {{77, 1, 1}, loopback(kTheirLast), loopback(kOurLast), Target::queue_pair(qpn), {}});
    say(caller.hello().data(), kHelloSize);
    std::array<uint8_t, kChallengeSize> challenge;
    hear(fd_, &challenge);
    caller.challenge_arrived(challenge);
    say(caller.proof().data(), kProofSize);
    std::array<uint8_t, kWelcomeSize> answer;
    hear(fd_, &answer);
    caller.welcome_arrived(answer);
    require(caller.step() == CallerHandshake::Step::kDone, "who has the key is let in");
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger() { close(fd_); }

  // False: the other end has hung up, or takes no more now.
  bool say(const void* bytes, size_t size) {
    return send(fd_, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
  }
  void read_away() {
    char bytes[65536];
    while (recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
  }
  // Skips what comes before it.
  WhereaboutsHead whereabouts() {
    for (;;) {
      FrameHead head;
      require(recv(fd_, &head, sizeof(FrameStart), MSG_WAITALL) == sizeof(FrameStart),
              "who behaves is answered");
      std::vector<char> rest(head.start.length - sizeof(FrameStart));
      require(recv(fd_, rest.data(), rest.size(), MSG_WAITALL) == static_cast<ssize_t>(rest.size()),
              "a whole frame comes");
      if (head.start.kind != FrameKind::kWhereabouts) continue;
      std::memcpy(reinterpret_cast<char*>(&head) + sizeof(FrameStart), rest.data(),
                  sizeof head.whereabouts - sizeof(FrameStart));
      return head.whereabouts;
    }
  }

 private:
  int fd_;
};

// A frame as it should be, but for what the input says.
std::vector<uint8_t> make_frame(const Scene& scene, Input& input) {
  FrameHead head;
  std::memset(&head, 0, sizeof head);
  head.start.kind = static_cast<FrameKind>(1 + input.below(11));
  const uint32_t ours = qp_number(scene.qp);
  const bool much = input.below(8) == 0;
  uint32_t payload = much ? input.take<uint16_t>() : input.byte(), size = sizeof head.answer;
  switch (head.start.kind) {
    case FrameKind::kRequest: {
      const uint8_t where = input.below(4);
      const auto& bytes = where == 0 ? scene.closed : scene.open;
      head.request.opcode = input.below(16);
      head.request.flags = input.below(2);
      head.request.connection = IBV_QPT_RC | IBV_MTU_1024 << 4;
      head.request.target_qpn = ours;
      head.request.source_qpn = kTheirs;
      head.request.life = 1 + input.below(2);
      head.request.number = input.below(8);
      head.request.size = much ? payload * 2 : payload;
      head.request.offset = much ? input.below(2) * payload : 0;
      head.request.remote_address = Scene::address(bytes) + input.take<uint16_t>() % bytes.size();
      head.request.rkey = mr_rkey(where == 1 ? scene.closed_mr : scene.open_mr);
      size = sizeof head.request;
      if (head.request.opcode >= IBV_WR_RDMA_READ && head.request.opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD)
        payload = 0;
      break;
    }
    case FrameKind::kDatagram:
      payload += 40;
      head.datagram.target_qpn = ours;
      head.datagram.source_qpn = kTheirs;
      size = sizeof head.datagram;
      break;
    case FrameKind::kQuery:
      payload = 0;
      head.query.qpn = ours;
      size = sizeof head.query;
      break;
    case FrameKind::kWhereabouts:
      payload = 0;
      head.whereabouts.qpn = kTheirs;
      head.whereabouts.node = 77;
      head.whereabouts.slot = 1;
      head.whereabouts.generation = input.below(3);
      size = sizeof head.whereabouts;
      break;
    default:
      head.answer.target_qpn = ours;
      head.answer.source_qpn = kTheirs;
      head.answer.life = scene.runs;
      head.answer.number = input.below(8);
      head.answer.value = input.below(2) == 0 ? input.take<uint64_t>() : uint64_t{64} << 32 | input.below(80);
      if (head.start.kind != FrameKind::kReadData) payload = 0;
  }
  head.start.length = size + payload;
  std::vector<uint8_t> frame(size + payload);
  std::memcpy(frame.data(), &head, size);
  for (uint8_t i = input.below(4); i > 1; --i) frame[input.byte() % size] ^= input.byte();
  return frame;
}

// Who behaves asks where a queue pair is, and is told.
void is_served(uint32_t qpn) {
  Stranger good(qpn);
  const QueryHead query{sizeof query, FrameKind::kQuery, {}, qpn, 0};
  require(good.say(&query, sizeof query), "there is room for a question");
  const WhereaboutsHead answer = good.whereabouts();
  require(answer.qpn == qpn && answer.generation != 0, "who behaves is served");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Scene scene;
  decode_any(data, size);
  Input input(data, size);
  ++scene.runs;
  scene.begin_anew();
  const uint32_t qpn = qp_number(scene.qp);
  {
    Stranger stranger(qpn);
    while (!input.empty()) {
      std::vector<uint8_t> frame = make_frame(scene, input);
      if (input.below(32) == 0) frame.assign(1 + input.byte(), input.byte());
      decode_any(frame.data(), frame.size());
      if (!stranger.say(frame.data(), frame.size())) break;
      stranger.read_away();
      scene.poll();
    }
    scene.poll();
  }
  if (scene.runs % 16 == 0) is_served(qpn);
  require(std::all_of(scene.closed.begin(), scene.closed.end(), [](uint8_t byte) { return byte == 0x5a; }),
          "memory without remote rights is nobody's but its owner's");
  return 0;
}

}  // namespace verbena::fuzz
