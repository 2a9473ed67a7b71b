// SPDX-License-Identifier: BSD-2-Clause
//
// SENDs above 256 bytes to an SRQ of another process: into receive buffers that the sender has mapped, and
// through the bounce ring. The child sends, the parent receives.
#include "engine/local/long_send.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "engine/local/small_rdma.h"
#include "engine/objects/context.h"
#include "engine/objects/fast_path_state.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/srq.h"
#include "observe/fast_path_observer.h"
#include "observe/observer.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

enum class Memory { kMapped, kPrivate };  // can the sender map the receive buffers?

constexpr uint32_t kQps = 2;
constexpr uint32_t kReceiveSlots = 16;  // receive requests
constexpr uint32_t kRoom = kSmallRdma;  // bytes for each
constexpr size_t kBytes = size_t{kReceiveSlots} * kRoom;

// What the two tell each other.
struct Numbers {
  std::atomic<uint32_t> sender[kQps], receiver[kQps];
  std::atomic<uint32_t> rkey;
  std::atomic<uint64_t> address;  // of the receive buffers
  std::atomic<uint64_t> forged;   // where the sender's canary would be, were it behind the receive buffers
};

uint8_t byte_of(uint32_t message, uint32_t at) { return static_cast<uint8_t>(29 * message + at + (at >> 8)); }

uint32_t length_of(Memory memory, uint32_t message) {
  constexpr uint32_t kShortest = kBounceSize + 1;
  const uint32_t longest = memory == Memory::kMapped ? kSmallRdma : kLongestBounced;
  if (message % 7 == 0) return longest;
  if (message % 7 == 1) return kShortest;
  return kShortest + message * 7919 % (longest - kShortest + 1);
}

// Counts the requests that have taken the fast path.
class FastRequests final : public Observer, public FastPathObserver {
 public:
  FastRequests() {
    fast_path_observer.store(this);
    set_observer(this);
  }
  ~FastRequests() {
    set_observer(nullptr);
    fast_path_observer.store(nullptr);
  }
  void on_small_request(const SmallRequestEvent&) override { ++count; }
  uint32_t count = 0;
};

// The child's side: its queue pairs are connected when it is made.
class Sender {
 public:
  Sender(const Child& parent, Numbers& numbers, const GidEntry& gid, const QpSetup& setup) : parent_(parent) {
    context->process->longest_bounced = kLongestBounced;
    for (uint32_t i = 0; i < kQps; ++i) {
      qps[i] = make_qp(pd.get(), cq.get(), cq.get(), setup);
      numbers.sender[i] = qp_number(qps[i].get());
    }
    parent.tell('q');
    parent.hear();
    for (uint32_t i = 0; i < kQps; ++i) connect(qps[i].get(), numbers.receiver[i], gid, setup);
    parent.tell('r');
    parent.hear();
  }
  ibv_wc_status send_message(uint32_t message, uint32_t length, uint32_t qp = 0, unsigned flags = 0,
                             ibv_wr_opcode opcode = IBV_WR_SEND) {
    for (uint32_t i = 0; i < length; ++i) memory.data()[i] = byte_of(message, i);
    Sges sges{memory.sge(0, length)};
    ibv_send_wr wr = request(opcode, sges, message, flags | IBV_SEND_SIGNALED);
    wr.imm_data = message;
    if (post(qps[qp].get(), wr) != 0) return IBV_WC_GENERAL_ERR;
    return completion(cq.get()).status;
  }
  // Sends until the receive buffers are mapped, or until there is a ring.
  bool begin(Memory kind) {
    for (uint32_t qp = 0; qp < kQps; ++qp) {
      const Qp& here = *qps[qp];
      const auto is_ready = [&] {
        return kind == Memory::kMapped ? here.fast.received.is_mapped
                                       : here.requester.path.bounce_ring.bytes != nullptr;
      };
      for (const int64_t end = now_ns() + 20'000'000'000; !is_ready();) {
        if (now_ns() > end || send_message(0, kBounceSize + 1, qp) != IBV_WC_SUCCESS) return false;
        parent_.tell('m');
        parent_.hear();
      }
    }
    parent_.tell('d');
    return parent_.hear() == 'g';
  }
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());
  Region memory{pd.get(), kSmallRdma + 1};
  Owned<Cq> cq = make_cq(context.get());
  std::array<Owned<Qp>, kQps> qps;

 private:
  const Child& parent_;
};

