// SPDX-License-Identifier: BSD-2-Clause
//
// The ring of records: what is written is read, in order; what is overwritten is counted; a process may be
// killed at any instruction, and the bytes may be damaged.
#include "record/record_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "record/ring_reader.h"
#include "unit/common/child.h"
#include "unit/common/temporary_folder.h"

namespace verbena::record {
namespace {

constexpr RingOwner kOwner{7, 3, 4, "program"};

// A record whose bytes all follow from its length and first number.
void write(RingWriter& writer, uint32_t value, size_t payload) {
  writer.write(Kind::kMessage, sizeof(Head) + payload, [&](Head* head) {
    auto* const bytes = reinterpret_cast<uint8_t*>(head + 1);
    for (size_t i = 0; i < payload; ++i) bytes[i] = static_cast<uint8_t>(value + i);
  });
}

bool is_whole(const std::vector<std::byte>& record) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(record.data()) + sizeof(Head);
  const size_t size = (record.size() - sizeof(Head)) & ~(kAlignment - 1);
  for (size_t i = 1; i + kAlignment < size; ++i)
    if (bytes[i] != static_cast<uint8_t>(bytes[0] + i)) return false;
  return true;
}

class RecordRing : public testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/3.4"; }

  TemporaryFolder folder_;
  RingWriter writer_;
  RingReader reader_;
  std::vector<std::byte> record_;
};

TEST_F(RecordRing, IsReadInOrder) {
  ASSERT_EQ(writer_.open(path(), kSmallestRing, kOwner), 0);
  ASSERT_EQ(reader_.open(path()), 0);
  EXPECT_EQ(reader_.owner().slot, 3u);
  EXPECT_STREQ(reader_.owner().program, "program");
  EXPECT_EQ(reader_.next(&record_), RingReader::Next::kNone);
  int64_t before = 0;
  for (uint32_t i = 0; i < 100000; ++i) {  // several times round
    write(writer_, i, i % 300);
    ASSERT_EQ(reader_.next(&record_), RingReader::Next::kRecord);
    Head head;
    std::memcpy(&head, record_.data(), sizeof head);
    ASSERT_EQ(head.number, i);
    ASSERT_GE(head.time, before);
    ASSERT_TRUE(is_whole(record_));
    before = head.time;
  }
  EXPECT_EQ(reader_.lost(), 0u);
}

TEST_F(RecordRing, CountsWhatIsOverwritten) {
  ASSERT_EQ(writer_.open(path(), kSmallestRing, kOwner), 0);
  ASSERT_EQ(reader_.open(path()), 0);
  constexpr uint32_t kRecords = 50000;
  for (uint32_t i = 0; i < kRecords; ++i) write(writer_, i, 200);
  uint32_t read = 0;
  while (reader_.next(&record_) == RingReader::Next::kRecord) {
    ASSERT_TRUE(is_whole(record_));
    ++read;
  }
  EXPECT_GT(read, kSmallestRing / 256);
  EXPECT_EQ(read + reader_.lost(), kRecords);
}

TEST_F(RecordRing, TakesNothingTooLong) {
  ASSERT_EQ(writer_.open(path(), kSmallestRing, kOwner), 0);
  ASSERT_EQ(reader_.open(path()), 0);
  write(writer_, 1, writer_.limit());
  EXPECT_EQ(reader_.next(&record_), RingReader::Next::kNone);
  write(writer_, 1, writer_.limit() - sizeof(Head));
  EXPECT_EQ(reader_.next(&record_), RingReader::Next::kRecord);
}

TEST_F(RecordRing, WritesNothingWhenClosed) {
  write(writer_, 1, 8);
  ASSERT_EQ(writer_.open(path(), kSmallestRing, kOwner), 0);
  ASSERT_EQ(reader_.open(path()), 0);
  writer_.close();
  write(writer_, 1, 8);
  EXPECT_EQ(reader_.next(&record_), RingReader::Next::kNone);
  EXPECT_EQ(writer_.open(path(), kSmallestRing, kOwner), EEXIST);
}

