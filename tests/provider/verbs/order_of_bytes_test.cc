// SPDX-License-Identifier: BSD-2-Clause
//
// Programs poll on memory: the last byte of a WRITE is seen last, and a reader of an aligned word of up to 8
// bytes sees all of it or nothing. One process writes, another one reads; the sizes cover every way of
// writing: up to 8 bytes through the memory's file, more through process_vm_writev(2), more than a chunk in
// several calls, and all of them through the file where that call is refused. (The call names the target
// adapter's service thread or, where a kernel accepts only the number of a process, its process.)
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "common/refuse_process_vm.h"
#include "pair.h"

namespace verbena::test {
namespace {

// What the two processes share.
struct Blackboard {
  std::atomic<uint32_t> qpn[2];
  std::atomic<uint64_t> address;
  std::atomic<uint32_t> rkey;
  std::atomic<int> there, connected;
  std::atomic<uint32_t> seen;  // the last message of which the reader has seen the last byte
  std::atomic<bool> failed, enough;
  std::atomic<pid_t> onlooker;
};

struct Message {
  size_t size;
  size_t offset;  // of the first byte within a cache line
  uint32_t rounds;  // at most
};

enum class ProcessVm { kAllowed, kRefused, kOfProcessesOnly };

enum Ending { kWell, kTorn, kLost, kNoSeccomp };

class OrderOfBytesTest : public QpTest {
 protected:
  static constexpr size_t kRoom = 4096;
  // The process that is waited for may not be scheduled for a while, by the machine or its host.
  static constexpr std::chrono::seconds kLong = 3 * kPatience;
  // Each round takes several changes of processes: on a busy machine fewer rounds have to do.
  static constexpr std::chrono::milliseconds kEnough{1500};

  // Each of the two processes has a device of its own; the fixture's device in the parent is not used.
  struct Side {
    Context context;
    Pd pd;
    Cq cq;
    Buffer buffer;
    Qp qp;
  };

  Blackboard* board_ = nullptr;
  // Bytes between the beginning of a page and the message's cache line. Through the memory's file alone, the word at
  // the bytes 8 to 15 of a page is seen in part now and then (docs/ARCHITECTURE.md, "Known limits").
  size_t before_ = 0;

