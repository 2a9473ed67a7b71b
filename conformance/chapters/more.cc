// SPDX-License-Identifier: BSD-2-Clause
//
// Device memory, ECE, rate limits, order of data, fork.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "support/pair.h"

namespace conformance::more_chapter {
namespace {

class Fixture : public PairTest {
 protected:
  uint64_t claimed_memory() {
    const uint64_t size = device().extended().max_dm_size;
    if (size == 0) throw NotClaimed{"max_dm_size is 0"};
    return size;
  }
  Dm memory(uint64_t length, uint32_t alignment = 0) {
    ibv_alloc_dm_attr attr = {length, alignment, 0};
    return Dm(CALL(ibv_alloc_dm(context(), &attr)));
  }
  // Of a length within the claim. Others may hold what there is (ibv_alloc_dm(3), NOTES).
  Dm memory_as_claimed(uint64_t length, uint32_t alignment = 0) {
    Dm dm = memory(length, alignment);
    if (!dm && errno == ENOMEM) throw NotTested{"no device memory is free"};
    return dm;
  }
  Mr reg(ibv_pd* pd, ibv_dm* dm, size_t length, unsigned access) {
    return Mr(CALL(ibv_reg_dm_mr(pd, dm, 0, length, access)));
  }
};

CONFORMANCE_TEST(more, DeviceMemoryComesAndGoes, "ibv_alloc_dm.pointer", "ibv_alloc_dm.as-claimed",
                 "ibv_alloc_dm.too-large", "ibv_free_dm.zero") {
  const uint64_t most = claimed_memory();
  Dm dm = memory_as_claimed(std::min<uint64_t>(most, 4096));
  ASSERT_NE(dm, nullptr) << "errno " << errno_text(errno);
  EXPECT_SUCCEEDS(dm.destroy());
  const About about("ibv_alloc_dm.too-large");
  EXPECT_EQ(memory(most + 1), nullptr);
}

CONFORMANCE_TEST(more, DeviceMemoryIsAligned, "ibv_alloc_dm.align") {
  const Dm dm = memory_as_claimed(std::min<uint64_t>(claimed_memory(), 512), 3);
  EXPECT_NE(dm, nullptr) << "8 byte alignment, errno " << errno_text(errno);
}

CONFORMANCE_TEST(more, DeviceMemoryKeepsWhatWasCopied, "ibv_memcpy_to_dm.round-trip",
                 "ibv_memcpy_to_dm.range") {
  const size_t length = std::min<uint64_t>(claimed_memory(), 4096);
  const Dm dm = memory_as_claimed(length);
  ASSERT_NE(dm, nullptr);
  const Buffer from(length + 4), to(length + 4);
  for (size_t i = 0; i < length; ++i) from[i] = static_cast<uint8_t>(i * 7);
  ASSERT_SUCCEEDS(ibv_memcpy_to_dm(dm, 0, from.data(), length));
  ASSERT_SUCCEEDS(ibv_memcpy_from_dm(to.data(), dm, 0, length));
  ABOUT("ibv_memcpy_to_dm.round-trip") EXPECT_EQ(memcmp(from.data(), to.data(), length), 0);
  if (length >= 128) {
    const About about("ibv_memcpy_to_dm.round-trip");
    ASSERT_SUCCEEDS(ibv_memcpy_to_dm(dm, 64, from.data(), 64));
    ASSERT_SUCCEEDS(ibv_memcpy_from_dm(to.data(), dm, 64, 64));
    EXPECT_EQ(memcmp(from.data(), to.data(), 64), 0) << "at offset 64";
  }
  const About about("ibv_memcpy_to_dm.range");
  EXPECT_NE(CALL(ibv_memcpy_to_dm(dm, 0, from.data(), length + 4)), 0);
  EXPECT_NE(CALL(ibv_memcpy_from_dm(to.data(), dm, 4, length)), 0);
}

CONFORMANCE_TEST(more, DeviceMemoryIsRegistered, "ibv_reg_dm_mr.zero-based", "ibv_reg_dm_mr.flag",
                 "ibv_reg_dm_mr.remote", "ibv_reg_dm_mr.range", "ibv_free_dm.busy") {
  const size_t length = std::min<uint64_t>(claimed_memory(), 4096);
  ibv_pd* const pd = pair().native().end.pd;
  Dm dm = memory_as_claimed(length);
  ASSERT_NE(dm, nullptr);
  {
    const About about("ibv_reg_dm_mr.flag");
    EXPECT_EQ(reg(pd, dm, length, IBV_ACCESS_LOCAL_WRITE), nullptr);  // the page promises no errno value
  }
  {
    const About about("ibv_reg_dm_mr.range");
    EXPECT_EQ(reg(pd, dm, length + 1, IBV_ACCESS_ZERO_BASED), nullptr);
  }
  Mr mr =
      reg(pd, dm, length,
          IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(mr, nullptr) << "errno " << errno_text(errno);
  {
    const About about("ibv_free_dm.busy");
    ASSERT_NE(CALL(dm.destroy()), 0);
  }
  far().fill(0, 4, 0x77);
  SendRequest write = send_request({{0, 4}}, 1, IBV_WR_RDMA_WRITE);
  write.remote = 8, write.rkey = mr->rkey;
  ASSERT_EQ(far().post(write), 0);
  EXPECT_EQ(far().completion().status, IBV_WC_SUCCESS);
  uint8_t bytes[4] = {};
  ASSERT_SUCCEEDS(ibv_memcpy_from_dm(bytes, dm, 8, 4));
  EXPECT_EQ(bytes[0], 0x77);
  // The other direction: device memory is sent.
  ibv_sge element = {8, 4, mr->lkey};
  ibv_send_wr wr = {};
  wr.sg_list = &element;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  ASSERT_EQ(far().receive(512, 64), 0);
  ASSERT_TRUE(succeeded(pair().native().end.post(wr)));
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has(512, 4, 0x77));
  EXPECT_SUCCEEDS(mr.destroy());
  EXPECT_SUCCEEDS(dm.destroy());
}

CONFORMANCE_TEST(more, EceIsAnsweredOrRefused, "ibv_query_ece.zero") {
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  const Qp qp = make_qp(pd, cq);
  ibv_ece ece = {};
  const int error = CALL(ibv_query_ece(qp, &ece));
  if (error == EOPNOTSUPP || error == ENOSYS)
    throw NotClaimed{"ibv_query_ece refused with " + errno_text(error)};
  EXPECT_EQ(error, 0);
}

CONFORMANCE_TEST(more, EceIsAccepted, "ibv_set_ece.accepted", "ibv_set_ece.invalid") {
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  const Qp qp = make_qp(pd, cq);
  ibv_ece offered = {};
  const int error = CALL(ibv_query_ece(qp, &offered));
  ibv_ece accepted = offered;
  const int answer = error == 0 ? CALL(ibv_set_ece(qp, &accepted)) : error;
  if (answer == EOPNOTSUPP || answer == ENOSYS) throw NotClaimed{"ECE refused with " + errno_text(answer)};
  ASSERT_EQ(answer, 0);
  EXPECT_EQ(accepted.vendor_id, offered.vendor_id);
  EXPECT_EQ(accepted.options & ~offered.options, 0u) << "options that were not asked for";
  const About about("ibv_set_ece.invalid");
  ibv_ece unknown = offered, stranger = offered;
  unknown.comp_mask = 1u << 31;
  stranger.vendor_id = ~offered.vendor_id;
  EXPECT_REFUSED_WITH((EINVAL), ibv_set_ece(qp, &unknown));
  EXPECT_REFUSED_WITH((EINVAL), ibv_set_ece(qp, &stranger));
}

class Pacing : public PairTest {
 protected:
  const ibv_packet_pacing_caps& claimed() {
    const ibv_packet_pacing_caps& caps = device().extended().packet_pacing_caps;
    if (caps.qp_rate_limit_max == 0 || (caps.supported_qpts & 1u << IBV_QPT_RC) == 0)
      throw NotClaimed{"packet_pacing_caps has no rate for RC"};
    return caps;
  }
  int set(uint32_t kbps, uint32_t burst = 0, uint16_t packet = 0, uint32_t mask = 0) {
    ibv_qp_rate_limit_attr attr = {kbps, burst, packet, mask};
    ibv_qp* const qp = pair().native().end.qp;
    return CALL(ibv_modify_qp_rate_limit(qp, &attr));
  }
  // Of `count` WRITEs of `size` bytes, one after the other.
  std::chrono::duration<double> time_for(uint32_t count, uint32_t size) {
    const auto began = std::chrono::steady_clock::now();
    const SendRequest write = remote_request(IBV_WR_RDMA_WRITE, {{0, size}}, far().facts());
    for (uint32_t sent = 0; sent < count;) {
      const uint32_t some = std::min(count - sent, 8u);
      EXPECT_EQ(near().post(std::vector<SendRequest>(some, write)), 0);
      for (const Completion& done :
           near().completions(some, false, Where::current(), std::chrono::seconds(20)))
        EXPECT_EQ(done.status, IBV_WC_SUCCESS);
      sent += some;
    }
    return std::chrono::steady_clock::now() - began;
  }
};

namespace pacing {
using Fixture = Pacing;

CONFORMANCE_TEST(more, RateLimitIsSet, "ibv_modify_qp_rate_limit.set", "ibv_modify_qp_rate_limit.as-claimed",
                 "ibv_modify_qp_rate_limit.defaults", "ibv_query_device_ex.rate-limits") {
  const ibv_packet_pacing_caps& caps = claimed();
  pair();
  ABOUT("ibv_query_device_ex.rate-limits") EXPECT_LE(caps.qp_rate_limit_min, caps.qp_rate_limit_max);
  // Each of these promises that such a call is accepted: a rate, claimed, and the rest of it 0.
  const ClauseId promises[] = {"ibv_modify_qp_rate_limit.set", "ibv_modify_qp_rate_limit.as-claimed",
                               "ibv_modify_qp_rate_limit.defaults"};
  for (const ClauseId promise : promises) {
    const About about(promise);
    for (const uint32_t rate : {caps.qp_rate_limit_min, caps.qp_rate_limit_max})
      EXPECT_EQ(set(rate), 0) << rate;
  }
}

CONFORMANCE_TEST(more, RateLimitBeyondTheClaimIsRefused, "ibv_modify_qp_rate_limit.range",
                 "ibv_modify_qp_rate_limit.invalid") {
  const ibv_packet_pacing_caps& caps = claimed();
  if (caps.qp_rate_limit_max != UINT32_MAX) {
    EXPECT_TRUE(refused(set(caps.qp_rate_limit_max + 1), {EINVAL}));
  }
  if (caps.qp_rate_limit_min > 1) {
    EXPECT_TRUE(refused(set(caps.qp_rate_limit_min - 1), {EINVAL}));
  }
  const About about("ibv_modify_qp_rate_limit.invalid");
  EXPECT_TRUE(refused(set(caps.qp_rate_limit_max, 0, 0, 1u << 31), {EINVAL})) << "comp_mask";
  EXPECT_TRUE(refused(set(0, 4096), {EINVAL})) << "a burst without a rate";
}

CONFORMANCE_TEST(more, RateLimitNeedsAQpThatCanSend, "ibv_modify_qp_rate_limit.state") {
  const ibv_packet_pacing_caps& caps = claimed();
  PairSpec spec;
  spec.is_connected = false;
  pair(spec);
  EXPECT_TRUE(refused(set(caps.qp_rate_limit_max), {EINVAL})) << "in RESET";
}

// 20 Mbit/s: the data take 100 ms, and more with headers. Of a device that takes no burst size
// nothing tells how much it sends at once: of 1 MiB three quarters may be one burst.
CONFORMANCE_TEST(more, RateLimitHolds, "ibv_modify_qp_rate_limit.holds", "ibv_modify_qp_rate_limit.off") {
  constexpr uint32_t kbps = 20'000, size = 8192, burst = 16384;
  const ibv_packet_pacing_caps& caps = claimed();
  if (kbps < caps.qp_rate_limit_min || kbps > caps.qp_rate_limit_max)
    throw NotTested{"20 Mbit/s is not offered"};
  const bool has_burst = set(kbps, burst) == 0;
  if (!has_burst) {
    ABOUT("ibv_modify_qp_rate_limit.holds") ASSERT_EQ(set(kbps), 0);
  }
  const uint32_t count = has_burst ? 32 : 128, at_once = has_burst ? 2 * burst : count * size / 4 * 3;
  const std::chrono::duration<double> paced = time_for(count, size);
  ABOUT("ibv_modify_qp_rate_limit.holds")
  EXPECT_GE(paced.count(), static_cast<double>(count * size - at_once) * 8 / (kbps * 1000.0))
      << "seconds; faster than the limit";
  const int error = set(0);
  observe("ibv_modify_qp_rate_limit.off", error != 0 ? "refused with " + errno_text(error)
                                          : time_for(count, size) < paced ? "ends pacing"
                                                                          : "accepted, and the rate stays");
}

// The burst is the device's default, of which nothing tells the size: of 256 KiB, three quarters may be one.
CONFORMANCE_TEST(more, RateLimitIsAnAttribute, "ibv_modify_qp.rate-limit") {
  constexpr uint32_t kbps = 20'000, size = 8192, count = 32, burst = count * size / 4 * 3;
  const ibv_packet_pacing_caps& caps = claimed();
  if (kbps < caps.qp_rate_limit_min || kbps > caps.qp_rate_limit_max)
    throw NotTested{"20 Mbit/s is not offered"};
  ibv_qp_attr attr = {};
  attr.rate_limit = kbps;
  const int error = CALL(ibv_modify_qp(pair().native().end.qp, &attr, IBV_QP_RATE_LIMIT));
  if (is_refusal(error)) throw NotClaimed{"IBV_QP_RATE_LIMIT is refused for RC with " + errno_text(error)};
  ASSERT_EQ(error, 0);
  EXPECT_GE(time_for(count, size).count(), static_cast<double>(count * size - burst) * 8 / (kbps * 1000.0))
      << "seconds";
}

}  // namespace pacing

CONFORMANCE_TEST(more, RateLimitIsRefusedWhereItIsNot, "ibv_modify_qp_rate_limit.as-claimed") {
  if (device().extended().packet_pacing_caps.qp_rate_limit_max != 0)
    throw NotClaimed{"packet pacing is claimed"};
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  const Qp qp = make_qp(pd, cq);
  ibv_qp_rate_limit_attr attr = {};
  attr.rate_limit = 1000;
  // Where the function exists for other devices or types, the arguments are invalid.
  EXPECT_REFUSED_WITH((EOPNOTSUPP, ENOSYS, EINVAL), ibv_modify_qp_rate_limit(qp, &attr));
}

CONFORMANCE_TEST(more, OrderOfDataIsAnswered, "ibv_query_qp_data_in_order.value",
                 "ibv_query_qp_data_in_order.flags") {
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  const Qp qp = make_qp(pd, cq);
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    const int answer = CALL(ibv_query_qp_data_in_order(qp, opcode, 0));
    EXPECT_TRUE(answer == 0 || answer == 1) << answer;
  }
  const About about("ibv_query_qp_data_in_order.flags");
  EXPECT_EQ(CALL(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 1u << 31)), 0);
}

