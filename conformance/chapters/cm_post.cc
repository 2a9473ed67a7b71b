// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_cm: the helpers of <rdma/rdma_verbs.h>, on a connection whose near end uses them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <thread>

#include "support/cm.h"

namespace conformance::cm_post_chapter {
namespace {

using namespace std::chrono_literals;

struct RdmaMrDestroyer {
  static int destroy(ibv_mr* mr) { return rdma_dereg_mr(mr); }
};
using RdmaMr = Owned<ibv_mr, RdmaMrDestroyer>;

class Fixture : public CmTest {
 protected:
  static constexpr size_t length = 48, size = 4096;

  // What a test with several clauses asks of one request.
  struct Promises {
    ClauseId moves;       // the bytes
    ClauseId context;     // comes back as wr_id
    ClauseId completion;  // by the helper that takes it
    ClauseId memory;      // is registered for this
  };
  // Of the helpers that take a list: no clause of the completion or the memory.
  static Promises only(ClauseId moves, ClauseId context) { return {moves, context, moves, moves}; }

  ~Fixture() override { mr_ = RdmaMr(); }  // before its PD

  // A connection; buffer_ is registered by rdma_reg_msgs, with other bytes than the far end's memory.
  void connect_ends(uint32_t sges = 1) {
    if (static_cast<uint32_t>(device().attributes().max_sge) < sges)
      throw NotClaimed{"max_sge is " + std::to_string(device().attributes().max_sge)};
    near_qp_.send_sges = near_qp_.receive_sges = sges;
    establish();
    register_buffer();
    message_on_iwarp();
    fill(buffer_.data(), size, 3);
    far().fill(0, bytes_from(101, size));
  }
  // With room for inline data.
  void connect_with_inline() {
    near_qp_.inline_data = length;
    establish();
    need_inline();
    message_on_iwarp();
    fill(buffer_.data(), size, 3);
  }
  // A device without inline data may make the QP all the same, and say so: ibv_create_qp(3), max_inline_data.
  void need_inline() {
    const uint32_t most = made_.max_inline_data;
    if (most < length) throw NotClaimed{"max_inline_data is " + std::to_string(most)};
  }
  void register_buffer() {
    mr_ = RdmaMr(CALL(rdma_reg_msgs(near_, buffer_.data(), size)));
    if (!mr_) throw Deviation{"rdma_reg_msgs gives null, " + errno_text(errno), Where::current()};
  }

  // What an iWARP adapter reads into has to be open to the peer's writes (Linux drivers/infiniband/core/rw.c,
  // rdma_rw_init_one_mr()). rdma_reg_msgs does not ask for that: the library's, not the adapter's.
  void register_sink() {
    if (is_infiniband(near_)) return;
    mr_ = RdmaMr(CALL(rdma_reg_write(near_, buffer_.data(), size)));
    if (!mr_) throw Deviation{"rdma_reg_write gives null, " + errno_text(errno), Where::current()};
  }

