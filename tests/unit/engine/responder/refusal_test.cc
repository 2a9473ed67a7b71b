// SPDX-License-Identifier: BSD-2-Clause
//
// What the logs of both sides say of a request that the responder does not carry out, and what the segment
// keeps of the failure for `verbena status`.
#include "engine/responder/refusal.h"

#include <poll.h>
#include <sys/mman.h>

#include <functional>
#include <memory>
#include <regex>
#include <string>

#include "adapter/layout.h"
#include "engine/objects/cq.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "observe/log.h"
#include "unit/common/child.h"
#include "unit/engine/datagram_scene.h"

namespace verbena {
namespace {

struct LogAt {
  explicit LogAt(LogLevel level) : before(log_level) { log_level = level; }
  ~LogAt() { log_level = before; }
  const LogLevel before;
};

std::string hex(uint64_t number) {
  char text[32];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

std::string qp_name(uint32_t number) {
  char text[32];
  snprintf(text, sizeof text, "QP 0x%06x", number);
  return text;
}

void expect_words(const std::string& said, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(said.find(word), std::string::npos) << word << " is not in\n" << said;
}

// What is logged in this process, which is both sides.
std::string said_during(const std::function<void()>& work) {
  const LogAt warn(LogLevel::kWarn);
  testing::internal::CaptureStderr();
  work();
  // Each line ends with its code (observe/diagnostics.def).
  return std::regex_replace(testing::internal::GetCapturedStderr(), std::regex(R"( \[[a-z0-9_]+\]\n)"), "\n");
}

TEST(RefusalLog, NamesKeyAddressLengthAndRegion) {
  Pair pair;
  Region from(pair.pd.get(), 64), to(pair.pd.get(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  const std::string said = said_during([&] {
    ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {from.sge(0, 40)}, to.address(32), to.rkey()), 0);
    EXPECT_EQ(pair.a.sent().status, IBV_WC_REM_ACCESS_ERR);
  });
  expect_words(
      said,
      {qp_name(pair.b.number()) + " refuses RDMA_WRITE of 40 bytes from " + qp_name(pair.a.number()),
       "of process " + std::to_string(getpid()), "rkey_out_of_range", "rkey " + hex(to.rkey()),
       "address " + hex(to.address(32)) + ", length 40",
       "its region: address " + hex(to.address()) + ", length 64, access LOCAL_WRITE|REMOTE_WRITE, PD "});
}

TEST(RefusalLog, NamesTheRightsOfTheQueuePair) {
  Pair pair({}, {.access = IBV_ACCESS_REMOTE_READ});
  Region memory(pair.pd.get(), 64);
  const std::string said = said_during([&] {
    ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey()), 0);
    EXPECT_EQ(pair.a.sent().status, IBV_WC_REM_INV_REQ_ERR);
  });
  expect_words(said, {"refuses RDMA_WRITE", "qp_access_flags: REMOTE_READ\n"});
}

TEST(RefusalLog, NamesBothLengthsOfAMessageThatDoesNotFit) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  const std::string said = said_during([&] {
    ASSERT_EQ(receive(*pair.b, {memory.sge(0, 16)}), 0);
    ASSERT_EQ(send(*pair.a, {memory.sge(0, 40)}), 0);
    EXPECT_EQ(pair.a.sent().status, IBV_WC_REM_INV_REQ_ERR);
  });
  expect_words(said, {"refuses SEND of 40 bytes", "message: 40 bytes, receive request: 16\n"});
}

TEST(RefusalLog, NamesTheReceiveRequestWhoseKeyHasEnded) {
  Pair pair;
  Region from(pair.pd.get(), 40), to(pair.pd.get(), 64);
  ASSERT_EQ(receive(*pair.b, {to.sge(0, 64)}), 0);
  const std::string lkey = hex(to.lkey());
  to.deregister();
  const std::string said = said_during([&] {
    ASSERT_EQ(send(*pair.a, {from.sge(0, 40)}), 0);
    EXPECT_EQ(pair.a.sent().status, IBV_WC_REM_OP_ERR);
  });
  expect_words(said, {"refuses SEND of 40 bytes", "lkey_unknown",
                      "receive request: lkey " + lkey + ", address " + hex(to.address()) + ", length 64"});
}