CONFORMANCE_TEST(more, LastByteComesLast, "ibv_query_qp_data_in_order.true") {
  constexpr size_t size = 65536;
  constexpr int rounds = 50;
  EndsSpec spec;
  spec.buffer = size;
  Ends ends(device(), spec);
  if (CALL(ibv_query_qp_data_in_order(ends.far.qp, IBV_WR_RDMA_WRITE, 0)) != 1)
    throw NotClaimed{"the answer is 0"};
  std::atomic<int> checked{0};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int round = 1; round <= rounds && !stop; ++round) {
      while (checked != round - 1 && !stop) std::this_thread::yield();
      memset(ends.near.buffer.data(), round, size);
      ibv_sge element = ends.near.sge(0, size);
      ibv_send_wr wr = ends.near.remote(IBV_WR_RDMA_WRITE, &element, ends.far), *bad = nullptr;
      if (ibv_post_send(ends.near.qp, &wr, &bad) != 0) return;
      ibv_wc wc;
      while (ibv_poll_cq(ends.near.cq, 1, &wc) == 0 && !stop) std::this_thread::yield();
    }
  });
  const auto* last = reinterpret_cast<const std::atomic<uint8_t>*>(ends.far.buffer.data() + size - 1);
  const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(5));
  for (int round = 1; round <= rounds; ++round) {
    while (*last != round && std::chrono::steady_clock::now() < deadline) {
    }
    EXPECT_EQ(*last, round) << "the message did not arrive";
    EXPECT_TRUE(ends.far.buffer.is(static_cast<uint8_t>(round), 0, size)) << "message " << round;
    if (HasFailure()) break;
    checked = round;
  }
  stop = true;
  writer.join();
}

