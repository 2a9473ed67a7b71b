// SPDX-License-Identifier: BSD-2-Clause
//
// Transfers: inline data, addresses, the largest message, many at a time, what completions say.
#include <sys/resource.h>

#include <fstream>
#include <string>

#include "support/pair.h"

namespace conformance::transfer_more_chapter {
namespace {

PairSpec of(ibv_qp_type type, uint32_t inline_data = 0) {
  PairSpec spec;
  spec.both.type = type;
  spec.both.inline_data = inline_data;
  return spec;
}

class Fixture : public PairTest {
 protected:
  // New ends of this type, of which the receiver is in question. False where the device has none: the test is
  // of other types besides.
  bool renew(ibv_qp_type type) {
    PairSpec spec = of(type);
    spec.tests_far = true;
    try {
      new_pair(spec);
      return true;
    } catch (const NotClaimed&) {
      if (type == IBV_QPT_RC) throw;
      return false;
    }
  }
};

class InlineTest : public PairTest {
 protected:
  // Bytes that are overwritten as soon as the call has returned.
  void send(ibv_qp_type type, ibv_wr_opcode opcode) {
    new_pair(of(type, 32));
    const uint32_t longest = type == IBV_QPT_UD ? pair().mtu_bytes() : 4096u;  // a datagram is one packet
    const uint32_t most = std::min(near().facts().inline_data, longest);
    if (most == 0) throw NotClaimed{"max_inline_data is 0"};
    const bool is_send = opcode == IBV_WR_SEND;
    const uint32_t at = 64 + (is_send ? far().data_offset() : 0);
    for (const uint32_t size : {0u, 1u, most}) {
      SCOPED_TRACE(std::to_string(size) + " bytes");
      near().fill_pattern(64, size, size + 1);
      far().fill(0, at + size + 64, Buffer::untouched);
      if (is_send) {
        ASSERT_EQ(far().receive(64, 40 + 4096), 0);
      }
      std::vector<Element> elements;
      if (size > 0) elements.push_back({64, size});
      SendRequest request = remote_request(opcode, elements, far().facts(), 64);
      request.flags |= IBV_SEND_INLINE;
      ASSERT_EQ(near().post(request), 0);
      near().fill(64, size, 0xee);
      EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
      if (is_send) {
        EXPECT_EQ(far().received().bytes, far().data_offset() + size);
      }
      if (!is_send) wait_for(at, size, size + 1, std::chrono::milliseconds(type == IBV_QPT_UC ? 3000 : 100));
      EXPECT_TRUE(far().has_pattern(at, size, size + 1));
      EXPECT_TRUE(far().untouched(at + size, 64));
    }
  }
  // Nothing tells when a UC WRITE has arrived; one of RC may be on its way into memory when it has completed.
  void wait_for(uint64_t at, uint64_t size, uint64_t seed, std::chrono::milliseconds time) {
    const auto deadline = std::chrono::steady_clock::now() + scaled(time);
    while (!far().has_pattern(at, size, seed) && std::chrono::steady_clock::now() < deadline) {
    }
  }
};

namespace inline_data {
using Fixture = InlineTest;

CONFORMANCE_TEST(transfer, RcInlineSend, "transfer.rc.inline-send") { send(IBV_QPT_RC, IBV_WR_SEND); }
CONFORMANCE_TEST(transfer, UcInlineSend, "transfer.uc.inline-send") { send(IBV_QPT_UC, IBV_WR_SEND); }
CONFORMANCE_TEST(transfer, UdInlineSend, "transfer.ud.inline-send") { send(IBV_QPT_UD, IBV_WR_SEND); }
CONFORMANCE_TEST(transfer, RcInlineWrite, "transfer.rc.inline-write") { send(IBV_QPT_RC, IBV_WR_RDMA_WRITE); }
CONFORMANCE_TEST(transfer, UcInlineWrite, "transfer.uc.inline-write") { send(IBV_QPT_UC, IBV_WR_RDMA_WRITE); }

}  // namespace inline_data

CONFORMANCE_TEST(transfer, InlineList, "transfer.inline-list") {
  PairSpec spec = of(IBV_QPT_RC, 24);
  spec.both.send_sges = 3;
  pair(spec);
  if (near().facts().inline_data < 24 || near().facts().send_sges < 3)
    throw NotClaimed{"no 24 bytes of inline data in three elements"};
  near().fill_pattern(0, 1024, 5);
  ASSERT_EQ(far().receive(0, 64), 0);
  SendRequest request = send_request({{101, 1}, {7, 20}, {300, 3}});
  request.flags |= IBV_SEND_INLINE;
  ASSERT_EQ(near().post(request), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().bytes, 24u);
  EXPECT_TRUE(far().has_pattern(0, 1, 5, 101));
  EXPECT_TRUE(far().has_pattern(1, 20, 5, 7));
  EXPECT_TRUE(far().has_pattern(21, 3, 5, 300));
}

CONFORMANCE_TEST(transfer, ReadScatters, "transfer.read-scatter") {
  if (device().attributes().max_sge_rd < 3) throw NotClaimed{"max_sge_rd is below 3"};
  PairSpec spec;
  spec.both.send_sges = 3;
  pair(spec);
  if (near().facts().send_sges < 3) throw NotClaimed{"fewer than three elements"};
  far().fill_pattern(0, 1024, 5);
  ASSERT_EQ(near().post(remote_request(IBV_WR_RDMA_READ, {{501, 3}, {99, 40}, {200, 1}}, far().facts(), 77)),
            0);
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(near().has_pattern(501, 3, 5, 77));
  EXPECT_TRUE(near().has_pattern(99, 40, 5, 80));
  EXPECT_TRUE(near().has_pattern(200, 1, 5, 120));
  EXPECT_TRUE(near().untouched(504, 64));
  EXPECT_TRUE(near().untouched(139, 61));
  EXPECT_TRUE(near().untouched(201, 64));
}

CONFORMANCE_TEST(transfer, AnyAddress, "transfer.odd-addresses") {
  near().fill_pattern(0, 1024, 5);
  for (uint32_t from = 0; from < 8; ++from) {
    for (uint32_t to = 0; to < 8; to += from % 2 == 0 ? 1 : 3) {
      far().fill(0, 512, Buffer::untouched);
      ASSERT_EQ(near().post(remote_request(IBV_WR_RDMA_WRITE, {{64 + from, 61}}, far().facts(), 128 + to)),
                0);
      ASSERT_EQ(near().completion().status, IBV_WC_SUCCESS);
      ASSERT_TRUE(far().has_pattern(128 + to, 61, 5, 64 + from)) << "from " << from << " to " << to;
      ASSERT_TRUE(far().untouched(0, 128 + to)) << "from " << from << " to " << to;
      ASSERT_TRUE(far().untouched(128 + to + 61, 64)) << "from " << from << " to " << to;
    }
  }
}

// Available bytes of memory, or 0.
uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    uint64_t kibibytes;
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

// All of one pair of buffers, which take most of the time.
CONFORMANCE_TEST_AS(Traits().slow().alone().limit(240), transfer, LargestMessage, "transfer.largest",
                    "transfer.largest.send", "transfer.largest.read", "transfer.largest.uc",
                    "transfer.largest.xrc") {
  const auto largest = static_cast<uint32_t>(device().port().max_msg_sz);
  if (largest == 0) throw NotTested{"max_msg_sz is 0, of which ibv_query_port.max-msg-sz tells"};
  if (device().attributes().max_mr_size < largest) throw NotTested{"max_mr_size is below max_msg_sz"};
  if (available_memory() < 4 * uint64_t{largest})
    throw NotTested{"not memory enough for two buffers of " + std::to_string(largest) + " bytes"};
  PairSpec spec;
  spec.both.buffer = largest;
  spec.path.timeout = 20;  // 4 s
  try {
    pair(spec);
  } catch (const Deviation&) {
    // The kernel's core pins no more, whatever the device (Linux drivers/infiniband/core/umem.c,
    // ib_umem_get()).
    rlimit locked = {};
    if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur / 2 < largest)
      throw NotTested{"RLIMIT_MEMLOCK does not allow two buffers of " + std::to_string(largest) + " bytes"};
    throw;
  }
  if (far().facts().largest < largest) throw NotTested{"max_msg_sz of the far end is smaller"};
  const uint32_t part = std::min(largest / 2, 1u << 20);
  uint64_t seed = 5;
  const auto carry = [&](Endpoint& here, Endpoint& there, ibv_wr_opcode opcode) {
    Endpoint& source = opcode == IBV_WR_RDMA_READ ? there : here;
    Endpoint& target = opcode == IBV_WR_RDMA_READ ? here : there;
    source.fill_pattern(0, part, ++seed);
    source.fill_pattern(largest - part, part, ++seed);
    if (takes_a_receive(opcode)) {
      ASSERT_EQ(there.receive(0, largest), 0);
    }
    ASSERT_EQ(here.post(remote_request(opcode, {{0, largest}}, there.facts())), 0);
    const auto done = here.completions(1, false, Where::current(), std::chrono::seconds(120));
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS) << completion_text(done[0]);
    if (takes_a_receive(opcode)) {
      const auto received = there.completions(1, true, Where::current(), std::chrono::seconds(120));
      EXPECT_EQ(received[0].status, IBV_WC_SUCCESS) << completion_text(received[0]);
      EXPECT_EQ(received[0].bytes, largest);
    }
    EXPECT_TRUE(target.has_pattern(0, part, seed - 1));
    EXPECT_TRUE(target.has_pattern(largest - part, part, seed));
  };
  const struct {
    ClauseId clause;
    ibv_wr_opcode opcode;
  } reliable[] = {{"transfer.largest", IBV_WR_RDMA_WRITE},
                  {"transfer.largest.read", IBV_WR_RDMA_READ},
                  {"transfer.largest.send", IBV_WR_SEND}};
  for (const auto& [clause, opcode] : reliable) {
    const About about(clause);
    carry(near(), far(), opcode);
    if (HasFatalFailure()) return;
  }
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_XRC_SEND}) {
    const About about(type == IBV_QPT_UC ? ClauseId("transfer.largest.uc")
                                         : ClauseId("transfer.largest.xrc"));
    if (type == IBV_QPT_XRC_SEND && (device().attributes().device_cap_flags & IBV_DEVICE_XRC) == 0) {
      not_claimed("device_cap_flags has no XRC");
      continue;
    }
    wire::MakeEnd here = spec.both, there = spec.both;
    here.type = there.type = type;
    here.shares = near().facts().end;
    there.shares = far().facts().end;
    try {
      Endpoint sender(topology().near(), here), receiver(topology().far(), there);
      ASSERT_EQ(sender.connect(receiver.facts(), spec.path), 0);
      ASSERT_EQ(receiver.connect(sender.facts(), spec.path), 0);
      carry(sender, receiver, IBV_WR_SEND);
    } catch (const FarNotClaimed& refusal) {
      not_tested(refusal.reason);
    } catch (const NotClaimed& refusal) {  // a device without UC may have XRC
      not_claimed(refusal.reason);
    }
  }
}