// A reader beside a writer that overwrites the ring at full speed four times over, then pauses for a
// millisecond, and so on: every record that the reader gets is whole. It looks for a second, or until it has
// 20,000 records, and needs 100 at least: on a busy machine it gets those that are left in the pauses.
TEST_F(RecordRing, IsReadWhileItIsWritten) {
  using std::chrono::seconds;
  using std::chrono::steady_clock;
  constexpr uint64_t kEnough = 100, kPlenty = 20000;
  Child child([this](const Child& self) -> int {
    if (writer_.open(path(), kSmallestRing, kOwner) != 0) return 1;
    self.tell('o');
    uint64_t written = 0;
    for (uint32_t i = 0;; ++i) {
      write(writer_, i, i % 2000);
      written += i % 2000;
      if (written < 4 * kSmallestRing) continue;
      written = 0;
      usleep(1000);
    }
  });
  ASSERT_EQ(child.answer(), 'o');
  ASSERT_EQ(reader_.open(path()), 0);
  const auto end = steady_clock::now() + seconds(1), limit = end + seconds(20);
  for (uint64_t read = 0; read < kPlenty;) {
    const auto next = reader_.next(&record_);
    ASSERT_NE(next, RingReader::Next::kDamaged);
    if (next == RingReader::Next::kRecord) {
      ASSERT_TRUE(is_whole(record_));
      ++read;
    }
    const auto now = steady_clock::now();
    if (now >= end && read >= kEnough) break;
    ASSERT_LT(now, limit) << read << " records";
  }
  child.kill_now();
  while (reader_.next(&record_) == RingReader::Next::kRecord) ASSERT_TRUE(is_whole(record_));
}

// Killed at a random instant, again and again.
TEST_F(RecordRing, SurvivesTheDeathOfItsProcess) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const std::string file = path() + std::to_string(round);
    const pid_t child = fork();
    if (child == 0) {
      RingWriter own;
      if (own.open(file, kSmallestRing, kOwner) != 0) _exit(1);
      for (uint32_t i = 0;; ++i) write(own, i, i % 500);
    }
    usleep(2000 + random() % 4000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    RingReader dead;
    if (dead.open(file) != 0) continue;  // it had not begun
    uint64_t read = 0;
    RingReader::Next next;
    while ((next = dead.next(&record_)) == RingReader::Next::kRecord) {
      ASSERT_TRUE(is_whole(record_));
      ++read;
    }
    ASSERT_EQ(next, RingReader::Next::kNone);
  }
}

TEST_F(RecordRing, SurvivesDamage) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    const std::string file = path() + std::to_string(round);
    RingWriter writer;
    ASSERT_EQ(writer.open(file, kSmallestRing, kOwner), 0);
    for (uint32_t i = 0; i < 6000; ++i) write(writer, i, 200);
    const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 20; ++i) {
      const uint32_t noise = random();
      const auto at = static_cast<off_t>(i < 4 ? random() % 192 : random() % kSmallestRing);
      ASSERT_EQ(pwrite(fd, &noise, sizeof noise, at), ssize_t{sizeof noise});
    }
    RingReader reader;
    if (reader.open(file) == 0)
      for (int i = 0; i < 10000 && reader.next(&record_) == RingReader::Next::kRecord; ++i) {
      }
    for (uint32_t i = 0; i < 6000; ++i) write(writer, i, 200);  // the writer goes on, too
    close(fd);
    unlink(file.c_str());
  }
}

// A record's size is in shared memory: where the next one goes does not follow from it.
TEST_F(RecordRing, KeepsItsPlaceWhenASizeIsDamaged) {
  ASSERT_EQ(writer_.open(path(), kSmallestRing, kOwner), 0);
  writer_.write(Kind::kMessage, 61, [](Head* head) { head->size = 1u << 31; });
  const int fd = open(path().c_str(), O_RDONLY | O_CLOEXEC);
  uint64_t head = 0;
  EXPECT_EQ(pread(fd, &head, sizeof head, offsetof(RingHeader, head)), ssize_t{sizeof head});
  close(fd);
  EXPECT_EQ(head, 64u);
}

TEST_F(RecordRing, IsNotWrittenByAChild) {
  ASSERT_EQ(writer_.open(path(), kSmallestRing, kOwner), 0);
  const pid_t child = fork();
  if (child == 0) {
    writer_.forget();
    write(writer_, 1, 8);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(reader_.open(path()), 0);
  EXPECT_EQ(reader_.next(&record_), RingReader::Next::kNone);
}

}  // namespace
}  // namespace verbena::record
