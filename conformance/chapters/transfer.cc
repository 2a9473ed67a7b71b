// SPDX-License-Identifier: BSD-2-Clause
//
// Transfers: sizes at every boundary, generated from the table of ibv_post_send(3); immediate data; lists.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "support/pair.h"

namespace conformance::transfer_chapter {
namespace {

struct Row {
  const char* key;  // "rc"
  ibv_qp_type type;
  const char* operation;  // "send-imm"
  ibv_wr_opcode opcode;
};

constexpr Row rows[] = {
    {"rc", IBV_QPT_RC, "send", IBV_WR_SEND},
    {"rc", IBV_QPT_RC, "send-imm", IBV_WR_SEND_WITH_IMM},
    {"rc", IBV_QPT_RC, "write", IBV_WR_RDMA_WRITE},
    {"rc", IBV_QPT_RC, "write-imm", IBV_WR_RDMA_WRITE_WITH_IMM},
    {"rc", IBV_QPT_RC, "read", IBV_WR_RDMA_READ},
    {"uc", IBV_QPT_UC, "send", IBV_WR_SEND},
    {"uc", IBV_QPT_UC, "send-imm", IBV_WR_SEND_WITH_IMM},
    {"uc", IBV_QPT_UC, "write", IBV_WR_RDMA_WRITE},
    {"uc", IBV_QPT_UC, "write-imm", IBV_WR_RDMA_WRITE_WITH_IMM},
    {"ud", IBV_QPT_UD, "send", IBV_WR_SEND},
    {"ud", IBV_QPT_UD, "send-imm", IBV_WR_SEND_WITH_IMM},
    {"xrc", IBV_QPT_XRC_SEND, "send", IBV_WR_SEND},
    {"xrc", IBV_QPT_XRC_SEND, "send-imm", IBV_WR_SEND_WITH_IMM},
    {"xrc", IBV_QPT_XRC_SEND, "write", IBV_WR_RDMA_WRITE},
    {"xrc", IBV_QPT_XRC_SEND, "write-imm", IBV_WR_RDMA_WRITE_WITH_IMM},
    {"xrc", IBV_QPT_XRC_SEND, "read", IBV_WR_RDMA_READ},
};

constexpr uint32_t margin = 64, longest = 1u << 20;

class SizesTest final : public PairTest {
 public:
  explicit SizesTest(const Row& row) : row_(row) {}

 private:
  void run() override {
    PairSpec spec;
    spec.both.type = row_.type;
    spec.both.buffer = margin + 40 + longest + margin;
    pair(spec);
    const uint32_t mtu = pair().mtu_bytes(),
                   largest = std::min(near().facts().largest, far().facts().largest);
    for (const uint32_t size : {0u, 1u, mtu - 1, mtu, mtu + 1, 2 * mtu, 7 * mtu + 13, longest}) {
      if ((row_.type == IBV_QPT_UD && size > mtu) || size > largest) break;
      move(size);
      if (HasFatalFailure()) return;
    }
  }

  bool is_read() const { return row_.opcode == IBV_WR_RDMA_READ; }

  void move(uint32_t size) {
    SCOPED_TRACE(std::to_string(size) + " bytes");
    Endpoint& source = is_read() ? far() : near();
    Endpoint& target = is_read() ? near() : far();
    const uint32_t at = margin + (takes_a_receive(row_.opcode) ? far().data_offset() : 0);
    const uint64_t seed = size + 17;
    source.fill_pattern(margin, size, seed);
    target.fill(0, at + size + margin, Buffer::untouched);
    if (takes_a_receive(row_.opcode)) {
      const bool into_it = row_.opcode != IBV_WR_RDMA_WRITE_WITH_IMM;
      ASSERT_EQ(far().receive(margin, into_it ? far().data_offset() + size : 0, size), 0);
    }
    std::vector<Element> elements;
    if (size > 0) elements.push_back({margin, size});
    SendRequest request = row_.type == IBV_QPT_UD
                              ? send_request(elements, size, row_.opcode)
                              : remote_request(row_.opcode, elements, far().facts(), margin, size);
    request.imm = 0x01020304;
    ASSERT_EQ(near().post(request), 0);
    const Completion done = near().completion();
    EXPECT_EQ(done.status, IBV_WC_SUCCESS) << completion_text(done);
    EXPECT_EQ(done.id, size);
    if (takes_a_receive(row_.opcode)) check_receive(size);
    if (row_.opcode == IBV_WR_RDMA_WRITE) wait_until_it_came(target, at, size, seed);
    EXPECT_TRUE(target.has_pattern(at, size, seed));
    EXPECT_TRUE(target.untouched(0, margin)) << "before the message";
    EXPECT_TRUE(target.untouched(at + size, margin)) << "behind the message";
  }

  // UC tells the sender nothing of the arrival, and an RDMA WRITE tells the receiver nothing either. A
  // reliable one has been acknowledged; its bytes may be on their way into memory nevertheless (T. Shanley,
  // InfiniBand Network Architecture, chapter 13, RDMA Read Relaxed Ordering Rules: posted memory writes).
  void wait_until_it_came(Endpoint& target, uint32_t at, uint32_t size, uint64_t seed) const {
    const auto time =
        row_.type == IBV_QPT_UC ? std::chrono::milliseconds(5000) : std::chrono::milliseconds(100);
    const auto end = std::chrono::steady_clock::now() + scaled(time);
    while (!target.has_pattern(at, size, seed) && std::chrono::steady_clock::now() < end) {
    }
  }