CONFORMANCE_TEST(transfer, DatagramsUpToTheMtu, "transfer.ud-largest") {
  pair(of(IBV_QPT_UD));
  const uint32_t mtu = pair().mtu_bytes();
  // The MTU of an Ethernet port may lie between two values of ibv_mtu: it is less than the next one.
  const uint32_t beyond = device().is_ethernet() ? 2 * mtu : mtu + 1;
  near().fill_pattern(0, beyond, 5);
  for (const uint32_t size : {mtu, beyond}) {
    ASSERT_EQ(far().receive(0, 40 + beyond), 0);
    const int error = near().post(send_request({{0, size}}));
    if (size == mtu) {
      ASSERT_EQ(error, 0);
      EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
      EXPECT_EQ(far().received().bytes, 40 + mtu);
      EXPECT_TRUE(far().has_pattern(40, mtu, 5));
      continue;
    }
    if (error == 0) near().completion();  // whichever status
    const auto longer = far().poll(1, scaled(std::chrono::milliseconds(20)), true);
    if (longer.empty()) continue;
    // No value of ibv_mtu says more than 4096 bytes: a port of an MTU of 8192 tells that.
    EXPECT_EQ(pair().mtu(), IBV_MTU_4096) << "a datagram longer than the MTU arrived";
    EXPECT_EQ(longer[0].status, IBV_WC_SUCCESS) << completion_text(longer[0]);
    EXPECT_EQ(longer[0].bytes, 40 + size) << "it arrived cut";
    EXPECT_TRUE(far().has_pattern(40, size, 5));
  }
}

