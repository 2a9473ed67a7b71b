// SPDX-License-Identifier: BSD-2-Clause
//
// What the recorder writes of a message: all of it, in pieces if it is long; of memory that is gone, zeros.
#include "record/recorder.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include <cstring>
#include <vector>

#include "record/ring_reader.h"
#include "unit/common/temporary_folder.h"

namespace verbena::record {
namespace {

constexpr uint32_t kMtu = 1024;

class RecorderTest : public testing::Test {
 protected:
  RecorderTest() {
    recorder_.set_wish({kRecordPackets, RecordWish::kWhole, 1});
    EXPECT_EQ(recorder_.ring().open(folder_.path() + "/3.4", kSmallestRing, {7, 3, 4, "program", 1}), 0);
    EXPECT_EQ(reader_.open(folder_.path() + "/3.4"), 0);
  }

  // A WRITE whose bytes [offset, length) are in `ranges`.
  void respond(uint32_t offset, uint32_t length, const std::vector<iovec>& ranges, bool may_be_gone) {
    ResponseEvent event{.source_qpn = 1,
                        .target_qpn = 2,
                        .psn = 3,
                        .length = length,
                        .opcode = IBV_WR_RDMA_WRITE,
                        .verdict = 0,
                        .vendor_err = 0};
    event.transport = IBV_QPT_RC;
    event.reply = Reply::kAcknowledged;
    event.mtu = kMtu;
    event.offset = offset;
    event.end = length;
    event.route = &route_;
    event.ranges = ranges.data();
    event.range_count = ranges.size();
    event.ranges_at = offset;
    event.may_be_gone = may_be_gone;
    recorder_.on_response(event);
  }

  // The payload of all records of one message, from `offset` on: one follows the other, and only the last
  // ends it.
  std::vector<uint8_t> read(uint32_t offset, uint32_t length, size_t* count) {
    std::vector<uint8_t> payload;
    std::vector<std::byte> bytes;
    for (*count = 0; reader_.next(&bytes) == RingReader::Next::kRecord; ++*count) {
      MessageRecord record;
      std::memcpy(&record, bytes.data(), sizeof record);
      EXPECT_EQ(record.head.kind, Kind::kMessage);
      EXPECT_EQ(record.offset, offset);
      EXPECT_EQ(record.reply, record.end == length ? Reply::kAcknowledged : Reply::kMore);
      EXPECT_EQ(record.kept, record.end - record.offset);
      const auto* const from = reinterpret_cast<const uint8_t*>(bytes.data()) + sizeof record;
      payload.insert(payload.end(), from, from + record.kept);
      offset = record.end;
    }
    EXPECT_EQ(offset, length);
    return payload;
  }

  TemporaryFolder folder_;
  PacketRoute route_;
  Recorder recorder_;
  RingReader reader_;
};

TEST_F(RecorderTest, WritesTheBeginningOfAFrame) {
  std::vector<uint8_t> frame(300);
  for (size_t i = 0; i < frame.size(); ++i) frame[i] = static_cast<uint8_t>(i);
  for (const uint32_t snap : {RecordWish::kWhole, uint32_t{64}}) {
    recorder_.set_wish({kRecordPackets, snap, 1});
    recorder_.on_frame({0x17, frame});
    std::vector<std::byte> bytes;
    ASSERT_EQ(reader_.next(&bytes), RingReader::Next::kRecord);
    FrameRecord record;
    ASSERT_GE(bytes.size(), sizeof record);
    std::memcpy(&record, bytes.data(), sizeof record);
    EXPECT_EQ(record.head.kind, Kind::kFrame);
    EXPECT_EQ(record.source_qpn, 0x17u);
    EXPECT_EQ(record.length, 300u);
    ASSERT_EQ(record.kept, std::min(snap, 300u));
    EXPECT_EQ(std::memcmp(bytes.data() + sizeof record, frame.data(), record.kept), 0);
  }
  recorder_.set_wish({kRecordTimeline, RecordWish::kWhole, 1});
  recorder_.on_frame({0x17, frame});
  std::vector<std::byte> bytes;
  EXPECT_EQ(reader_.next(&bytes), RingReader::Next::kNone);
}

TEST_F(RecorderTest, WritesALongMessageInPieces) {
  std::vector<uint8_t> message(200'000);
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<uint8_t>(i * 7 + i / 256);
  const std::vector<iovec> ranges{{message.data(), 70'001},
                                  {message.data() + 70'001, message.size() - 70'001}};
  for (const bool may_be_gone : {false, true}) {
    size_t count = 0;
    respond(0, 200'000, ranges, may_be_gone);
    EXPECT_EQ(read(0, 200'000, &count), message);
    EXPECT_EQ(count, may_be_gone ? 49u : 4u);
  }
}

// The rest of a message whose beginning has been written already ends its pieces where packets end.
TEST_F(RecorderTest, WritesTheRestOfAMessage) {
  std::vector<uint8_t> message(150'000, 5);
  size_t count = 0;
  respond(100, 150'000, {{message.data(), 149'900}}, false);
  EXPECT_EQ(read(100, 150'000, &count), std::vector<uint8_t>(149'900, 5));
  EXPECT_EQ(count, 3u);
}

TEST_F(RecorderTest, TakesZerosForMemoryThatIsGone) {
  void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  size_t count = 0;
  respond(0, 4096, {{page, 4096}}, true);
  EXPECT_EQ(read(0, 4096, &count), std::vector<uint8_t>(4096, 0));
  EXPECT_EQ(count, 1u);
  munmap(page, 4096);
}

TEST_F(RecorderTest, WritesNothingOfMemoryThatItDoesNotKnow) {
  respond(0, 100'000, {}, false);
  std::vector<std::byte> bytes;
  ASSERT_EQ(reader_.next(&bytes), RingReader::Next::kRecord);
  MessageRecord record;
  std::memcpy(&record, bytes.data(), sizeof record);
  EXPECT_EQ(record.kept, 0u);
  EXPECT_EQ(record.end, 100'000u);
  EXPECT_EQ(reader_.next(&bytes), RingReader::Next::kNone);
}

}  // namespace
}  // namespace verbena::record