  static std::vector<uint8_t> bytes_from(uint8_t first, size_t count) {
    std::vector<uint8_t> bytes(count);
    fill(bytes.data(), count, first);
    return bytes;
  }
  static void fill(uint8_t* bytes, size_t count, uint8_t first) {
    for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(first + i * 7);
  }
  std::vector<uint8_t> own(size_t offset, size_t count) const {
    return {buffer_.data() + offset, buffer_.data() + offset + count};
  }
  static std::vector<uint8_t> joined(std::vector<uint8_t> first, const std::vector<uint8_t>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
  // Two pieces of buffer_, the later one first.
  std::vector<ibv_sge> pieces() const {
    return {{buffer_.address(1000), 16, mr_->lkey}, {buffer_.address(200), length - 16, mr_->lkey}};
  }
  std::vector<uint8_t> of_pieces() const { return joined(own(1000, 16), own(200, length - 16)); }

  // Waits, with the helper, for a completion; its context must be `context_`.
  ibv_wc sent() { return taken("rdma_get_send_comp", rdma_get_send_comp); }
  ibv_wc received() { return taken("rdma_get_recv_comp", rdma_get_recv_comp); }
  void expect_sent(ibv_wc_opcode opcode) {
    const ibv_wc wc = sent();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
    EXPECT_EQ(wc.opcode, opcode);
    EXPECT_EQ(wc.wr_id, reinterpret_cast<uint64_t>(&context_));
  }
  void expect_received() {
    const ibv_wc wc = received();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(wc.byte_len, length);
    EXPECT_EQ(wc.wr_id, reinterpret_cast<uint64_t>(&context_));
  }
  // The same, each expectation with its clause.
  void expect_sent(ibv_wc_opcode opcode, const Promises& of) {
    ibv_wc wc = {};
    ABOUT(of.completion) wc = sent();
    expect_done(wc, opcode, of);
  }
  void expect_received(const Promises& of) {
    ibv_wc wc = {};
    ABOUT(of.completion) wc = received();
    expect_done(wc, IBV_WC_RECV, of);
    ABOUT(of.moves) EXPECT_EQ(wc.byte_len, length);
  }
  // The far end has received these bytes.
  void expect_arrival(const std::vector<uint8_t>& bytes) {
    const ibv_wc wc = far().received();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
    EXPECT_EQ(wc.byte_len, bytes.size());
    EXPECT_EQ(far().bytes(0, bytes.size()), bytes);
  }

  Buffer buffer_{size};
  RdmaMr mr_;
  int context_ = 0;

 private:
  void expect_done(const ibv_wc& wc, ibv_wc_opcode opcode, const Promises& of) {
    ABOUT(wc.status == IBV_WC_LOC_PROT_ERR ? of.memory : of.moves)
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
    if (wc.status == IBV_WC_SUCCESS) {  // a failed completion has no opcode: ibv_poll_cq(3)
      ABOUT(of.completion) EXPECT_EQ(wc.opcode, opcode);
    }
    ABOUT(of.context) EXPECT_EQ(wc.wr_id, reinterpret_cast<uint64_t>(&context_));
  }
  ibv_wc taken(const char* name, int (*helper)(rdma_cm_id*, ibv_wc*)) {
    ibv_wc wc = {};
    const int number = traced(name, [&] { return helper(near_, &wc); });
    if (number != 1)  // there is no completion to examine
      throw Deviation{std::string(name) + "; expected: 1; seen: " + std::to_string(number), Where::current()};
    trace("  " + wc_text(wc));
    return wc;
  }
};

CONFORMANCE_TEST(cm_verbs, SendArrives, "rdma_post_send.sends", "rdma_post_send.context",
                 "rdma_get_send_comp.one", "rdma_reg_msgs.send-recv") {
  const Promises of = {"rdma_post_send.sends", "rdma_post_send.context", "rdma_get_send_comp.one",
                       "rdma_reg_msgs.send-recv"};
  connect_ends();
  ASSERT_EQ(far().post_receive(0, 256), 0);
  ABOUT(of.moves)
  ASSERT_SUCCEEDS(rdma_post_send(near_, &context_, buffer_.data(), length, mr_, 0));
  expect_sent(IBV_WC_SEND, of);
  ABOUT(of.moves) expect_arrival(own(0, length));
}

CONFORMANCE_TEST(cm_verbs, GatheredSendArrives, "rdma_post_sendv.sends", "rdma_post_sendv.context") {
  const Promises of = only("rdma_post_sendv.sends", "rdma_post_sendv.context");
  connect_ends(2);
  ASSERT_EQ(far().post_receive(0, 256), 0);
  std::vector<ibv_sge> elements = pieces();
  ABOUT(of.moves)
  ASSERT_SUCCEEDS(rdma_post_sendv(near_, &context_, elements.data(), 2, 0));
  expect_sent(IBV_WC_SEND, of);
  ABOUT(of.moves) expect_arrival(of_pieces());
}

CONFORMANCE_TEST(cm_verbs, ReceiveTakesTheMessage, "rdma_post_recv.receives", "rdma_post_recv.context",
                 "rdma_get_recv_comp.one", "rdma_reg_msgs.send-recv") {
  const Promises of = {"rdma_post_recv.receives", "rdma_post_recv.context", "rdma_get_recv_comp.one",
                       "rdma_reg_msgs.send-recv"};
  connect_ends();
  ABOUT(of.moves)
  ASSERT_SUCCEEDS(rdma_post_recv(near_, &context_, buffer_.data(), 256, mr_));
  ASSERT_EQ(far().post(IBV_WR_SEND, 0, length), 0);
  expect_received(of);
  ABOUT(of.moves) EXPECT_EQ(own(0, length), far().bytes(0, length));
}

CONFORMANCE_TEST(cm_verbs, ScatteredReceiveTakesTheMessage, "rdma_post_recvv.receives",
                 "rdma_post_recvv.context") {
  const Promises of = only("rdma_post_recvv.receives", "rdma_post_recvv.context");
  connect_ends(2);
  std::vector<ibv_sge> elements = pieces();
  ABOUT(of.moves)
  ASSERT_SUCCEEDS(rdma_post_recvv(near_, &context_, elements.data(), 2));
  ASSERT_EQ(far().post(IBV_WR_SEND, 0, length), 0);
  expect_received(of);
  ABOUT(of.moves) EXPECT_EQ(of_pieces(), far().bytes(0, length));
}

CONFORMANCE_TEST(cm_verbs, ReadBringsTheBytes, "rdma_post_read.reads", "rdma_post_read.context",
                 "rdma_get_send_comp.one", "rdma_reg_msgs.rdma-local") {
  const Promises of = {"rdma_post_read.reads", "rdma_post_read.context", "rdma_get_send_comp.one",
                       "rdma_reg_msgs.rdma-local"};
  connect_ends();
  register_sink();
  if (!is_infiniband(near_)) {
    ABOUT(of.memory) not_claimed("iWARP reads into memory that the peer may write to");
  }
  const RemoteMemory there = far().memory();
  ABOUT(of.moves)
  ASSERT_SUCCEEDS(
      rdma_post_read(near_, &context_, buffer_.data(), length, mr_, 0, there.address + 8, there.rkey));
  expect_sent(IBV_WC_RDMA_READ, of);
  ABOUT(of.moves) EXPECT_EQ(own(0, length), far().bytes(8, length));
}

CONFORMANCE_TEST(cm_verbs, ScatteredReadBringsTheBytes, "rdma_post_readv.reads", "rdma_post_readv.context") {
  const Promises of = only("rdma_post_readv.reads", "rdma_post_readv.context");
  connect_ends(2);
  if (device().attributes().max_sge_rd < 2) throw NotClaimed{"max_sge_rd is below 2"};
  register_sink();
  const RemoteMemory there = far().memory();
  std::vector<ibv_sge> elements = pieces();
  ABOUT(of.moves)
  ASSERT_SUCCEEDS(rdma_post_readv(near_, &context_, elements.data(), 2, 0, there.address + 8, there.rkey));
  expect_sent(IBV_WC_RDMA_READ, of);
  ABOUT(of.moves) EXPECT_EQ(of_pieces(), far().bytes(8, length));
}

CONFORMANCE_TEST(cm_verbs, WriteTakesTheBytesThere, "rdma_post_write.writes", "rdma_post_write.context",
                 "rdma_get_send_comp.one", "rdma_reg_msgs.rdma-local") {
  const Promises of = {"rdma_post_write.writes", "rdma_post_write.context", "rdma_get_send_comp.one",
                       "rdma_reg_msgs.rdma-local"};
  connect_ends();
  const RemoteMemory there = far().memory();
  ABOUT(of.moves)
  ASSERT_SUCCEEDS(
      rdma_post_write(near_, &context_, buffer_.data(), length, mr_, 0, there.address + 8, there.rkey));
  expect_sent(IBV_WC_RDMA_WRITE, of);
  message_on_iwarp();
  ABOUT(of.moves) EXPECT_EQ(own(0, length), far().bytes(8, length));
}

CONFORMANCE_TEST(cm_verbs, GatheredWriteTakesTheBytesThere, "rdma_post_writev.writes",
                 "rdma_post_writev.context") {
  const Promises of = only("rdma_post_writev.writes", "rdma_post_writev.context");
  connect_ends(2);
  const RemoteMemory there = far().memory();
  std::vector<ibv_sge> elements = pieces();
  ABOUT(of.moves)
  ASSERT_SUCCEEDS(rdma_post_writev(near_, &context_, elements.data(), 2, 0, there.address + 8, there.rkey));
  expect_sent(IBV_WC_RDMA_WRITE, of);
  message_on_iwarp();
  ABOUT(of.moves) EXPECT_EQ(of_pieces(), far().bytes(8, length));
}

CONFORMANCE_TEST(cm_verbs, InlineSendNeedsNoRegistration, "rdma_post_send.inline", "rdma_post_sendv.inline") {
  connect_with_inline();
  for (const bool vector : {false, true}) {
    const About about(vector ? ClauseId("rdma_post_sendv.inline") : ClauseId("rdma_post_send.inline"));
    ASSERT_EQ(far().post_receive(0, 256), 0);
    ibv_sge element = {buffer_.address(), length, 0};
    if (vector)
      ASSERT_SUCCEEDS(rdma_post_sendv(near_, &context_, &element, 1, IBV_SEND_INLINE));
    else
      ASSERT_SUCCEEDS(rdma_post_send(near_, &context_, buffer_.data(), length, nullptr, IBV_SEND_INLINE));
    const auto was = own(0, length);
    fill(buffer_.data(), length, 200);  // the buffer may be reused when the call returns
    expect_sent(IBV_WC_SEND);
    expect_arrival(was);
  }
}

CONFORMANCE_TEST(cm_verbs, InlineWriteNeedsNoRegistration, "rdma_post_write.inline",
                 "rdma_post_writev.inline") {
  connect_with_inline();
  const RemoteMemory there = far().memory();
  for (const bool vector : {false, true}) {
    const About about(vector ? ClauseId("rdma_post_writev.inline") : ClauseId("rdma_post_write.inline"));
    fill(buffer_.data(), length, vector ? 7 : 70);
    ibv_sge element = {buffer_.address(), length, 0};
    if (vector)
      ASSERT_SUCCEEDS(
          rdma_post_writev(near_, &context_, &element, 1, IBV_SEND_INLINE, there.address, there.rkey));
    else
      ASSERT_SUCCEEDS(rdma_post_write(near_, &context_, buffer_.data(), length, nullptr, IBV_SEND_INLINE,
                                      there.address, there.rkey));
    expect_sent(IBV_WC_RDMA_WRITE);
    message_on_iwarp();
    EXPECT_EQ(far().bytes(0, length), own(0, length));
  }
}

CONFORMANCE_TEST(cm_verbs, FlagsAreThoseOfThePost, "rdma_post_send.flags") {
  prepare();
  rdma_destroy_qp(near_);
  ibv_qp_init_attr attr = queue_attributes(near_);
  attr.sq_sig_all = 0;
  ASSERT_SUCCEEDS(rdma_create_qp(near_, nullptr, &attr));
  ASSERT_EQ(connect(), 0);
  far().take_request();
  far().make_qp();
  ASSERT_EQ(far().accept(), 0);
  next_event(channel(), RDMA_CM_EVENT_ESTABLISHED);
  register_buffer();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(far().post_receive(0, 256), 0);
  ASSERT_SUCCEEDS(rdma_post_send(near_, nullptr, buffer_.data(), length, mr_, 0));
  ASSERT_SUCCEEDS(rdma_post_send(near_, &context_, buffer_.data(), length, mr_, IBV_SEND_SIGNALED));
  expect_sent(IBV_WC_SEND);
  EXPECT_TRUE(stays_empty(near_->send_cq));
}

CONFORMANCE_TEST(cm_verbs, BeforeTheConnectionNothingIsPosted, "rdma_post_send.unconnected",
                 "rdma_post_sendv.unconnected", "rdma_post_read.unconnected", "rdma_post_readv.unconnected",
                 "rdma_post_write.unconnected", "rdma_post_writev.unconnected") {
  near_ = make_bound();
  make_qp(near_);
  register_buffer();
  void* const data = buffer_.data();
  const uint64_t there = buffer_.address();
  ibv_sge element = {there, length, mr_->lkey};
  const struct {
    ClauseId clause;
    std::function<int()> post;
  } rows[] = {
      {"rdma_post_send.unconnected", [&] { return rdma_post_send(near_, nullptr, data, length, mr_, 0); }},
      {"rdma_post_sendv.unconnected", [&] { return rdma_post_sendv(near_, nullptr, &element, 1, 0); }},
      {"rdma_post_read.unconnected",
       [&] { return rdma_post_read(near_, nullptr, data, length, mr_, 0, there, mr_->rkey); }},
      {"rdma_post_readv.unconnected",
       [&] { return rdma_post_readv(near_, nullptr, &element, 1, 0, there, mr_->rkey); }},
      {"rdma_post_write.unconnected",
       [&] { return rdma_post_write(near_, nullptr, data, length, mr_, 0, there, mr_->rkey); }},
      {"rdma_post_writev.unconnected",
       [&] { return rdma_post_writev(near_, nullptr, &element, 1, 0, there, mr_->rkey); }},
  };
  for (const auto& row : rows) {
    const About about(row.clause);
    const int result = traced(row.clause.clause().id.data(), row.post);
    observe(row.clause, result == 0 ? "accepted" : "gives -1, " + errno_text(errno));
  }
}

CONFORMANCE_TEST(cm_verbs, RegistrationBelongsToThePd, "rdma_reg_msgs.pd", "rdma_reg_read.pd",
                 "rdma_reg_write.pd", "rdma_reg_msgs.error", "rdma_reg_read.error", "rdma_reg_write.error",
                 "rdma_dereg_mr.zero") {
  near_ = make_bound();
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // Nobody may touch it. A page that is unmapped instead would be anybody's next mapping.
  void* const nothing = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(nothing, MAP_FAILED);
  const struct {
    ClauseId pd, error;
    ibv_mr* (*reg)(rdma_cm_id*, void*, size_t);
  } rows[] = {{"rdma_reg_msgs.pd", "rdma_reg_msgs.error", rdma_reg_msgs},
              {"rdma_reg_read.pd", "rdma_reg_read.error", rdma_reg_read},
              {"rdma_reg_write.pd", "rdma_reg_write.error", rdma_reg_write}};
  for (const auto& row : rows) {
    {
      const About about(row.pd);
      RdmaMr mr(CALL(row.reg(near_, buffer_.data(), size)));
      ASSERT_NE(mr, nullptr) << errno_text(errno);
      EXPECT_EQ(mr->pd, near_->pd);
      const About dereg("rdma_dereg_mr.zero");
      EXPECT_SUCCEEDS(mr.destroy());
    }
    const About about(row.error);
    EXPECT_TRUE(refused_with_errno(CALL(row.reg(near_, nothing, page))));
  }
  munmap(nothing, page);
}

CONFORMANCE_TEST(cm_verbs, PeerReadsReadableMemory, "rdma_reg_read.remote", "rdma_reg_read.no-write") {
  connect_ends();
  const RdmaMr readable(CALL(rdma_reg_read(near_, buffer_.data(), size)));
  ASSERT_NE(readable, nullptr);
  const RemoteMemory here = {buffer_.address(), readable->rkey, size};
  ABOUT("rdma_reg_read.remote") {
    ASSERT_EQ(far().post(IBV_WR_RDMA_READ, 0, length, here), 0);
    ASSERT_EQ(far().sent().status, IBV_WC_SUCCESS);
    EXPECT_EQ(far().bytes(0, length), own(0, length));
  }
  const About about("rdma_reg_read.no-write");
  const auto was = own(0, length);
  ASSERT_EQ(far().post(IBV_WR_RDMA_WRITE, 1000, length, here), 0);
  const ibv_wc_status status = far().sent().status;
  if (is_infiniband(near_)) {  // iWARP does not acknowledge a write
    EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR);
  }
  EXPECT_EQ(own(0, length), was);
}

CONFORMANCE_TEST(cm_verbs, PeerWritesWritableMemory, "rdma_reg_write.remote") {
  connect_ends();
  const RdmaMr writable(CALL(rdma_reg_write(near_, buffer_.data(), size)));
  ASSERT_NE(writable, nullptr);
  ASSERT_EQ(far().post(IBV_WR_RDMA_WRITE, 0, length, {buffer_.address(8), writable->rkey, size}), 0);
  EXPECT_EQ(far().sent().status, IBV_WC_SUCCESS);
  if (!is_infiniband(near_)) {  // a message behind it tells that the WRITE is placed
    ASSERT_SUCCEEDS(rdma_post_recv(near_, nullptr, buffer_.data() + 2048, 64, mr_));
    ASSERT_EQ(far().post(IBV_WR_SEND, 0, 8), 0);
    ASSERT_EQ(completion(near_->recv_cq).status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(own(8, length), far().bytes(0, length));
}

CONFORMANCE_TEST(cm_verbs, WaitsForAReceive, "rdma_get_recv_comp.blocks") {
  connect_ends();
  ASSERT_SUCCEEDS(rdma_post_recv(near_, &context_, buffer_.data(), 256, mr_));
  auto completed = std::async(std::launch::async, [this] { expect_received(); });
  EXPECT_EQ(completed.wait_for(scaled(20ms)), std::future_status::timeout);
  ASSERT_EQ(far().post(IBV_WR_SEND, 0, length), 0);
  completed.get();
}

// A send waits for the far end's receive: rnr_retry_count 7 is without limit.
CONFORMANCE_TEST(cm_verbs, WaitsForASend, "rdma_get_send_comp.blocks") {
  only_infiniband();
  connect_ends();
  ASSERT_SUCCEEDS(rdma_post_send(near_, &context_, buffer_.data(), length, mr_, 0));
  auto completed = std::async(std::launch::async, [this] { expect_sent(IBV_WC_SEND); });
  EXPECT_EQ(completed.wait_for(scaled(20ms)), std::future_status::timeout);
  ASSERT_EQ(far().post_receive(0, 256), 0);
  completed.get();
}

// With a non-blocking channel there is nothing to wait for.
CONFORMANCE_TEST(cm_verbs, WhatCannotWaitFails, "rdma_get_recv_comp.error", "rdma_get_send_comp.error") {
  connect_ends();
  ibv_wc wc = {};
  for (const auto* of : {near_->recv_cq_channel, near_->send_cq_channel})
    ASSERT_EQ(fcntl(of->fd, F_SETFL, fcntl(of->fd, F_GETFL) | O_NONBLOCK), 0);
  EXPECT_MINUS_ONE(rdma_get_recv_comp(near_, &wc));  // the pages name no errno value
  const About about("rdma_get_send_comp.error");
  EXPECT_MINUS_ONE(rdma_get_send_comp(near_, &wc));
}

CONFORMANCE_TEST(cm_verbs, InlineDatagramNeedsNoRegistration, "rdma_post_ud_send.inline") {
  near_qp_.inline_data = length;
  const EventFacts found = look_up();
  need_inline();
  ASSERT_EQ(far().post_receive(0, 256), 0);
  const Ah ah = address_handle(found);
  ASSERT_SUCCEEDS(rdma_post_ud_send(near_, &context_, buffer_.data(), length, nullptr, IBV_SEND_INLINE, ah,
                                    found.datagram.qp_num));
  expect_sent(IBV_WC_SEND);
  EXPECT_EQ(far().received().byte_len, 40 + length);
  EXPECT_EQ(far().bytes(40, length), own(0, length));
}

CONFORMANCE_TEST(cm_verbs, DatagramArrives, "rdma_post_ud_send.sends", "rdma_post_ud_send.context") {
  const Promises of = only("rdma_post_ud_send.sends", "rdma_post_ud_send.context");
  const EventFacts found = look_up();
  register_buffer();
  ASSERT_EQ(far().post_receive(0, 256), 0);
  const Ah ah = address_handle(found);
  ABOUT(of.moves)
  ASSERT_SUCCEEDS(rdma_post_ud_send(near_, &context_, buffer_.data(), length, mr_, IBV_SEND_SIGNALED, ah,
                                    found.datagram.qp_num));
  expect_sent(IBV_WC_SEND, of);
  ABOUT(of.moves) EXPECT_EQ(far().received().byte_len, 40 + length);
  ABOUT(of.moves) EXPECT_EQ(far().bytes(40, length), own(0, length));
}

}  // namespace
}  // namespace conformance::cm_post_chapter