CONFORMANCE_TEST(more, EnvironmentInitialisesFork, "ibv_fork_init.environment") {
  if (ibv_is_fork_initialized() == IBV_FORK_ENABLED) throw NotTested{"fork support is on without it"};
  for (const char* name : {"RDMAV_FORK_SAFE", "IBV_FORK_SAFE"}) {
    const pid_t child = fork();  // libibverbs reads it at its first call; here it was not called
    if (child == 0) {
      setenv(name, "1", 1);
      int count = 0;
      ibv_device** list = ibv_get_device_list(&count);
      if (list != nullptr) ibv_free_device_list(list);
      _exit(ibv_is_fork_initialized());
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_TRUE(WEXITSTATUS(status) == IBV_FORK_ENABLED || WEXITSTATUS(status) == IBV_FORK_UNNEEDED) << name;
  }
}

CONFORMANCE_TEST(more, ForkIsInitialised, "ibv_fork_init.zero", "ibv_is_fork_initialized.status",
                 "ibv_is_fork_initialized.unneeded") {
  const ibv_fork_status before = CALL(ibv_is_fork_initialized());
  EXPECT_EQ(CALL(ibv_fork_init()), 0);
  const ibv_fork_status after = CALL(ibv_is_fork_initialized());
  EXPECT_TRUE(after == IBV_FORK_ENABLED || after == IBV_FORK_UNNEEDED) << after;
  const About about("ibv_is_fork_initialized.unneeded");
  EXPECT_EQ(before == IBV_FORK_UNNEEDED, after == IBV_FORK_UNNEEDED);
}

CONFORMANCE_TEST(more, ForkAfterARegistration, "ibv_fork_init.after-mr") {
  const Pd pd = make_pd(device());
  const Buffer buffer(4096);
  const Mr mr = make_mr(pd, buffer);
  if (ibv_is_fork_initialized() != IBV_FORK_DISABLED) throw NotTested{"fork support is on, or not needed"};
  EXPECT_EQ(CALL(ibv_fork_init()), EINVAL);
}

CONFORMANCE_TEST(more, ParentGoesOnAfterAFork, "ibv_fork_init.parent-goes-on") {
  ASSERT_EQ(CALL(ibv_fork_init()), 0);
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const auto exchange = [&](uint8_t value) {
    near().fill(0, 8, value);
    for (const auto& [sender, receiver] : {std::pair(&near(), &far()), {&far(), &near()}}) {
      ASSERT_EQ(receiver->receive(64, 64), 0);
      ASSERT_EQ(sender->post(send_request({{sender == &near() ? 0 : 64, 8}})), 0);
      EXPECT_EQ(sender->completion().status, IBV_WC_SUCCESS);
      EXPECT_EQ(receiver->received().status, IBV_WC_SUCCESS);
      EXPECT_TRUE(receiver->has(64, 8, value));
    }
  };
  exchange(1);
  const pid_t child = fork();
  if (child == 0) {
    close(hold[1]);
    char byte;
    _exit(read(hold[0], &byte, 1) < 0 ? 1 : 0);  // until the parent lets it go
  }
  close(hold[0]);
  exchange(2);
  close(hold[1]);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  exchange(3);
}

}  // namespace
}  // namespace conformance::more_chapter