// The fault of the memory shows when the bytes are placed.
TEST(RefusalLog, NamesTheReceiveRequestWhoseMemoryIsGone) {
  constexpr size_t kLength = 64 << 10;  // more than a bounce buffer takes
  Pair pair;
  Region from(pair.pd.get(), kLength);
  void* const memory = mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto address = reinterpret_cast<uint64_t>(memory);
  Mr* mr = nullptr;
  ASSERT_EQ(reg_mr(pair.pd.get(), memory, kLength, address, IBV_ACCESS_LOCAL_WRITE, &mr), 0);
  const Owned<Mr> region(mr);
  ASSERT_EQ(receive(*pair.b, {{address, kLength, mr_lkey(mr)}}), 0);
  ASSERT_EQ(munmap(memory, kLength), 0);
  const std::string said = said_during([&] {
    ASSERT_EQ(send(*pair.a, {from.sge(0, kLength - 8)}), 0);
    EXPECT_EQ(pair.a.sent().status, IBV_WC_REM_OP_ERR);
  });
  expect_words(
      said, {"refuses SEND of 65528 bytes", "local_memory_gone",
             "receive request: lkey " + hex(mr_lkey(mr)) + ", address " + hex(address) + ", length 65536"});
}

TEST(RefusalLog, NamesBothPsns) {
  Pair pair({.timeout = 1, .retry_cnt = 0, .sq_psn = 5}, {.timeout = 1, .retry_cnt = 0, .rq_psn = 9});
  Region memory(pair.pd.get(), 64);
  const std::string said = said_during([&] {
    ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
    EXPECT_EQ(pair.a.sent().status, IBV_WC_RETRY_EXC_ERR);
  });
  expect_words(said, {"expects PSN 0x000009 (its rq_psn), and the request has 0x000005"});
}

TEST(RefusalLog, NamesBothQueuePairNumbers) {
  const QpSetup setup{.timeout = 1, .retry_cnt = 0};
  Pair pair(setup);
  const Side other = pair.make(setup, 0xc);
  connect(*other, pair.b.number(), pair.gid(), setup);  // `b` is connected to `a`
  Region memory(pair.pd.get(), 64);
  const std::string said = said_during([&] {
    ASSERT_EQ(send(*other, {memory.sge(0, 8)}), 0);
    EXPECT_EQ(other.sent().status, IBV_WC_RETRY_EXC_ERR);
  });
  expect_words(said, {qp_name(pair.b.number()) + " refuses a request from " + qp_name(other.number()),
                      "it is connected to " + qp_name(pair.a.number()) + ", the request is of " +
                          qp_name(other.number())});
}

TEST(RefusalLog, NamesTheStateOfAQueuePairThatIsNotReady) {
  const QpSetup setup{.timeout = 1, .retry_cnt = 0};
  Pair pair(setup);
  ASSERT_EQ(to_state(*pair.b, IBV_QPS_ERR), 0);
  Region memory(pair.pd.get(), 64);
  const std::string said = said_during([&] {
    ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
    EXPECT_EQ(pair.a.sent().status, IBV_WC_RETRY_EXC_ERR);
  });
  expect_words(said, {"it is in state ERR, and takes requests from RTR on"});
}

TEST(RefusalLog, SaysNothingOfAQueuePairThatIsBeingDestroyed) {
  const QpSetup setup{.timeout = 1, .retry_cnt = 0};
  Pair pair(setup);
  Process& process = *(*pair.b)->process;
  process.directory().release_qpn(pair.b.number(), process.membership().slot());
  ASSERT_EQ(to_state(*pair.b, IBV_QPS_ERR), 0);
  Region memory(pair.pd.get(), 64);
  const std::string said = said_during([&] {
    ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
    EXPECT_EQ(pair.a.sent().status, IBV_WC_RETRY_EXC_ERR);
  });
  EXPECT_EQ(said.find("refuses"), std::string::npos) << said;
}

// ---- datagrams ----

struct DatagramRefusals : ::testing::Test {
  DatagramScene scene;
  Region memory{scene.pd.get(), 256};
  Address to{scene.pd.get(), address_of(scene.gid())};