CONFORMANCE_TEST(transfer, RestOfAReceiveStays, "transfer.receive-longer") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    if (!renew(type)) continue;
    for (const uint32_t size : {1u, 33u, 200u}) {
      const uint32_t end = 64 + far().data_offset() + size;
      far().fill(0, 1024, Buffer::untouched);
      ASSERT_EQ(far().receive(64, 900), 0);
      ASSERT_EQ(near().post(send_request({{0, size}})), 0);
      EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
      EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
      EXPECT_TRUE(far().untouched(end, 1024 - end)) << type_name(type) << ", " << size << " bytes";
    }
  }
}

CONFORMANCE_TEST(transfer, WriteWithImmediateTakesAReceive, "transfer.write-imm.length",
                 "transfer.write-imm.receive-untouched") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    if (!renew(type)) continue;
    near().fill_pattern(0, 512, 5);
    for (const uint32_t room : {0u, 64u}) {
      far().fill(0, 4096, Buffer::untouched);
      ASSERT_EQ(far().receive(0, room, 3), 0);
      ASSERT_EQ(near().post(remote_request(IBV_WR_RDMA_WRITE_WITH_IMM, {{0, 100}}, far().facts(), 1024)), 0);
      EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
      const Completion received = far().received();
      EXPECT_EQ(received.status, IBV_WC_SUCCESS);
      EXPECT_EQ(received.id, 3u);
      {
        const About about("transfer.write-imm.length");
        EXPECT_EQ(received.bytes, 100u);
      }
      const About about("transfer.write-imm.receive-untouched");
      EXPECT_TRUE(far().untouched(0, 1024));
      EXPECT_TRUE(far().has_pattern(1024, 100, 5));
    }
  }
}