  void SetUp() override {
    QpTest::SetUp();
    board_ = static_cast<Blackboard*>(
        mmap(nullptr, sizeof(Blackboard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(board_, MAP_FAILED);
  }
  void TearDown() override { munmap(board_, sizeof(Blackboard)); }

  template <typename Until>
  bool wait(Until until) const {
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (!until()) {
      if (board_->failed || std::chrono::steady_clock::now() > deadline) return false;
      sched_yield();
    }
    return true;
  }

  // Number 1 is written to.
  bool open(Side& side, int number, const Message& message) const {
    side.context = open_device();
    side.pd.reset(ibv_alloc_pd(side.context.get()));
    side.cq.reset(ibv_create_cq(side.context.get(), 16, nullptr, nullptr, 0));
    side.buffer = Buffer(side.pd.get(), message.size + kRoom);
    if (number == 1) {
      board_->address = side.buffer.address(message.offset + before_);
      board_->rkey = side.buffer.rkey();
    }
    ibv_qp_init_attr init = qp_init(side.cq.get(), side.cq.get());
    side.qp.reset(ibv_create_qp(side.pd.get(), &init));
    board_->qpn[number] = side.qp->qp_num;
    ++board_->there;
    if (!wait([&] { return board_->there == 2; })) return false;
    connect(side.qp.get(), board_->qpn[1 - number]);
    ++board_->connected;
    return wait([&] { return board_->connected == 2; });
  }

  static uint8_t content(uint32_t round) { return static_cast<uint8_t>(round % 255 + 1); }

  Ending write(const Message& message) const {
    Side side;
    if (!open(side, 0, message)) return kLost;
    const auto enough = std::chrono::steady_clock::now() + kEnough;
    for (uint32_t round = 1; round <= message.rounds; ++round) {
      if (round > 1 && std::chrono::steady_clock::now() > enough) break;
      memset(side.buffer.data(), content(round), message.size);
      ibv_sge sge = side.buffer.sge(0, message.size);
      ibv_send_wr wr = {}, *bad = nullptr;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.opcode = IBV_WR_RDMA_WRITE;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.wr.rdma = {board_->address, board_->rkey};
      if (ibv_post_send(side.qp.get(), &wr, &bad) != 0 || next_status(side.cq.get()) != IBV_WC_SUCCESS)
        return kLost;
      if (!wait([&] { return board_->seen == round; })) return kLost;
    }
    board_->enough = true;
    return kWell;
  }

  Ending look_on(const Message& message) const {
    Side side;
    const size_t begin = message.offset + before_;
    if (!open(side, 1, message)) return kLost;
    volatile uint8_t* bytes = side.buffer.data() + begin;
    const size_t first_word = (begin + 7) / 8, words_end = (begin + message.size) / 8;
    const auto* words = reinterpret_cast<const uint64_t*>(side.buffer.data());
    for (uint32_t round = 1; round <= message.rounds; ++round) {
      size_t word = first_word;
      const auto whole = [&] {  // the next word, in one look
        if (words_end <= first_word) return true;
        const uint64_t seen = __atomic_load_n(words + word, __ATOMIC_RELAXED);
        word = word + 1 < words_end ? word + 1 : first_word;
        return seen == (seen & 0xff) * 0x0101010101010101u;
      };
      bool torn = false;
      if (!wait([&] {
            for (int looks = 0; looks < 64 && !torn && bytes[message.size - 1] != content(round); ++looks)
              torn = !whole();
            return torn || board_->enough || bytes[message.size - 1] == content(round);
          }))
        return kLost;
      if (!torn && board_->enough) return kWell;
      std::atomic_thread_fence(std::memory_order_acquire);
      for (size_t i = 0; i < message.size && !torn; ++i) torn = bytes[i] != content(round);
      if (torn) return kTorn;
      board_->seen = round;
    }
    return kWell;
  }

  bool filter(ProcessVm process_vm) const {
    if (process_vm == ProcessVm::kRefused) return refuse_process_vm();
    if (process_vm == ProcessVm::kAllowed) return true;
    return wait([&] { return board_->onlooker != 0; }) && process_vm_knows_only(board_->onlooker);
  }

  // How a process that does `work` ends.
  template <typename Work>
  pid_t start(ProcessVm process_vm, Work work) const {
    const pid_t child = fork();
    if (child != 0) return child;
    if (!filter(process_vm)) {
      board_->failed = true;
      _exit(kNoSeccomp);
    }
    const Ending ending = work();
    if (ending != kWell) board_->failed = true;
    _exit(ending);
  }

  void expect_whole(const Message& message, ProcessVm process_vm) {
    new (board_) Blackboard{};
    const std::string what =
        std::to_string(message.size) + " bytes at offset " + std::to_string(message.offset);
    const pid_t writer = start(process_vm, [&] { return write(message); });
    const pid_t onlooker = start(process_vm, [&] { return look_on(message); });
    board_->onlooker = onlooker;
    const pid_t children[] = {writer, onlooker};
    for (const pid_t child : children) {
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status)) << what << ": status " << status;
      if (WEXITSTATUS(status) == kNoSeccomp)
        GTEST_SKIP() << "the machine does not let a process filter its system calls";
      EXPECT_NE(WEXITSTATUS(status), kTorn)
          << what << ": a part of the message was seen after, or without, the rest";
      EXPECT_TRUE(WEXITSTATUS(status) == kWell || WEXITSTATUS(status) == kTorn)
          << what << ": " << WEXITSTATUS(status);
    }
  }
};

constexpr Message kMessages[] = {
    {8, 0, 2000},    {8, 3, 500},     {5, 0, 500},      {16, 0, 2000},          {64, 3, 2000},
    {96, 0, 1000},   {256, 0, 1000},  {257, 3, 1000},   {4096, 0, 1000},        {4097, 5, 1000},
    {65536, 0, 300}, {65541, 3, 300}, {1 << 20, 0, 60}, {(1 << 20) + 9, 3, 60}, {3 << 20, 0, 30},
};

TEST_F(OrderOfBytesTest, TheLastByteIsSeenLastAndWordsAreWhole) {
  for (const Message& message : kMessages) expect_whole(message, ProcessVm::kAllowed);
}

TEST_F(OrderOfBytesTest, AlsoWhereMemoryIsReachedThroughItsFileOnly) {
  before_ = 64;
  for (const Message& message : kMessages) expect_whole(message, ProcessVm::kRefused);
}

TEST_F(OrderOfBytesTest, AlsoWhereAProcessIsKnownByItsOwnNumberOnly) {
  for (const Message& message : kMessages) expect_whole(message, ProcessVm::kOfProcessesOnly);
}

}  // namespace
}  // namespace verbena::test