  void check_receive(uint32_t size) {
    const Completion received = far().received();
    ASSERT_EQ(received.status, IBV_WC_SUCCESS) << completion_text(received);
    EXPECT_EQ(received.id, size);
    EXPECT_EQ(received.bytes, far().data_offset() + size);
    const bool has_imm = row_.opcode != IBV_WR_SEND;
    EXPECT_EQ((received.flags & IBV_WC_WITH_IMM) != 0, has_imm);
    if (has_imm) {
      EXPECT_EQ(received.imm, 0x01020304u);
    }
  }

  const Row& row_;
};

struct Type {
  const char* key;
  ibv_qp_type type;
};
constexpr Type types[] = {
    {"rc", IBV_QPT_RC}, {"uc", IBV_QPT_UC}, {"ud", IBV_QPT_UD}, {"xrc", IBV_QPT_XRC_SEND}};

class TypeTest : public PairTest {
 public:
  explicit TypeTest(const Type& type) : type_(type) {}

 protected:
  PairSpec spec() const {
    PairSpec spec;
    spec.both.type = type_.type;
    return spec;
  }
  // With elements in both queues; NotClaimed where the device has fewer.
  void make(uint32_t sends, uint32_t receives, bool tests_receiver) {
    PairSpec wanted = spec();
    wanted.tests_far = tests_receiver;
    wanted.both.send_sges = sends;
    wanted.both.receive_sges = receives;
    pair(wanted);
    if (near().facts().send_sges < sends || far().facts().receive_sges < receives)
      throw NotClaimed{"fewer scatter/gather elements than the test needs"};
  }
  const Type& type_;
};

class ImmediateTest final : public TypeTest {
  using TypeTest::TypeTest;
  void run() override {
    pair(spec());
    for (const uint32_t value : {0u, 1u, 0x01020304u, 0x80000000u, 0xffffffffu}) {
      ASSERT_EQ(far().receive(0, 64), 0);
      SendRequest request = send_request({{0, 4}}, 1, IBV_WR_SEND_WITH_IMM);
      request.imm = value;
      ASSERT_EQ(near().post(request), 0);
      EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
      const Completion received = far().received();
      EXPECT_NE(received.flags & IBV_WC_WITH_IMM, 0u);
      EXPECT_EQ(received.imm, value);
    }
  }
};

class GatherTest final : public TypeTest {
  using TypeTest::TypeTest;
  void run() override {
    const std::vector<std::vector<Element>> lists = {{{67, 1}, {200, 7}, {129, 64}, {301, 33}},
                                                     {{1, 1}, {3, 1}, {2, 1}, {0, 1}},
                                                     {{4000, 96}, {64, 3}, {65, 3}, {66, 150}}};
    make(4, 1, false);
    near().fill_pattern(0, 4096, 5);
    for (const auto& list : lists) {
      far().fill(0, 1024, Buffer::untouched);
      ASSERT_EQ(far().receive(64, 512), 0);
      ASSERT_EQ(near().post(send_request(list)), 0);
      EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
      uint32_t at = 64 + far().data_offset();
      EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
      for (const Element& element : list) {
        EXPECT_TRUE(far().has_pattern(at, element.length, 5, static_cast<uint64_t>(element.offset)));
        at += element.length;
      }
      EXPECT_TRUE(far().untouched(at, 64));
    }
  }
};

class ScatterTest final : public TypeTest {
  using TypeTest::TypeTest;
  void run() override {
    std::vector<Element> list = {{1000, 5}, {701, 1}, {512, 30}, {900, 99}};
    const bool is_datagram = type_.type == IBV_QPT_UD;
    if (is_datagram) list.insert(list.begin(), {0, 40});
    make(1, static_cast<uint32_t>(list.size()), true);
    near().fill_pattern(0, 1024, 5);
    for (const uint32_t length : {3u, 5u, 6u, 60u, 135u}) {
      SCOPED_TRACE(std::to_string(length) + " bytes");
      far().fill(0, 2048, Buffer::untouched);
      ASSERT_EQ(far().receive({{1, list}}), 0);
      ASSERT_EQ(near().post(send_request({{64, length}})), 0);
      EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
      EXPECT_EQ(far().received().bytes, far().data_offset() + length);
      uint32_t left = length;
      for (size_t i = is_datagram ? 1 : 0; i < list.size(); ++i) {
        const auto at = static_cast<uint64_t>(list[i].offset);
        const uint32_t filled = std::min(left, list[i].length);
        EXPECT_TRUE(far().has_pattern(at, filled, 5, 64 + length - left));
        EXPECT_TRUE(far().untouched(at + filled, list[i].length - filled)) << "element " << i;
        left -= filled;
      }
    }
  }
};

template <typename Test>
void add(const Type& type, const std::string& what) {
  register_generated("transfer", test_name(type.key + ('-' + what)),
                     {std::string("transfer.") + type.key + '.' + what}, Traits(), __FILE__, __LINE__,
                     [&]() -> testing::Test* { return new Test(type); });
}

[[maybe_unused]] const bool generated = [] {
  for (const Row& row : rows)
    register_generated("transfer", test_name(row.key + ('-' + std::string(row.operation)) + "-sizes"),
                       {std::string("transfer.") + row.key + '.' + row.operation + ".sizes"}, Traits(),
                       __FILE__, __LINE__, [&row]() -> testing::Test* { return new SizesTest(row); });
  for (const Type& type : types) {
    add<ImmediateTest>(type, "imm");
    add<GatherTest>(type, "gather");
    add<ScatterTest>(type, "scatter");
  }
  return true;
}();

}  // namespace
}  // namespace conformance::transfer_chapter