  void send_datagram(uint32_t length, uint32_t qkey) { send_datagram(length, qkey, scene.b.number()); }
  void send_datagram(uint32_t length, uint32_t qkey, uint32_t qpn) {
    ibv_send_wr wr{};
    ibv_sge sge = memory.sge(0, length);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {to.ah(), qpn, qkey};
    ASSERT_EQ(post(*scene.a, wr), 0);
    EXPECT_EQ(scene.a.sent().status, IBV_WC_SUCCESS);
  }
};

TEST_F(DatagramRefusals, NameTheFortyBytes) {
  ASSERT_EQ(receive(*scene.b, {memory.sge(100, 64)}), 0);
  const std::string said = said_during([&] { send_datagram(64, kQkey); });
  expect_words(said, {qp_name(scene.b.number()) + " drops SEND of 64 bytes from " + qp_name(scene.a.number()),
                      "a datagram needs 40 bytes more for its GRH: 104 bytes in all; the oldest receive "
                      "request takes 64\n"});
}

TEST_F(DatagramRefusals, NameBothQkeys) {
  ASSERT_EQ(receive(*scene.b, {memory.sge(100, 104)}), 0);
  const std::string said = said_during([&] { send_datagram(64, 0x77); });
  expect_words(said, {"the Q_Key of the QP is 0x00001234, that of the datagram 0x00000077\n"});
}

TEST_F(DatagramRefusals, AreNotNamedEachTime) {
  ASSERT_EQ(receive(*scene.b, {memory.sge(100, 104)}), 0);
  const std::string said = said_during([&] {
    for (int i = 0; i < 9; ++i) send_datagram(64, 0x77);
  });
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 4) << said;  // 1, 2, 4, 8
}

TEST_F(DatagramRefusals, NameBothNumbersWhereNoQueuePairHasOne) {
  const std::string said = said_during([&] { send_datagram(64, kQkey, 0xfffff0); });
  expect_words(said, {"SEND of 64 bytes from " + qp_name(scene.a.number()) + " of process " +
                          std::to_string(getpid()) + " is dropped: it is for QP 0xfffff0, a number that no ",
                      "; the UD queue pair here is " + qp_name(scene.b.number()) + "\n"});
}

TEST_F(DatagramRefusals, NameBothNumbersWhereTheQueuePairTakesNoDatagrams) {
  const Side other = scene.make(0xc);
  ASSERT_EQ(to_state(*other, IBV_QPS_ERR), 0);
  const std::string said = said_during([&] { send_datagram(64, kQkey, other.number()); });
  expect_words(said, {"it is for " + qp_name(other.number()) + ", which takes no datagrams: it",
                      "; the UD queue pairs here are " + qp_name(scene.b.number()) + " and 1 more\n"});
}

TEST_F(DatagramRefusals, WithoutAQueuePairAreNotNamedEachTime) {
  const std::string said = said_during([&] {
    for (uint32_t i = 0; i < 9; ++i) send_datagram(64, kQkey, 0xfffff0 + i);
  });
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 4) << said;  // 1, 2, 4, 8
}

TEST_F(DatagramRefusals, OfAQueuePairThatHasEndedAreNoMistake) {
  ASSERT_EQ(receive(*scene.b, {memory.sge(100, 104)}), 0);
  const uint32_t number = scene.b.number();
  EXPECT_EQ(said_during([&] {
              send_datagram(64, kQkey, number);
              scene.b.qp.reset();
              for (int i = 0; i < 3; ++i) send_datagram(64, kQkey, number);
            }),
            "");
}

TEST_F(DatagramRefusals, ForWantOfAReceiveRequestAreNoMistake) {
  EXPECT_EQ(said_during([&] { send_datagram(64, kQkey); }), "");
}

// ---- the log of the other process ----

struct TargetNames {
  uint32_t qpn, rkey;
  uint64_t address;
};

