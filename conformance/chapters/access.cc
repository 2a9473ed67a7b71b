// SPDX-License-Identifier: BSD-2-Clause
//
// Access rules, generated: every combination of rights of a region or window with every operation, and their
// bounds.
#include <chrono>
#include <string>
#include <vector>

#include "support/pair.h"

namespace conformance::access_chapter {
namespace {

constexpr int local_write = IBV_ACCESS_LOCAL_WRITE, remote_write = IBV_ACCESS_REMOTE_WRITE,
              remote_read = IBV_ACCESS_REMOTE_READ, remote_atomic = IBV_ACCESS_REMOTE_ATOMIC;

struct Operation {
  const char* key;
  ibv_wr_opcode opcode;
  int right;
};
constexpr Operation operations[] = {{"write", IBV_WR_RDMA_WRITE, remote_write},
                                    {"write-imm", IBV_WR_RDMA_WRITE_WITH_IMM, remote_write},
                                    {"read", IBV_WR_RDMA_READ, remote_read},
                                    {"cmp-swp", IBV_WR_ATOMIC_CMP_AND_SWP, remote_atomic},
                                    {"fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, remote_atomic}};

enum class Target { mr, mw1, mw2 };
constexpr const char* target_keys[] = {"mr", "mw1", "mw2"};

constexpr int64_t begin = 1024;
constexpr uint32_t length = 256;

class AccessTest : public PairTest {
 public:
  AccessTest(Target target, const Operation& operation) : target_(target), operation_(operation) {}

 protected:
  // Rights that may stand together: remote write and atomics ask for local write.
  std::vector<int> combinations(bool with_the_right) {
    std::vector<int> out;
    for (int bits = 0; bits < 16; ++bits) {
      const int access = ((bits & 1) != 0 ? local_write : 0) | ((bits & 2) != 0 ? remote_write : 0) |
                         ((bits & 4) != 0 ? remote_read : 0) | ((bits & 8) != 0 ? remote_atomic : 0);
      const bool is_valid = (access & local_write) != 0 || (access & (remote_write | remote_atomic)) == 0;
      const bool is_window = target_ != Target::mr;  // where local write is the region's matter
      if (is_window ? (bits & 1) != 0 : !is_valid) continue;
      if ((access & remote_atomic) != 0 && !takes_atomics_) continue;
      if (((access & operation_.right) != 0) == with_the_right) out.push_back(access);
    }
    return out;
  }

  // Before all others.
  void check_claims() {
    takes_atomics_ = device().attributes().atomic_cap != IBV_ATOMIC_NONE;
    if (is_atomic(operation_.opcode) && !takes_atomics_) throw NotClaimed{"atomic_cap is none"};
    const unsigned flags = device().attributes().device_cap_flags;
    if (target_ == Target::mw1 && (flags & IBV_DEVICE_MEM_WINDOW) == 0)
      throw NotClaimed{"device_cap_flags has no memory windows"};
    if (target_ == Target::mw2 &&
        (flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) == 0)
      throw NotClaimed{"device_cap_flags has no memory windows of type 2"};
    if (is_atomic(operation_.opcode)) {
      make_ends();
      if (!pair().has_atomics()) throw NotTested{"the requester's end has no atomics"};
    }
    if (target_ == Target::mr || !takes_atomics_) return;
    // "If supported" (ibv_bind_mw(3)): no page promises atomics through windows, nor that a window can be
    // given the right to them. Asked once, with every right.
    const wire::Window window = bound_window(remote_write | remote_read | remote_atomic, length);
    takes_atomics_ = window.status == IBV_WC_SUCCESS;
    if (!is_atomic(operation_.opcode)) return;
    const ibv_wc_status status = takes_atomics_ ? access(window.rkey, begin + 16, 8) : window.status;
    if (status != IBV_WC_SUCCESS) throw NotClaimed{"no atomics through windows: " + name_of(status)};
  }

  void make_ends() {
    PairSpec spec;
    spec.tests_far = true;
    if (target_ != Target::mr) spec.both.access |= IBV_ACCESS_MW_BIND;
    new_pair(spec);
    near().fill_pattern(0, 512, 5);
  }
  // Fresh ends, and a window of the far one.
  wire::Window bound_window(int access, uint32_t size) {
    make_ends();
    return far().bind_window(target_ == Target::mw2, begin, size, static_cast<unsigned>(access));
  }
  // Fresh ends, and the memory to access at the far one. Returns its rkey.
  uint32_t make_target(int access, uint32_t size = length) {
    if (target_ == Target::mr) {
      make_ends();
      const wire::Region region = far().register_region(begin, size, access);
      if (region.error != 0)
        throw Deviation{
            "a region of access " + std::to_string(access) + "; seen: " + errno_text(region.error),
            Where::current()};
      return region.rkey;
    }
    const wire::Window window = bound_window(access, size);
    if (window.status != IBV_WC_SUCCESS)
      throw Deviation{"to bind a window; seen: " + name_of(window.status), Where::current()};
    return window.rkey;
  }

  // One operation at this offset of the far buffer.
  ibv_wc_status access(uint32_t rkey, int64_t at, uint32_t bytes) {
    if (takes_a_receive(operation_.opcode) && far().receive(0, 0) != 0)
      throw Deviation{"a receive is needed", Where::current()};
    SendRequest request = remote_request(operation_.opcode, {{is_atomic(operation_.opcode) ? 64 : 8, bytes}},
                                         far().facts(), at);
    request.rkey = rkey;
    request.compare_add = 0x5a5a5a5a5a5a5a5a;  // what is there
    request.swap = 7;
    if (const int error = near().post(request); error != 0)
      throw Deviation{"ibv_post_send; expected: 0; seen: " + errno_text(error), Where::current()};
    return near().completion().status;
  }

  // Are other bytes there within a second? The completion says that the far adapter has them; its memory may
  // have them a moment later.
  bool changes(int64_t at, uint32_t bytes) {
    const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(1));
    while (far().untouched(static_cast<uint64_t>(at), bytes)) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      give_way();
    }
    return true;
  }

  const Target target_;
  const Operation& operation_;
  bool takes_atomics_ = false;  // whether its memory can be given the right to atomics
};

class AllowedTest final : public AccessTest {
  using AccessTest::AccessTest;
  void run() override {
    check_claims();
    for (const int rights : combinations(true)) {
      SCOPED_TRACE("rights " + std::to_string(rights));
      const ibv_wc_status status = access(make_target(rights), begin + 16, 8);
      EXPECT_EQ(status, IBV_WC_SUCCESS) << name_of(status);
      if (operation_.opcode == IBV_WR_RDMA_READ) {
        EXPECT_TRUE(near().untouched(8, 8));  // what the far buffer is full of
      } else {
        EXPECT_TRUE(changes(begin + 16, 8));
      }
    }
  }
};

class DeniedTest final : public AccessTest {
  using AccessTest::AccessTest;
  void run() override {
    check_claims();
    for (const int rights : combinations(false)) {
      SCOPED_TRACE("rights " + std::to_string(rights));
      const ibv_wc_status status = access(make_target(rights), begin + 16, 8);
      EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR) << name_of(status);
      EXPECT_TRUE(far().untouched(0, 4096));
      EXPECT_TRUE(near().has_pattern(0, 512, 5));
    }
  }
};

class BoundsTest final : public AccessTest {
  using AccessTest::AccessTest;
  void run() override {
    check_claims();
    if (is_atomic(operation_.opcode)) {
      expect(begin, 8, true), expect(begin + length - 8, 8, true);
      expect(begin - 8, 8, false), expect(begin + length, 8, false);
      expect(begin + length - 8, 8, false, length - 4);
      return;
    }
    for (const uint32_t bytes : {1u, 8u, 100u, length}) {
      expect(begin, bytes, true);
      expect(begin + length - bytes, bytes, true);
      expect(begin - 1, bytes, false);
      expect(begin + length - bytes + 1, bytes, false);
    }
    expect(begin, length + 1, false);
    expect(begin - 1, length + 2, false);
  }
  void expect(int64_t at, uint32_t bytes, bool carried_out, uint32_t size = length) {
    SCOPED_TRACE(std::to_string(bytes) + " bytes at " + std::to_string(at - begin) + " of " +
                 std::to_string(size));
    const int remote = remote_write | remote_read | (takes_atomics_ ? remote_atomic : 0);
    const uint32_t rkey = make_target(remote | (target_ == Target::mr ? local_write : 0), size);
    const ibv_wc_status status = access(rkey, at, bytes);
    EXPECT_EQ(status, carried_out ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR) << name_of(status);
    if (carried_out) return;
    EXPECT_TRUE(far().untouched(0, 4096));
    EXPECT_TRUE(near().has_pattern(0, 512, 5));
  }
};

template <typename Test>
void add(const std::string& clause, Target target, const Operation& operation) {
  register_generated("access", test_name(clause), {"access." + clause}, Traits(), __FILE__, __LINE__,
                     [=, &operation]() -> testing::Test* { return new Test(target, operation); });
}

[[maybe_unused]] const bool generated = [] {
  for (const Target target : {Target::mr, Target::mw1, Target::mw2}) {
    const std::string key = target_keys[static_cast<size_t>(target)];
    for (const Operation& operation : operations) {
      const std::string name = operation.key;
      add<AllowedTest>(key + '.' + name + ".allowed", target, operation);
      add<DeniedTest>(key + '.' + name + ".denied", target, operation);
      add<BoundsTest>("bounds." + key + '.' + name, target, operation);
    }
  }
  return true;
}();

}  // namespace
}  // namespace conformance::access_chapter