// The parent's side.
class Receiver {
 public:
  Receiver(Memory kind, Numbers& numbers) {
    set_shared_memory_hint([](uint64_t, uint64_t) { return true; });
    const int fd = kind == Memory::kMapped ? memfd_create("receives", MFD_CLOEXEC) : -1;
    EXPECT_TRUE(fd < 0 || ftruncate(fd, kBytes) == 0);
    bytes = static_cast<uint8_t*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                       fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0));
    if (fd >= 0) close(fd);
    Mr* mr = nullptr;
    EXPECT_EQ(reg_mr(pd.get(), bytes, kBytes, reinterpret_cast<uint64_t>(bytes), kAllAccess, &mr), 0);
    region.reset(mr);
    numbers.rkey = mr_rkey(mr);
    numbers.address = reinterpret_cast<uint64_t>(bytes);
    for (uint32_t i = 0; i < kQps; ++i) {
      qps[i] = make_qp(pd.get(), cq.get(), cq.get(), {.recv_wr = 0}, 0, srq.get());
      numbers.receiver[i] = qp_number(qps[i].get());
    }
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;
  ~Receiver() {
    for (auto& qp : qps) qp.reset();
    region.reset();
    munmap(bytes, kBytes);
  }
  uint8_t* at(uint64_t slot) const { return bytes + slot * kRoom; }
  int fill(uint64_t slot, uint32_t room = kRoom) {
    return receive(srq.get(), {{reinterpret_cast<uint64_t>(at(slot)), room, mr_lkey(region.get())}}, slot);
  }
  bool holds(uint64_t slot, uint32_t message, uint32_t length) const {
    for (uint32_t i = 0; i < length; ++i)
      if (at(slot)[i] != byte_of(message, i)) return false;
    return true;
  }
  uint64_t bounced() const {
    uint64_t all = 0;
    for (const auto& qp : qps) all += qp->shared->bounce_ring_written.load();
    return all;
  }
  uint32_t posted() const { return static_cast<uint32_t>(srq->ring.posted()); }

  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());
  int channel = make_channel();
  Owned<Cq> cq = make_cq(context.get(), 256, channel, 9);
  Owned<Srq> srq = make_srq(pd.get(), kReceiveSlots, 1);
  uint8_t* bytes = nullptr;
  Owned<Mr> region;
  std::array<Owned<Qp>, kQps> qps;

 private:
  int make_channel() const {
    int made = -1;
    EXPECT_EQ(create_comp_channel(context.get(), &made), 0);
    return made;
  }
};