std::string read_line(int fd) {
  std::string line;
  pollfd readable{fd, POLLIN, 0};
  char c;
  while (poll(&readable, 1, 20000) == 1 && read(fd, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

TEST(RefusalLog, IsWrittenByTheResponder) {
  TemporaryNode node;
  int to_child[2], from_child[2], errors[2];
  ASSERT_EQ(pipe(to_child) | pipe(from_child) | pipe(errors), 0);
  const GidEntry gid = node.directory().devices().devices[0].ports[0].gids[0];
  Child target([&](const Child& self) {
    log_level = LogLevel::kWarn;
    dup2(errors[1], STDERR_FILENO);
    const Owned<Context> context = open_device();
    const Owned<Pd> pd = make_pd(context.get());
    const Owned<Cq> cq = make_cq(context.get());
    Region memory(pd.get(), 4096);
    const Owned<Qp> qp = make_qp(pd.get(), cq.get(), cq.get());
    uint32_t peer = 0;
    if (read(to_child[0], &peer, sizeof peer) != sizeof peer) return 1;
    const TargetNames mine{qp_number(qp.get()), memory.rkey(), memory.address()};
    if (write(from_child[1], &mine, sizeof mine) != sizeof mine) return 2;
    connect(qp.get(), peer, gid);
    self.tell('r');
    self.hear();
    return 0;
  });
  const Owned<Context> context = open_device();
  const Owned<Pd> pd = make_pd(context.get());
  const Owned<Cq> cq = make_cq(context.get());
  Region memory(pd.get(), 64);
  const Owned<Qp> qp = make_qp(pd.get(), cq.get(), cq.get());
  const uint32_t number = qp_number(qp.get());
  TargetNames there{};
  ASSERT_EQ(write(to_child[1], &number, sizeof number), static_cast<ssize_t>(sizeof number));
  ASSERT_EQ(read(from_child[0], &there, sizeof there), static_cast<ssize_t>(sizeof there));
  connect(qp.get(), there.qpn, gid);
  ASSERT_EQ(target.answer(), 'r');
  testing::internal::CaptureStderr();
  ASSERT_EQ(rdma(qp.get(), IBV_WR_RDMA_READ, {memory.sge(0, 64)}, there.address + 4090, there.rkey), 0);
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "this process logs errors alone";
  expect_words(read_line(errors[0]), {"verbena[" + std::to_string(target.pid()) +
                                          "] warn: " + qp_name(there.qpn) + " refuses RDMA_READ of 64",
                                      "from " + qp_name(number) + " of process " + std::to_string(getpid()),
                                      "rkey " + hex(there.rkey), "length 4096"});
  target.command('q');
  EXPECT_EQ(target.finish(), 0);
  for (int fd : {to_child[0], to_child[1], from_child[0], from_child[1], errors[0], errors[1]}) close(fd);
}

Owned<Qp> make_datagram_qp(Pd* pd, Cq* cq) {
  ibv_qp_init_attr init{};
  init.cap = {16, 16, 1, 1, 0};
  init.qp_type = IBV_QPT_UD;
  Qp* qp = nullptr;
  EXPECT_EQ(create_qp(pd, &init, cq, cq, 0, &qp), 0);
  DatagramScene::start(qp);
  return Owned<Qp>(qp);
}

// A process with a UD queue pair, to which nobody sends because the sender has another number.
TEST(RefusalLog, OfAStrayDatagramIsWrittenByTheProcessThatMayWaitForIt) {
  TemporaryNode node;
  int from_child[2], errors[2];
  ASSERT_EQ(pipe(from_child) | pipe(errors), 0);
  Child waiting([&](const Child& self) {
    log_level = LogLevel::kWarn;
    dup2(errors[1], STDERR_FILENO);
    const Owned<Context> context = open_device();
    const Owned<Pd> pd = make_pd(context.get());
    const Owned<Cq> cq = make_cq(context.get());
    const Owned<Qp> qp = make_datagram_qp(pd.get(), cq.get());
    const uint32_t mine = qp_number(qp.get());
    if (write(from_child[1], &mine, sizeof mine) != sizeof mine) return 1;
    self.hear();
    return 0;
  });
  uint32_t there = 0;
  ASSERT_EQ(read(from_child[0], &there, sizeof there), static_cast<ssize_t>(sizeof there));
  const Owned<Context> context = open_device();
  const Owned<Pd> pd = make_pd(context.get());
  const Owned<Cq> cq = make_cq(context.get());
  const Owned<Qp> qp = make_datagram_qp(pd.get(), cq.get());
  Region memory(pd.get(), 64);
  Address to(pd.get(), address_of(node.directory().devices().devices[0].ports[0].gids[0]));
  Sges sges{memory.sge(0, 8)};
  ibv_send_wr wr = request(IBV_WR_SEND, sges, 1);
  wr.wr.ud = {to.ah(), 0xfffff0, kQkey};
  testing::internal::CaptureStderr();
  ASSERT_EQ(post(qp.get(), wr), 0);
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "this process logs errors alone";
  expect_words(read_line(errors[0]),
               {"verbena[" + std::to_string(waiting.pid()) + "] warn: SEND of 8 bytes from " +
                    qp_name(qp_number(qp.get())) + " of process " + std::to_string(getpid()),
                "it is for QP 0xfffff0, ", "the UD queue pair here is " + qp_name(there)});
  waiting.command('q');
  EXPECT_EQ(waiting.finish(), 0);
  for (int fd : {from_child[0], from_child[1], errors[0], errors[1]}) close(fd);
}

// ---- what stays in the segment ----

TEST(KeptForStatus, TheLastErrorOfTheSendQueue) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(60), memory.rkey(), 77), 0);
  ASSERT_EQ(pair.a.sent().status, IBV_WC_REM_ACCESS_ERR);
  const SharedQp& shared = *(*pair.a)->shared;
  const ErrorWord error = ErrorWord::unpack(shared.error.load());
  EXPECT_NE(shared.error_time.load(), 0u);
  EXPECT_EQ(shared.error_wr_id.load(), 77u);
  EXPECT_EQ(error.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(error.vendor_err, static_cast<uint8_t>(VendorError::rkey_out_of_range));
  EXPECT_FALSE(error.receive);
}

TEST(KeptForStatus, TheLastErrorOfTheReceiveQueueBeforeAndAfterItIsPolled) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(receive(*pair.b, {memory.sge(0, 4)}, 88), 0);
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
  ASSERT_EQ(pair.a.sent().status, IBV_WC_REM_INV_REQ_ERR);
  const SharedQp& shared = *(*pair.b)->shared;
  EXPECT_NE(shared.receive_error_time.load(), 0u);
  EXPECT_EQ(ErrorWord::unpack(shared.receive_error.load()).status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(shared.error_time.load(), 0u);
  ASSERT_EQ(pair.b.received().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(shared.error_time.load(), shared.receive_error_time.load());
  EXPECT_EQ(shared.error_wr_id.load(), 88u);
  EXPECT_TRUE(ErrorWord::unpack(shared.error.load()).receive);
}

TEST(KeptForStatus, NoFlush) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(receive(*pair.b, {memory.sge(0, 4)}), 0);
  ASSERT_EQ(to_state(*pair.b, IBV_QPS_ERR), 0);
  ASSERT_EQ(pair.b.received().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ((*pair.b)->shared->error_time.load(), 0u);
}

TEST(KeptForStatus, SinceWhenASendWaitsForAReceiveRequest) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  const SharedQp& shared = *(*pair.a)->shared;
  const uint64_t before = wall_clock_ns();
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
  while (shared.rnr_naks.load() < 3) ASSERT_EQ(poll_cq(pair.a.send_cq.get(), 0, nullptr), 0);
  const uint64_t since = shared.rnr_since.load();
  EXPECT_GE(since, before);
  EXPECT_LE(since, wall_clock_ns());
  EXPECT_EQ(shared.rnr_is_endless.load(), 1u);
  EXPECT_EQ(shared.rnr_requests_out.load(), shared.requests_out.load()) << "it waits";
  ASSERT_EQ(receive(*pair.b, {memory.sge(8, 8)}), 0);
  ASSERT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
  EXPECT_NE(shared.rnr_requests_out.load(), shared.requests_out.load()) << "it waits no more";
}

TEST(KeptForStatus, HowManyEventsOfACqAreRead) {
  Scene scene;
  const Owned<Cq> cq = make_cq(scene.context.get());
  cq_event(cq.get());
  EXPECT_EQ(cq->shared->events_read.load(), 1u);
}

}  // namespace
}  // namespace verbena
