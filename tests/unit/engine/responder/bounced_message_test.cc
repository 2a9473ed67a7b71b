// SPDX-License-Identifier: BSD-2-Clause
//
// Messages through the bounce ring of the receiving queue pair (adapter/bounce_ring.h), from one process to
// another: the child sends, the parent receives.
#include "engine/responder/bounced_message.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr uint32_t kShortest = kBounceSize + 1;
constexpr uint32_t kSlots = 64;  // receive requests
constexpr size_t kBytes = size_t{kSlots} * kLongestBounced;

// What the two tell each other.
struct Numbers {
  std::atomic<uint32_t> sender, receiver, rkey;
  std::atomic<uint64_t> address;
};

uint8_t byte_of(uint32_t message, uint32_t at) { return static_cast<uint8_t>(17 * message + at + (at >> 8)); }

// A CQ of few entries, which loses completions when it is full.
Owned<Cq> make_lossy_cq(Context* context) {
  Cq* cq = nullptr;
  EXPECT_EQ(create_cq(context, 4, -1, 0, 0, &cq, {.ignore_overrun = true}), 0);
  return Owned<Cq>(cq);
}

// A process with a queue pair.
struct Endpoint {
  explicit Endpoint(bool lossy = false)
      : cq(lossy ? make_lossy_cq(context.get()) : make_cq(context.get(), 512)) {}
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());
  std::unique_ptr<Region> memory = std::make_unique<Region>(pd.get(), kBytes);
  Owned<Cq> cq;
  Owned<Qp> qp = make_qp(pd.get(), cq.get(), cq.get(), {.send_wr = kSlots, .recv_wr = kSlots});
  SharedQp& shared() const { return *qp->shared; }
};

// The child's side of a test: connected, and every message up to kLongestBounced may bounce.
class Sender {
 public:
  Sender(const Child& parent, Numbers& numbers, const GidEntry& gid)
      : parent_(parent), numbers_(numbers), gid_(gid) {
    side.context->process->longest_bounced = kLongestBounced;
    numbers.sender = qp_number(side.qp.get());
    meet();
  }
  void meet() {
    parent_.tell('q');
    parent_.hear();
    connect(side.qp.get(), numbers_.receiver, gid_);
    parent_.tell('r');
    parent_.hear();
  }
  int send_message(uint32_t message, uint32_t length) {
    for (uint32_t i = 0; i < length; ++i) side.memory->data()[i] = byte_of(message, i);
    if (const int error = send(side.qp.get(), {side.memory->sge(0, length)}); error != 0) return error;
    return completion(side.cq.get()).status == IBV_WC_SUCCESS ? 0 : EIO;
  }
  // Sends until the peer has made its ring, and one message has gone through it.
  int begin() {
    for (uint32_t i = 0; i < 1000; ++i) {
      if (send_message(0, kShortest) != 0) return EIO;
      parent_.tell('m');
      if (parent_.hear() == 'd') return 0;  // done: the ring is in use
    }
    return ETIMEDOUT;
  }
  Endpoint side;

 private:
  const Child& parent_;
  Numbers& numbers_;
  const GidEntry& gid_;
};