class LongSend : public ::testing::TestWithParam<Memory> {
 protected:
  LongSend()
      : numbers_(*new (mmap(nullptr, sizeof(Numbers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                            0)) Numbers{}) {}
  ~LongSend() override { munmap(&numbers_, sizeof numbers_); }

  // The child is made before the parent opens the device. Both begin when the sender knows where the messages
  // go. One request is then posted, that of slot 0.
  template <typename Sends, typename Receives>
  void play(Sends sends, Receives receives, const QpSetup& setup = {}) {
    Child child([&](const Child& parent) {
      Sender sender(parent, numbers_, gid(), setup);
      if (!sender.begin(GetParam())) return 99;
      const int result = sends(sender, parent);
      parent.tell('e');
      parent.hear();  // until the other end has seen what it came to see
      return result;
    });
    begin(child, [&](Receiver& side) {
      receives(side, child);
      child.command('x');
      EXPECT_EQ(child.finish(), 0);
    });
  }
  template <typename Receives>
  void begin(const Child& child, Receives receives) {
    ASSERT_EQ(child.answer(), 'q');
    Receiver side(GetParam(), numbers_);
    for (uint32_t i = 0; i < kQps; ++i) connect(side.qps[i].get(), numbers_.sender[i], gid());
    child.command('g');
    ASSERT_EQ(child.answer(), 'r');
    ASSERT_EQ(side.fill(0), 0);
    child.command('g');
    for (char word; (word = child.answer()) != 'd';) {
      ASSERT_EQ(word, 'm');
      ASSERT_EQ(completion(side.cq.get()).status, IBV_WC_SUCCESS);
      ASSERT_EQ(side.fill(0), 0);
      child.command('m');
    }
    child.command('g');
    ASSERT_EQ(side.posted(), 1u);
    begun_ = side.bounced();
    receives(side);
  }
  void expect_route(const Receiver& side) const {
    if (GetParam() == Memory::kMapped)
      EXPECT_EQ(side.bounced(), begun_);
    else
      EXPECT_GT(side.bounced(), begun_);
  }
  const GidEntry& gid() const { return node_.directory().devices().devices[0].ports[0].gids[0]; }

  const TemporaryNode node_;
  Numbers& numbers_;
  uint64_t begun_ = 0;
};

TEST_P(LongSend, EveryLengthTakesTheFastPath) {
  constexpr uint32_t kMessages = 150;
  const Memory kind = GetParam();
  play(
      [kind](Sender& sender, const Child& parent) {
        FastRequests fast;
        for (uint32_t i = 0; i < kMessages; ++i) {
          if (parent.hear() != 'g') return 1;
          if (sender.send_message(i, length_of(kind, i), i % kQps) != IBV_WC_SUCCESS) return 2;
        }
        return fast.count == kMessages ? 0 : 3;
      },
      [&](Receiver& side, const Child& child) {
        for (uint32_t i = 0; i < kMessages; ++i) {
          child.command('g');
          const ibv_wc wc = completion(side.cq.get());
          ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
          ASSERT_EQ(wc.wr_id, i % kReceiveSlots);
          ASSERT_EQ(wc.byte_len, length_of(kind, i));
          ASSERT_EQ(wc.qp_num, numbers_.receiver[i % kQps]);
          ASSERT_TRUE(side.holds(wc.wr_id, i, wc.byte_len)) << i;
          ASSERT_EQ(side.fill((i + 1) % kReceiveSlots), 0);
        }
        expect_route(side);
      });
}

// What several queue pairs send arrives in order, each message in the oldest request.
TEST_P(LongSend, TheOrderIsThatOfTheMessages) {
  const Memory kind = GetParam();
  play(
      [kind](Sender& sender, const Child& parent) {
        parent.hear();
        for (uint32_t i = 0; i < kReceiveSlots; ++i)
          if (sender.send_message(i, i % 3 == 2 ? 64 : length_of(kind, 1 + i % 6), i / 3 % kQps) !=
              IBV_WC_SUCCESS)
            return 1;
        return 0;
      },
      [&](Receiver& side, const Child& child) {
        for (uint32_t i = 1; i < kReceiveSlots; ++i) ASSERT_EQ(side.fill(i), 0);
        child.command('g');
        ASSERT_EQ(child.answer(), 'e');
        const std::vector<ibv_wc> all = completions(side.cq.get(), kReceiveSlots);
        for (uint32_t i = 0; i < all.size(); ++i) {
          EXPECT_EQ(all[i].wr_id, i);
          EXPECT_EQ(all[i].qp_num, numbers_.receiver[i / 3 % kQps]);
          EXPECT_TRUE(side.holds(i, i, all[i].byte_len)) << i;
        }
        expect_route(side);
      });
}

TEST_P(LongSend, CarriesAnImmediate) {
  play(
      [](Sender& sender, const Child& parent) {
        parent.hear();
        return sender.send_message(77, 1000, 0, 0, IBV_WR_SEND_WITH_IMM) == IBV_WC_SUCCESS ? 0 : 1;
      },
      [](Receiver& side, const Child& child) {
        child.command('g');
        const ibv_wc wc = completion(side.cq.get());
        EXPECT_EQ(wc.wc_flags & IBV_WC_WITH_IMM, unsigned{IBV_WC_WITH_IMM});
        EXPECT_EQ(wc.imm_data, 77u);
        EXPECT_TRUE(side.holds(0, 77, 1000));
      });
}

TEST_P(LongSend, OnlyASolicitedMessageWakesASolicitedWait) {
  play(
      [](Sender& sender, const Child& parent) {
        parent.hear();
        if (sender.send_message(1, 1000) != IBV_WC_SUCCESS) return 1;
        parent.tell('u');
        parent.hear();
        return sender.send_message(2, 1000, 0, IBV_SEND_SOLICITED) == IBV_WC_SUCCESS ? 0 : 2;
      },
      [](Receiver& side, const Child& child) {
        ASSERT_EQ(side.fill(1), 0);
        ASSERT_EQ(req_notify_cq(side.cq.get(), true), 0);
        child.command('g');
        ASSERT_EQ(child.answer(), 'u');
        EXPECT_EQ(completion_event(side.channel, 0), UINT64_MAX);
        child.command('g');
        EXPECT_EQ(completion_event(side.channel), 9u);
        completions(side.cq.get(), 2);
      });
}

TEST_P(LongSend, LongerThanItsRequestFails) {
  play(
      [](Sender& sender, const Child& parent) {
        parent.hear();
        if (sender.send_message(1, 1000) != IBV_WC_SUCCESS) return 1;
        return sender.send_message(2, 1000) == IBV_WC_REM_INV_REQ_ERR ? 0 : 2;
      },
      [](Receiver& side, const Child& child) {
        ASSERT_EQ(side.fill(1, 999), 0);
        child.command('g');
        EXPECT_EQ(completion(side.cq.get()).status, IBV_WC_SUCCESS);
        const ibv_wc wc = completion(side.cq.get());
        EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
        EXPECT_EQ(wc.wr_id, 1u);
      });
}

TEST_P(LongSend, AnEndedKeyFails) {
  play(
      [](Sender& sender, const Child& parent) {
        parent.hear();
        return sender.send_message(2, 1000) == IBV_WC_REM_OP_ERR ? 0 : 1;
      },
      [](Receiver& side, const Child& child) {
        side.region.reset();
        child.command('g');
        const ibv_wc wc = completion(side.cq.get());
        EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
        EXPECT_EQ(wc.wr_id, 0u);
        EXPECT_EQ(side.at(0)[1], byte_of(0, 1));  // of the last message before
      });
}

TEST_P(LongSend, AWrongKeyFails) {
  play(
      [](Sender& sender, const Child& parent) {
        parent.hear();
        if (sender.send_message(1, 1000) != IBV_WC_SUCCESS) return 1;
        return sender.send_message(2, 1000) == IBV_WC_REM_OP_ERR ? 0 : 2;
      },
      [](Receiver& side, const Child& child) {
        ASSERT_EQ(
            receive(side.srq.get(),
                    {{reinterpret_cast<uint64_t>(side.at(1)), kRoom, mr_lkey(side.region.get()) ^ 0x200}}, 1),
            0);
        child.command('g');
        EXPECT_EQ(completion(side.cq.get()).status, IBV_WC_SUCCESS);
        EXPECT_EQ(completion(side.cq.get()).status, IBV_WC_LOC_PROT_ERR);
        EXPECT_EQ(side.at(1)[1], 0);
      });
}

TEST_P(LongSend, WithoutAReceiveRequestItIsNotReady) {
  play(
      [](Sender& sender, const Child& parent) {
        parent.hear();
        if (sender.send_message(1, 1000) != IBV_WC_SUCCESS) return 1;
        return sender.send_message(2, 1000) == IBV_WC_RNR_RETRY_EXC_ERR ? 0 : 2;
      },
      [](Receiver& side, const Child& child) {
        child.command('g');
        ASSERT_EQ(child.answer(), 'e');
        EXPECT_EQ(completion(side.cq.get()).status, IBV_WC_SUCCESS);
        EXPECT_TRUE(nothing(side.cq.get()));
      },
      {.rnr_retry = 0});
}

TEST_P(LongSend, AReceiveRequestThatComesLaterIsUsed) {
  play(
      [](Sender& sender, const Child& parent) {
        parent.hear();
        if (sender.send_message(1, 1000) != IBV_WC_SUCCESS) return 1;
        parent.tell('w');
        return sender.send_message(2, 1000) == IBV_WC_SUCCESS ? 0 : 2;
      },
      [](Receiver& side, const Child& child) {
        child.command('g');
        ASSERT_EQ(child.answer(), 'w');
        ASSERT_TRUE(eventually([&] {
          return side.qps[0]->shared->requester_waits.load() != 0 ||
                 side.srq->shared->requesters_wait.load() != 0;
        }));
        ASSERT_EQ(side.fill(5), 0);
        completions(side.cq.get(), 2);
        EXPECT_TRUE(side.holds(5, 2, 1000));
      });
}

TEST_P(LongSend, ReachesTheLimitOfTheQueue) {
  play(
      [](Sender& sender, const Child& parent) {
        for (uint32_t i = 0; i < 2; ++i) {
          parent.hear();
          if (sender.send_message(i, 1000) != IBV_WC_SUCCESS) return 1;
          parent.tell('s');
        }
        return 0;
      },
      [](Receiver& side, const Child& child) {
        for (uint32_t i = 1; i < 4; ++i) ASSERT_EQ(side.fill(i), 0);
        ibv_srq_attr limit{};
        limit.srq_limit = 3;
        ASSERT_EQ(modify_srq(side.srq.get(), &limit, IBV_SRQ_LIMIT), 0);
        child.command('g');
        ASSERT_EQ(child.answer(), 's');
        EXPECT_EQ(async_event(side.context.get(), 0).type, UINT32_MAX);  // three are left
        child.command('g');
        ASSERT_EQ(child.answer(), 's');
        EXPECT_EQ(async_event(side.context.get()).type, uint32_t{IBV_EVENT_SRQ_LIMIT_REACHED});
        completions(side.cq.get(), 2);
      });
}

// Small messages lie in the completion queue when the long one comes.
TEST_P(LongSend, SmallMessagesBeforeItArriveAsWell) {
  play(
      [](Sender& sender, const Child& parent) {
        FastRequests fast;
        parent.hear();
        for (uint32_t i = 0; i < 4; ++i)
          if (sender.send_message(i, i % 2 == 0 ? 200 : 2000) != IBV_WC_SUCCESS) return 1;
        return fast.count == 4 ? 0 : 2;
      },
      [](Receiver& side, const Child& child) {
        for (uint32_t i = 1; i < 4; ++i) ASSERT_EQ(side.fill(i), 0);
        child.command('g');
        ASSERT_EQ(child.answer(), 'e');
        const std::vector<ibv_wc> all = completions(side.cq.get(), 4);
        for (uint32_t i = 0; i < all.size(); ++i) EXPECT_TRUE(side.holds(i, i, i % 2 == 0 ? 200 : 2000)) << i;
      });
}

// An RQ in which two requests name one buffer: the later message is the later one.
TEST_P(LongSend, ABufferThatAnEarlierMessageGoesToIsWrittenLater) {
  play(
      [](Sender& sender, const Child& parent) {
        parent.hear();
        if (sender.send_message(1, 200) != IBV_WC_SUCCESS) return 1;
        return sender.send_message(2, 2000) == IBV_WC_SUCCESS ? 0 : 2;
      },
      [](Receiver& side, const Child& child) {
        ASSERT_EQ(side.fill(0), 0);
        child.command('g');
        ASSERT_EQ(child.answer(), 'e');
        completions(side.cq.get(), 2);
        EXPECT_TRUE(side.holds(0, 2, 2000));
      });
}

TEST_P(LongSend, IsInTheBufferWhenItsRegionEnds) {
  play(
      [](Sender& sender, const Child& parent) {
        parent.hear();
        return sender.send_message(1, 8000) == IBV_WC_SUCCESS ? 0 : 1;
      },
      [](Receiver& side, const Child& child) {
        child.command('g');
        ASSERT_EQ(child.answer(), 'e');
        side.region.reset();
        EXPECT_TRUE(side.holds(0, 1, 8000));
        completion(side.cq.get());
      });
}

// A sender that is killed at any moment leaves whole messages, and its receive requests come back.
TEST_P(LongSend, ASenderThatDiesLeavesWholeMessages) {
  const Memory kind = GetParam();
  for (uint32_t round = 0; round < 20; ++round) {
    Child child([&](const Child& parent) {
      Sender sender(parent, numbers_, gid(), {});
      if (!sender.begin(kind)) return 99;
      parent.hear();
      for (uint32_t i = 0;; ++i)
        if (sender.send_message(i % 200, length_of(kind, i % 200) % 20'000 + 257) != IBV_WC_SUCCESS) return 2;
    });
    begin(child, [&](Receiver& side) {
      for (uint32_t i = 1; i < kReceiveSlots; ++i) ASSERT_EQ(side.fill(i), 0);
      child.command('g');
      uint32_t message = 0;
      const auto take = [&](const ibv_wc& wc) {
        const uint32_t number = message++ % 200;
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        ASSERT_EQ(wc.byte_len, length_of(kind, number) % 20'000 + 257);
        ASSERT_TRUE(side.holds(wc.wr_id, number, wc.byte_len)) << message;
      };
      for (uint32_t i = 0; i < 50 + 7 * round; ++i) {
        const ibv_wc wc = completion(side.cq.get());
        take(wc);
        ASSERT_FALSE(HasFailure());
        ASSERT_EQ(side.fill(wc.wr_id), 0);
      }
      child.kill_now();
      for (ibv_wc wc; poll_cq(side.cq.get(), 1, &wc) == 1;) {
        take(wc);
        ASSERT_FALSE(HasFailure());
      }
      while (side.posted() < kReceiveSlots) ASSERT_EQ(side.fill(0), 0);
    });
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Buffers, LongSend, ::testing::Values(Memory::kMapped, Memory::kPrivate),
                         [](const auto& kind) {
                           return kind.param == Memory::kMapped ? "Mapped" : "Bounced";
                         });

// ---- a receiver that writes anything to its own segment ----

// A page of the sender's, far from everything that the two have mapped.
class Canary {
 public:
  Canary() {
    constexpr uintptr_t kAt = 0x3000'0000'0000;
    bytes_ = static_cast<uint8_t*>(mmap(reinterpret_cast<void*>(kAt), kSize, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    if (bytes_ != MAP_FAILED) std::memset(bytes_, kByte, kSize);
  }
  Canary(const Canary&) = delete;
  Canary& operator=(const Canary&) = delete;
  ~Canary() { munmap(bytes_, kSize); }
  // Its address as the peer sees it, if the mapping with that offset led here.
  uint64_t seen_through(uint64_t to_mapping) const { return reinterpret_cast<uint64_t>(bytes_) - to_mapping; }
  bool is_whole() const { return std::count(bytes_, bytes_ + kSize, kByte) == kSize; }

 private:
  static constexpr size_t kSize = 4096;
  static constexpr uint8_t kByte = 0xca;
  uint8_t* bytes_;
};

class LongSendToHostilePeer : public LongSend {
 protected:
  // The region of the receive buffers becomes all memory there is. Caches of its bounds are renewed.
  static void forge_region(const Receiver& side) {
    const SegmentView& view = side.context->process->view();
    for (uint32_t key : {mr_lkey(side.region.get()), mr_rkey(side.region.get())}) {
      SharedMr& mr = *view.shared_mr(MemoryKey::unpack(key).index);
      mr.iova = mr.address = 0;
      mr.length = INT64_MAX;
      mr.check = check_of(mr);
    }
    view.header().mr_epoch.fetch_add(1);
  }
  // Writes to the receive buffers until they are mapped. False: they never are.
  bool map_by_writing(Sender& sender, uint32_t qp, const KnownRemote& known,
                      ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) const {
    for (const int64_t end = now_ns() + 20'000'000'000; !known.is_mapped; sched_yield())
      if (now_ns() > end || transfer(sender, qp, opcode, numbers_.address) != IBV_WC_SUCCESS) return false;
    return true;
  }
  ibv_wc_status transfer(Sender& sender, uint32_t qp, ibv_wr_opcode opcode, uint64_t there) const {
    if (rdma(sender.qps[qp].get(), opcode, {sender.memory.sge(0, 1000)}, there, numbers_.rkey) != 0)
      return IBV_WC_GENERAL_ERR;
    return completion(sender.cq.get()).status;
  }
};

TEST_P(LongSendToHostilePeer, ABufferBeyondTheMappingIsNotWrittenTo) {
  play(
      [this](Sender& sender, const Child& parent) {
        const Canary canary;
        numbers_.forged = canary.seen_through(sender.qps[0]->fast.received.to_mapping);
        parent.tell('c');
        parent.hear();
        if (sender.send_message(1, 1000) != IBV_WC_SUCCESS) return 1;
        parent.tell('s');
        parent.hear();
        sender.context->process->longest_bounced = 0;
        if (sender.send_message(2, 1000) == IBV_WC_SUCCESS) return 2;
        return canary.is_whole() ? 0 : 3;
      },
      [this](Receiver& side, const Child& child) {
        ASSERT_EQ(child.answer(), 'c');
        forge_region(side);
        child.command('g');
        ASSERT_EQ(child.answer(), 's');
        EXPECT_EQ(completion(side.cq.get()).status, IBV_WC_SUCCESS);
        ASSERT_EQ(receive(side.srq.get(), {{numbers_.forged, kRoom, mr_lkey(side.region.get())}}, 1), 0);
        child.command('g');
        ASSERT_EQ(child.answer(), 'e');
      });
}

TEST_P(LongSendToHostilePeer, RdmaBeyondTheMappingFails) {
  play(
      [this](Sender& sender, const Child& parent) {
        const Canary canary;
        FastPath& reads = sender.qps[0]->fast;
        FastPath& writes = sender.qps[1]->fast;
        if (!map_by_writing(sender, 0, reads.read, IBV_WR_RDMA_READ) ||
            !map_by_writing(sender, 1, writes.written))
          return 1;
        parent.tell('c');
        parent.hear();
        if (transfer(sender, 0, IBV_WR_RDMA_READ, numbers_.address) != IBV_WC_SUCCESS ||
            transfer(sender, 1, IBV_WR_RDMA_WRITE, numbers_.address) != IBV_WC_SUCCESS)
          return 2;
        if (transfer(sender, 0, IBV_WR_RDMA_READ, canary.seen_through(reads.read.to_mapping)) ==
                IBV_WC_SUCCESS ||
            transfer(sender, 1, IBV_WR_RDMA_WRITE, canary.seen_through(writes.written.to_mapping)) ==
                IBV_WC_SUCCESS)
          return 3;
        return canary.is_whole() ? 0 : 4;
      },
      [](Receiver& side, const Child& child) {
        ASSERT_EQ(child.answer(), 'c');
        forge_region(side);
        child.command('g');
        ASSERT_EQ(child.answer(), 'e');
      });
}

// The receive requests of such a queue have no element to read.
TEST_P(LongSendToHostilePeer, AQueueOfRequestsWithoutElementsTakesNothing) {
  Child child([&](const Child& parent) {
    Sender sender(parent, numbers_, gid(), {});
    if (!map_by_writing(sender, 0, sender.qps[0]->fast.written)) return 1;
    return sender.send_message(1, 1000) == IBV_WC_REM_INV_REQ_ERR ? 0 : 2;
  });
  ASSERT_EQ(child.answer(), 'q');
  Receiver side(GetParam(), numbers_);
  std::atomic_ref(side.srq->shared->max_sge).store(0);
  for (uint32_t i = 0; i < kQps; ++i) connect(side.qps[i].get(), numbers_.sender[i], gid());
  ASSERT_EQ(side.fill(0), 0);
  child.command('g');
  ASSERT_EQ(child.answer(), 'r');
  child.command('g');
  EXPECT_EQ(child.finish(), 0);
}

INSTANTIATE_TEST_SUITE_P(Mapped, LongSendToHostilePeer, ::testing::Values(Memory::kMapped),
                         [](const auto&) { return "Mapped"; });

}  // namespace
}  // namespace verbena