CONFORMANCE_TEST(transfer, ManyAtATime, "transfer.many") {
  const uint32_t count = std::min({near().facts().send_depth, far().facts().receive_depth, 64u});
  near().fill_pattern(0, 4096, 5);
  std::vector<ReceiveRequest> receives;
  std::vector<SendRequest> sends;
  for (uint32_t i = 0; i < count; ++i) {
    receives.push_back({i, {{i * 64, 64}}});
    sends.push_back(send_request({{i, i + 1}}, i));
  }
  ASSERT_EQ(far().receive(receives), 0);
  ASSERT_EQ(near().post(sends), 0);
  const auto sent = near().completions(count), received = far().completions(count, true);
  for (uint32_t i = 0; i < count; ++i) {
    EXPECT_EQ(sent[i].id, i);
    EXPECT_EQ(received[i].id, i);
    EXPECT_EQ(received[i].bytes, i + 1);
    EXPECT_TRUE(far().has_pattern(i * 64, i + 1, 5, i));
  }
}

CONFORMANCE_TEST(transfer, BothWays, "transfer.both-ways") {
  PairSpec spec;
  spec.both.separate_cqs = true;
  pair(spec);
  constexpr uint32_t size = 5000;
  for (Endpoint* end : {&near(), &far()}) {
    end->fill_pattern(0, size, 5);
    ASSERT_EQ(end->receive(8192, size), 0);
  }
  for (Endpoint* end : {&near(), &far()}) ASSERT_EQ(end->post(send_request({{0, size}})), 0);
  for (Endpoint* end : {&near(), &far()}) {
    EXPECT_EQ(end->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(end->received().bytes, size);
    EXPECT_TRUE(end->has_pattern(8192, size, 5));
  }
}

CONFORMANCE_TEST(transfer, IntoASharedQueue, "transfer.srq") {
  PairSpec spec;
  spec.both.buffer = 1 << 17;
  spec.far = spec.both;
  spec.far->srq = true;
  spec.tests_far = true;
  pair(spec);
  for (const uint32_t size : {0u, 1u, pair().mtu_bytes(), pair().mtu_bytes() + 1, 60000u}) {
    near().fill_pattern(0, size, 5);
    ASSERT_EQ(far().receive(64, 60000, size), 0);
    std::vector<Element> elements;
    if (size > 0) elements.push_back({0, size});
    ASSERT_EQ(near().post(send_request(elements)), 0);
    EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
    const Completion received = far().received();
    EXPECT_EQ(received.id, size);
    EXPECT_EQ(received.bytes, size);
    EXPECT_TRUE(far().has_pattern(64, size, 5));
  }
}

CONFORMANCE_TEST(transfer, CompletionsTellTheOperation, "ibv_poll_cq.opcode.send", "ibv_poll_cq.opcode.write",
                 "ibv_poll_cq.opcode.read", "ibv_poll_cq.opcode.cmp-swp", "ibv_poll_cq.opcode.fetch-add",
                 "ibv_poll_cq.opcode.recv", "ibv_poll_cq.opcode.recv-imm", "ibv_poll_cq.byte-len.read") {
  const struct {
    ClauseId clause;
    ibv_wr_opcode request;
    ibv_wc_opcode expected;
  } table[] = {{"ibv_poll_cq.opcode.send", IBV_WR_SEND, IBV_WC_SEND},
               {"ibv_poll_cq.opcode.send", IBV_WR_SEND_WITH_IMM, IBV_WC_SEND},
               {"ibv_poll_cq.opcode.write", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE},
               {"ibv_poll_cq.opcode.write", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE},
               {"ibv_poll_cq.opcode.read", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ},
               {"ibv_poll_cq.opcode.cmp-swp", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP},
               {"ibv_poll_cq.opcode.fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD}};
  for (const auto& row : table) {
    const About about(row.clause);
    if (is_atomic(row.request) && device().attributes().atomic_cap == IBV_ATOMIC_NONE) {
      not_claimed("atomic_cap is none");
      continue;
    }
    if (is_atomic(row.request) && !pair().has_atomics()) {
      not_tested("the far end has no atomics");
      continue;
    }
    if (takes_a_receive(row.request)) {
      ASSERT_EQ(far().receive(0, 64), 0);
    }
    ASSERT_EQ(near().post(remote_request(row.request, {{0, 8}}, far().facts(), 1024)), 0);
    const Completion done = near().completion();
    EXPECT_EQ(done.opcode, row.expected);
    if (row.request == IBV_WR_RDMA_READ) {
      const About length("ibv_poll_cq.byte-len.read");
      EXPECT_EQ(done.bytes, 8u);
    }
    if (!takes_a_receive(row.request)) continue;
    const bool is_write = row.request == IBV_WR_RDMA_WRITE_WITH_IMM;
    const About there(is_write ? ClauseId("ibv_poll_cq.opcode.recv-imm")
                               : ClauseId("ibv_poll_cq.opcode.recv"));
    EXPECT_EQ(far().received().opcode, is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
  }
}

}  // namespace
}  // namespace conformance::transfer_more_chapter