class Bounced : public ::testing::Test {
 protected:
  Bounced()
      : numbers_(*new (mmap(nullptr, sizeof(Numbers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                            0)) Numbers{}) {}
  ~Bounced() override { munmap(&numbers_, sizeof numbers_); }

  // The child is made before the parent opens the device.
  template <typename Sends, typename Receives>
  void play(Sends sends, Receives receives) {
    Child child([&](const Child& parent) {
      Sender sender(parent, numbers_, gid());
      const int result = sends(sender, parent);
      parent.tell('e');
      parent.hear();  // until the other end has seen what it came to see
      return result;
    });
    ASSERT_EQ(child.answer(), 'q');
    {
      Endpoint side(lossy_);
      numbers_.receiver = qp_number(side.qp.get());
      numbers_.rkey = side.memory->rkey();
      numbers_.address = side.memory->address();
      meet(side, child);
      receives(side, child);
      child.command('x');
      EXPECT_EQ(child.finish(), 0);
    }
  }
  void meet(const Endpoint& side, const Child& child) const {
    connect(side.qp.get(), numbers_.sender, gid());
    child.command('g');
    ASSERT_EQ(child.answer(), 'r');
    child.command('g');
  }
  static void post_all(const Endpoint& side) {
    for (uint32_t i = 0; i < kSlots; ++i)
      ASSERT_EQ(receive(side.qp.get(), {side.memory->sge(i * kLongestBounced, kLongestBounced)}, i), 0);
  }
  // The parent's half of Sender::begin().
  static void begin(const Endpoint& side, const Child& child) {
    for (;;) {
      ASSERT_EQ(receive(side.qp.get(), {side.memory->sge(0, kLongestBounced)}), 0);
      ASSERT_EQ(child.answer(), 'm');
      ASSERT_EQ(completion(side.cq.get()).byte_len, kShortest);
      const bool used = side.shared().bounce_ring_written.load() != 0;
      child.command(used ? 'd' : 'm');
      if (used) return;
    }
  }
  static bool holds(const uint8_t* bytes, uint32_t message, uint32_t length) {
    for (uint32_t i = 0; i < length; ++i)
      if (bytes[i] != byte_of(message, i)) return false;
    return true;
  }
  static uint64_t unpolled(const Endpoint& side) {
    return side.shared().bounce_ring_written.load() - side.shared().bounce_ring_freed.load();
  }
  const GidEntry& gid() const { return node_.directory().devices().devices[0].ports[0].gids[0]; }

  const TemporaryNode node_;
  Numbers& numbers_;
  bool lossy_ = false;  // the receiver's CQ is
};

uint32_t length_of(uint32_t message) { return kShortest + message * 997 % (kLongestBounced - kShortest + 1); }

TEST_F(Bounced, EveryLengthArrives) {
  constexpr uint32_t kMessages = 500;
  play(
      [](Sender& sender, const Child& parent) {
        if (sender.begin() != 0) return 1;
        for (uint32_t i = 0; i < kMessages; ++i) {
          parent.hear();
          if (sender.send_message(i, length_of(i)) != 0) return 2;
        }
        return 0;
      },
      [](const Endpoint& side, const Child& child) {
        begin(side, child);
        for (uint32_t i = 0; i < kMessages; ++i) {
          // Scattered to three elements.
          const Sges sges{side.memory->sge(100, 100), side.memory->sge(200, 200),
                          side.memory->sge(400, kLongestBounced)};
          ASSERT_EQ(receive(side.qp.get(), sges, i), 0);
          const uint64_t before = side.shared().bounce_ring_written.load();
          child.command('g');
          const ibv_wc wc = completion(side.cq.get());
          ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
          ASSERT_EQ(wc.byte_len, length_of(i));
          ASSERT_TRUE(holds(side.memory->data() + 100, i, wc.byte_len)) << i;
          ASSERT_NE(side.shared().bounce_ring_written.load(), before) << i;
          ASSERT_EQ(unpolled(side), 0u);
        }
      });
}

// More than the ring holds: the others are placed by system calls.
TEST_F(Bounced, WhatTheRingCannotHoldArrivesAsWell) {
  play(
      [](Sender& sender, const Child& parent) {
        if (sender.begin() != 0) return 1;
        for (int round = 0; round < 3; ++round) {
          parent.hear();
          for (uint32_t i = 0; i < kSlots; ++i)
            if (sender.send_message(i, kLongestBounced - i) != 0) return 2;
          parent.tell('s');
        }
        return 0;
      },
      [](const Endpoint& side, const Child& child) {
        begin(side, child);
        for (int round = 0; round < 3; ++round) {
          side.memory->clear();
          post_all(side);
          child.command('g');
          ASSERT_EQ(child.answer(), 's');
          EXPECT_GT(unpolled(side), kBounceRingSize / 2);
          EXPECT_LE(unpolled(side), kBounceRingSize);
          const std::vector<ibv_wc> all = completions(side.cq.get(), kSlots);
          for (uint32_t i = 0; i < all.size(); ++i) {
            ASSERT_EQ(all[i].wr_id, i);
            ASSERT_TRUE(holds(side.memory->data() + i * kLongestBounced, i, kLongestBounced - i)) << i;
          }
          EXPECT_EQ(unpolled(side), 0u);
        }
      });
}

TEST_F(Bounced, IsInTheBufferWhenItsRegionEnds) {
  play(
      [](Sender& sender, const Child& parent) {
        if (sender.begin() != 0) return 1;
        parent.hear();
        for (uint32_t i = 0; i < 3; ++i)
          if (sender.send_message(i, kLongestBounced) != 0) return 2;
        return 0;
      },
      [](const Endpoint& side, const Child& child) {
        begin(side, child);
        post_all(side);
        child.command('g');
        ASSERT_EQ(child.answer(), 'e');
        EXPECT_NE(unpolled(side), 0u);
        side.memory->deregister();
        for (uint32_t i = 0; i < 3; ++i)
          EXPECT_TRUE(holds(side.memory->data() + i * kLongestBounced, i, kLongestBounced)) << i;
        EXPECT_EQ(unpolled(side), 0u);
        completions(side.cq.get(), 3);
      });
}

// A WRITE behind the message into the same buffer: its bytes stay.
TEST_F(Bounced, ALaterWriteIsLater) {
  play(
      [this](Sender& sender, const Child& parent) {
        if (sender.begin() != 0) return 1;
        parent.hear();
        if (sender.send_message(1, kLongestBounced) != 0) return 2;
        for (uint32_t i = 0; i < 100; ++i) sender.side.memory->data()[i] = 0xee;
        if (rdma(sender.side.qp.get(), IBV_WR_RDMA_WRITE, {sender.side.memory->sge(0, 100)},
                 numbers_.address + 50, numbers_.rkey) != 0)
          return 3;
        return completion(sender.side.cq.get()).status == IBV_WC_SUCCESS ? 0 : 4;
      },
      [](const Endpoint& side, const Child& child) {
        begin(side, child);
        post_all(side);
        child.command('g');
        ASSERT_EQ(child.answer(), 'e');
        EXPECT_EQ(completion(side.cq.get()).byte_len, kLongestBounced);
        const uint8_t* const bytes = side.memory->data();
        EXPECT_EQ(std::count(bytes + 50, bytes + 150, uint8_t{0xee}), 100);
        EXPECT_EQ(bytes[150], byte_of(1, 150));
        EXPECT_EQ(bytes[49], byte_of(1, 49));
      });
}

// RESET drops what is not polled; afterwards the whole ring can be used.
TEST_F(Bounced, ResetFreesTheRing) {
  play(
      [](Sender& sender, const Child& parent) {
        if (sender.begin() != 0) return 1;
        parent.hear();
        for (uint32_t i = 0; i < 5; ++i)
          if (sender.send_message(i, kLongestBounced) != 0) return 2;
        if (to_state(sender.side.qp.get(), IBV_QPS_RESET) != 0) return 3;
        sender.meet();
        return sender.send_message(7, kLongestBounced) != 0 ? 4 : 0;
      },
      [this](const Endpoint& side, const Child& child) {
        begin(side, child);
        post_all(side);
        child.command('g');
        ASSERT_EQ(child.answer(), 'q');
        EXPECT_NE(unpolled(side), 0u);
        ASSERT_EQ(to_state(side.qp.get(), IBV_QPS_RESET), 0);
        EXPECT_EQ(unpolled(side), 0u);
        ASSERT_EQ(to_init(side.qp.get()), 0);
        post_all(side);
        meet(side, child);
        EXPECT_EQ(completion(side.cq.get()).wr_id, 0u);
        EXPECT_TRUE(holds(side.memory->data(), 7, kLongestBounced));
      });
}

// The shared memory is damaged: the message is lost, and nothing else.
TEST_F(Bounced, ADamagedPositionLeadsNowhere) {
  play(
      [](Sender& sender, const Child& parent) {
        if (sender.begin() != 0) return 1;
        parent.hear();
        for (uint32_t i = 0; i < 2; ++i)
          if (sender.send_message(i, kLongestBounced) != 0) return 2;
        return 0;
      },
      [](const Endpoint& side, const Child& child) {
        begin(side, child);
        side.memory->clear();
        post_all(side);
        child.command('g');
        ASSERT_EQ(child.answer(), 'e');
        const uint64_t damaged = kBounceRingSize - 8;
        // The oldest completion that is not polled.
        const CompletionRing& ring = side.cq->consumer.ring();
        Cqe& entry = ring.entry(ring.places->head.load());
        std::memcpy(entry.payload, &damaged, sizeof damaged);
        EXPECT_EQ(completion(side.cq.get()).status, IBV_WC_SUCCESS);
        EXPECT_EQ(side.memory->data()[1], 0);
        EXPECT_EQ(completion(side.cq.get()).status, IBV_WC_SUCCESS);
        EXPECT_TRUE(holds(side.memory->data() + kLongestBounced, 1, kLongestBounced));
        EXPECT_EQ(unpolled(side), 0u);
      });
}

// A message whose completion is lost leaves its place in the ring to the next one.
TEST_F(Bounced, ALostCompletionCostsNoRoom) {
  constexpr uint32_t kMessages = 2 * kBounceRingSize / kLongestBounced;
  lossy_ = true;
  play(
      [](Sender& sender, const Child& parent) {
        if (sender.begin() != 0) return 1;
        parent.hear();
        for (uint32_t i = 0; i < kMessages; ++i)
          if (sender.send_message(i, kLongestBounced) != 0) return 2;
        parent.tell('s');
        parent.hear();
        return sender.send_message(kMessages, kLongestBounced) != 0 ? 3 : 0;
      },
      [](const Endpoint& side, const Child& child) {
        begin(side, child);
        post_all(side);
        child.command('g');
        ASSERT_EQ(child.answer(), 's');
        for (ibv_wc wc; poll_cq(side.cq.get(), 1, &wc) == 1;)
          EXPECT_TRUE(holds(side.memory->data() + wc.wr_id * kLongestBounced, static_cast<uint32_t>(wc.wr_id),
                            kLongestBounced));
        EXPECT_EQ(unpolled(side), 0u);
        // What has no completion arrived as well.
        EXPECT_TRUE(
            holds(side.memory->data() + (kMessages - 1) * kLongestBounced, kMessages - 1, kLongestBounced));
        const uint64_t before = side.shared().bounce_ring_written.load();
        child.command('g');
        EXPECT_EQ(completion(side.cq.get()).wr_id, uint64_t{kMessages});
        EXPECT_NE(side.shared().bounce_ring_written.load(), before);
      });
}

// Without the ECE option the bytes are in the buffer when the request completes.
TEST_F(Bounced, NotWithoutTheOption) {
  play(
      [](Sender& sender, const Child&) {
        sender.side.qp->requester.may_be_eager = false;
        return sender.send_message(3, kLongestBounced);
      },
      [](const Endpoint& side, const Child& child) {
        ASSERT_EQ(receive(side.qp.get(), {side.memory->sge(0, kLongestBounced)}), 0);
        ASSERT_EQ(child.answer(), 'e');
        EXPECT_TRUE(holds(side.memory->data(), 3, kLongestBounced));
        EXPECT_EQ(side.shared().bounce_ring_written.load(), 0u);
        completion(side.cq.get());
      });
}

// A sender that is killed at any moment leaves whole messages and a ring that can be used.
TEST_F(Bounced, ASenderThatDiesLeavesWholeMessages) {
  for (int round = 0; round < 20; ++round) {
    Child child([&](const Child& parent) {
      Sender sender(parent, numbers_, gid());
      if (sender.begin() != 0) return 1;
      parent.hear();
      for (uint32_t i = 0;; ++i)
        if (sender.send_message(i % 200, length_of(i % 200)) != 0) return 2;
    });
    ASSERT_EQ(child.answer(), 'q');
    Endpoint side;
    numbers_.receiver = qp_number(side.qp.get());
    meet(side, child);
    begin(side, child);
    post_all(side);
    child.command('g');
    uint32_t message = 0;
    const auto take = [&](const ibv_wc& wc) {
      const uint32_t number = message++ % 200;
      const uint8_t* const bytes = side.memory->data() + wc.wr_id * kLongestBounced;
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.byte_len, length_of(number));
      ASSERT_TRUE(holds(bytes, number, wc.byte_len)) << message;
    };
    for (int i = 0; i < 50 + 7 * round; ++i) {
      const ibv_wc wc = completion(side.cq.get());
      take(wc);
      ASSERT_FALSE(HasFailure());
      ASSERT_EQ(
          receive(side.qp.get(), {side.memory->sge(wc.wr_id * kLongestBounced, kLongestBounced)}, wc.wr_id),
          0);
    }
    child.kill_now();
    for (ibv_wc wc; poll_cq(side.cq.get(), 1, &wc) == 1;) take(wc);
    ASSERT_FALSE(HasFailure());
  }
}

TEST(BouncedMessage, TheLongestIsMeasured) {
  const TemporaryNode node;
  const Owned<Context> context = open_device();
  const uint32_t longest = context->process->longest_bounced.load();
  EXPECT_GT(longest, 0u);
  EXPECT_LE(longest, kLongestBounced);
}

TEST(BounceRing, MessagesLieInOnePiece) {
  static_assert(BounceRing::place(0, 300) == 0);
  static_assert(BounceRing::end(0, 300) == 320);
  static_assert(BounceRing::place(kBounceRingSize - 320, 320) == kBounceRingSize - 320);
  static_assert(BounceRing::place(kBounceRingSize - 320, 321) == kBounceRingSize);
  static_assert(BounceRing::place(5 * kBounceRingSize - 64, 65) == 5 * kBounceRingSize);
  static_assert(BounceRing::holds(kBounceRingSize - 64, 64));
  static_assert(!BounceRing::holds(kBounceRingSize - 64, 65));
  static_assert(!BounceRing::holds(UINT64_MAX, 2));
}

}  // namespace
}  // namespace verbena
