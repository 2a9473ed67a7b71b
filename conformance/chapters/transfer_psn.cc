// SPDX-License-Identifier: BSD-2-Clause
//
// Transfers: packet sequence numbers, and every path MTU. Generated for the types of QP.
#include <string>
#include <vector>

#include "support/pair.h"

namespace conformance::transfer_psn_chapter {
namespace {

struct Type {
  const char* key;
  ibv_qp_type type;
};
constexpr Type types[] = {
    {"rc", IBV_QPT_RC}, {"uc", IBV_QPT_UC}, {"ud", IBV_QPT_UD}, {"xrc", IBV_QPT_XRC_SEND}};

class TransferTest : public PairTest {
 public:
  explicit TransferTest(const Type& type) : type_(type) {}

 protected:
  static constexpr uint64_t room = 1u << 16;

  void make(const wire::Connect& path) {
    PairSpec spec;
    spec.both.type = type_.type;
    spec.both.buffer = room;
    spec.path = path;
    new_pair(spec);
  }
  bool is_datagram() const { return type_.type == IBV_QPT_UD; }

  // Sends `size` bytes, which the other end checks.
  void send(Endpoint& from, Endpoint& to, uint32_t size) {
    SCOPED_TRACE("SEND of " + std::to_string(size) + " bytes");
    const uint64_t seed = ++seed_;
    from.fill_pattern(0, size, seed);
    to.fill(0, to.data_offset() + size + 1, Buffer::untouched);
    ASSERT_EQ(to.receive(0, to.data_offset() + size), 0);
    ASSERT_EQ(from.post(send_request(elements(size))), 0);
    EXPECT_EQ(from.completion().status, IBV_WC_SUCCESS);
    const Completion received = to.received();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS) << completion_text(received);
    EXPECT_EQ(received.bytes, to.data_offset() + size);
    EXPECT_TRUE(to.has_pattern(to.data_offset(), size, seed));
    EXPECT_TRUE(to.untouched(to.data_offset() + size, 1));
  }
  void read(uint32_t size) {
    SCOPED_TRACE("RDMA READ of " + std::to_string(size) + " bytes");
    const uint64_t seed = ++seed_;
    far().fill_pattern(0, size, seed);
    near().fill(0, size + 1, Buffer::untouched);
    ASSERT_EQ(near().post(remote_request(IBV_WR_RDMA_READ, elements(size), far().facts())), 0);
    EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(near().has_pattern(0, size, seed));
    EXPECT_TRUE(near().untouched(size, 1));
  }
  static std::vector<Element> elements(uint32_t size) {
    return size > 0 ? std::vector<Element>{{0, size}} : std::vector<Element>{};
  }
  bool reads() const { return type_.type == IBV_QPT_RC || type_.type == IBV_QPT_XRC_SEND; }

  const Type& type_;

 private:
  uint64_t seed_ = 0;
};

class WrapTest final : public TransferTest {
  using TransferTest::TransferTest;
  void run() override {
    // The wrap-around of the numbers within a message, between two, and after a READ's answer.
    for (const uint32_t psn : {0xffffffu, 0xfffffeu, 0xfffffau}) {
      SCOPED_TRACE("from " + std::to_string(psn));
      wire::Connect path;
      path.psn = psn;
      make(path);
      const uint32_t mtu = pair().mtu_bytes(), size = is_datagram() ? mtu : 3 * mtu + 1;
      for (int i = 0; i < 8; ++i) {
        send(near(), far(), i % 2 == 0 ? size : 1);
        send(far(), near(), i % 2 == 0 ? 1 : size);
        if (reads()) read(size);
        if (HasFailure()) return;
      }
    }
  }
};

class PathMtuTest final : public TransferTest {
  using TransferTest::TransferTest;
  void run() override {
    const ibv_mtu most = device().port().active_mtu;
    for (int mtu = IBV_MTU_256; mtu <= most; ++mtu) {
      wire::Connect path;
      path.mtu = static_cast<ibv_mtu>(mtu);
      try {
        make(path);
      } catch (const Deviation&) {
        if (mtu == most) throw;
        continue;  // no page says that a device takes each of the smaller ones
      } catch (const NotTested&) {
        if (mtu == most) throw;
        continue;  // nor that the far end's does
      }
      const uint32_t bytes = 128u << mtu;
      SCOPED_TRACE("path MTU " + std::to_string(bytes));
      for (const uint32_t size : {0u, 1u, bytes - 1, bytes, bytes + 1, 2 * bytes, 7 * bytes + 13}) {
        send(near(), far(), size);
        if (reads()) read(size);
        if (HasFailure()) return;
      }
    }
  }
};

template <typename Test>
void add(const Type& type, const std::string& what) {
  register_generated("transfer", test_name(what + '-' + type.key), {"transfer." + what + '.' + type.key},
                     Traits(), __FILE__, __LINE__, [&type]() -> testing::Test* { return new Test(type); });
}

[[maybe_unused]] const bool generated = [] {
  for (const Type& type : types) {
    add<WrapTest>(type, "psn.wrap");
    if (type.type != IBV_QPT_UD) add<PathMtuTest>(type, "path-mtu");
  }
  return true;
}();

using Fixture = PairTest;

CONFORMANCE_TEST(transfer, NumbersThatDoNotMeet, "transfer.psn.mismatch") {
  PairSpec spec;
  spec.is_connected = false;
  pair(spec);
  wire::Connect ahead, behind;
  ahead.psn = 0x2000, behind.psn = 0x1000;
  ahead.timeout = 12, ahead.retry_count = 1;  // 17 ms
  ASSERT_EQ(near().connect(far().facts(), ahead), 0);
  ASSERT_EQ(far().connect(near().facts(), behind), 0);
  ASSERT_EQ(near().post(remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, far().facts(), 1024)), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(far().untouched(0, 4096));
}

}  // namespace
}  // namespace conformance::transfer_psn_chapter
