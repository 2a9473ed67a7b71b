// SPDX-License-Identifier: BSD-2-Clause
//
// Access rules: of queue pairs, of local elements, of keys that nothing has.
#include <string>

#include "support/pair.h"

namespace conformance::access_more_chapter {
namespace {

class Fixture : public PairTest {
 protected:
  // A request that is refused when it is posted has the status that its completion would have had.
  ibv_wc_status status_of(const SendRequest& request) {
    if (near().post(request) != 0) return IBV_WC_LOC_PROT_ERR;
    return near().completion().status;
  }
  ibv_wc_status remote(ibv_wr_opcode opcode, int64_t at = 1024) {
    return status_of(remote_request(opcode, {{0, 8}}, far().facts(), at));
  }
  // The near end's region [1024, 1280) with these rights.
  wire::Region local(int access) {
    const wire::Region region = near().register_region(1024, 256, access);
    if (region.error != 0) throw Deviation{"a region is needed", Where::current()};
    return region;
  }
  // The rights and regions of the clause are the far end's.
  static PairSpec of_the_responder() {
    PairSpec spec;
    spec.tests_far = true;
    return spec;
  }
  static wire::Connect with_access(int access) {
    wire::Connect path;
    path.access = access;
    return path;
  }
  void need_atomics() {
    if (device().attributes().atomic_cap == IBV_ATOMIC_NONE) throw NotClaimed{"atomic_cap is none"};
    if (!pair().has_atomics()) throw NotTested{"the far end has no atomics"};
  }
};

struct Right {
  ClauseId clause;
  ibv_wr_opcode opcode;
  int others;  // rights that the QP has
};

CONFORMANCE_TEST(access, QueuePairWithoutTheRight, "access.qp.write", "access.qp.read", "access.qp.atomic") {
  const Right rights[] = {
      {"access.qp.write", IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_READ},
      {"access.qp.read", IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_WRITE},
      {"access.qp.atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE}};
  for (const Right& right : rights) {
    const About about(right.clause);
    PairSpec spec = of_the_responder();
    spec.path = with_access(right.others);
    if (is_atomic(right.opcode) && device().attributes().atomic_cap == IBV_ATOMIC_NONE) {
      not_claimed("atomic_cap is none");
      continue;
    }
    new_pair(spec);
    if (is_atomic(right.opcode) && !pair().has_atomics()) {
      not_tested("the requester's end has no atomics");
      continue;
    }
    const ibv_wc_status status = remote(right.opcode);
    EXPECT_TRUE(status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR) << name_of(status);
    EXPECT_TRUE(far().untouched(0, 4096));
  }
}

CONFORMANCE_TEST(access, UcQueuePairWithoutTheRight, "access.qp.uc-write") {
  PairSpec spec = of_the_responder();
  spec.both.type = IBV_QPT_UC;
  spec.path = with_access(IBV_ACCESS_REMOTE_READ);
  pair(spec);
  EXPECT_EQ(remote(IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
  EXPECT_TRUE(far().stays_empty());
  EXPECT_TRUE(far().untouched(0, 4096));
}

CONFORMANCE_TEST(access, LocalElementsBeyondTheirRegion, "access.local.send", "access.local.write",
                 "access.local.read-bounds") {
  const struct {
    ClauseId clause;
    ibv_wr_opcode opcode;
  } table[] = {{"access.local.send", IBV_WR_SEND},
               {"access.local.write", IBV_WR_RDMA_WRITE},
               {"access.local.read-bounds", IBV_WR_RDMA_READ}};
  for (const auto& [clause, opcode] : table) {
    const About about(clause);
    for (const auto& [offset, length, fits] : {std::tuple(1024, 256u, true),
                                               {1024, 1u, true},
                                               {1279, 1u, true},
                                               {1023, 8u, false},
                                               {1023, 1u, false},
                                               {1273, 8u, false},
                                               {1280, 1u, false},
                                               {1024, 257u, false}}) {
      SCOPED_TRACE(std::to_string(length) + " bytes at " + std::to_string(offset - 1024));
      new_pair();
      const wire::Region region = local(IBV_ACCESS_LOCAL_WRITE);
      far().fill(4096, 512, 0x11);
      if (opcode == IBV_WR_SEND) {
        ASSERT_EQ(far().receive(0, 512), 0);
      }
      const ibv_wc_status status =
          status_of(remote_request(opcode, {{offset, length, region.lkey}}, far().facts(), 4096));
      EXPECT_EQ(status, fits ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR) << name_of(status);
      EXPECT_TRUE(near().untouched(0, 1024));
      EXPECT_TRUE(near().untouched(1280, 1024));
      if (!fits) {
        EXPECT_TRUE(far().untouched(0, 512));
      }
    }
  }
}

CONFORMANCE_TEST(access, ReadsNeedLocalWrite, "access.local.read-needs-write") {
  pair();
  far().fill(0, 512, 0x11);
  const wire::Region region = local(0);
  const ibv_wc_status status =
      status_of(remote_request(IBV_WR_RDMA_READ, {{1024, 64, region.lkey}}, far().facts()));
  EXPECT_EQ(status, IBV_WC_LOC_PROT_ERR) << name_of(status);
  EXPECT_TRUE(near().untouched(1024, 256));
}

CONFORMANCE_TEST(access, AtomicsNeedLocalWrite, "access.local.atomic-needs-write") {
  need_atomics();
  const wire::Region region = local(0);
  const ibv_wc_status status =
      status_of(remote_request(IBV_WR_ATOMIC_FETCH_AND_ADD, {{1024, 8, region.lkey}}, far().facts()));
  EXPECT_EQ(status, IBV_WC_LOC_PROT_ERR) << name_of(status);
  EXPECT_TRUE(near().untouched(1024, 256));
}

CONFORMANCE_TEST(access, AtomicsBeyondTheirRegion, "access.local.atomic-bounds") {
  need_atomics();
  for (const auto& [offset, fits] :
       {std::pair(1024, true), {1272, true}, {1020, false}, {1276, false}, {1280, false}}) {
    SCOPED_TRACE("at " + std::to_string(offset - 1024));
    new_pair();
    const wire::Region region = local(IBV_ACCESS_LOCAL_WRITE);
    const ibv_wc_status status =
        status_of(remote_request(IBV_WR_ATOMIC_FETCH_AND_ADD, {{offset, 8, region.lkey}}, far().facts()));
    EXPECT_EQ(status, fits ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR) << name_of(status);
    EXPECT_TRUE(near().untouched(0, 1024));
    EXPECT_TRUE(near().untouched(1280, 1024));
  }
}

class WindowsAndRegions : public Fixture {
 protected:
  // Every window with remote write, remote read, or both, on every region of remote rights with and without
  // local write.
  void try_all(bool second_type) {
    const unsigned flags = device().attributes().device_cap_flags;
    constexpr unsigned second = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    if ((flags & (second_type ? second : unsigned{IBV_DEVICE_MEM_WINDOW})) == 0)
      throw NotClaimed{"device_cap_flags has no memory windows of this type"};
    constexpr int writes = IBV_ACCESS_REMOTE_WRITE, reads = IBV_ACCESS_REMOTE_READ,
                  local = IBV_ACCESS_LOCAL_WRITE;
    for (const int region : {0, reads, local, local | writes, local | reads, local | writes | reads})
      for (const int window : {writes, reads, writes | reads}) {
        SCOPED_TRACE("window " + std::to_string(window) + " on a region of " + std::to_string(region));
        PairSpec spec = of_the_responder();
        spec.path = with_access(writes | reads);
        spec.far = spec.both;
        spec.far->access = region | IBV_ACCESS_MW_BIND;
        new_pair(spec);
        const wire::Window bound = far().bind_window(second_type, 1024, 256, static_cast<unsigned>(window));
        const bool may_be = (window & writes) == 0 || (region & local) != 0;
        EXPECT_EQ(bound.status == IBV_WC_SUCCESS, may_be) << name_of(bound.status);
        if (bound.status != IBV_WC_SUCCESS) continue;
        // The allowed access first: the other one ends the connection.
        const bool write_first = (window & writes) != 0;
        for (const bool is_write : {write_first, !write_first}) {
          SendRequest request =
              remote_request(is_write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, {{0, 8}}, far().facts(), 1024);
          request.rkey = bound.rkey;
          const ibv_wc_status status = status_of(request);
          const bool allowed = (window & (is_write ? writes : reads)) != 0;
          EXPECT_EQ(status, allowed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR) << name_of(status);
        }
      }
  }
};

namespace windows {
using Fixture = WindowsAndRegions;

CONFORMANCE_TEST(access, WindowsOfTypeOneHaveTheirOwnRights, "access.mw1.region-rights") { try_all(false); }
CONFORMANCE_TEST(access, WindowsOfTypeTwoHaveTheirOwnRights, "access.mw2.region-rights") { try_all(true); }

}  // namespace windows

CONFORMANCE_TEST(access, ReceivesBeyondTheirRegion, "access.local.receive-bounds") {
  // Longer than what an adapter may keep in the completion, which the CPU places when it is polled.
  constexpr uint32_t size = 128;
  for (const int64_t offset : {1023, 1153}) {
    new_pair(of_the_responder());
    near().fill(0, size, 0x11);
    const wire::Region region = far().register_region(1024, 256, IBV_ACCESS_LOCAL_WRITE);
    if (far().receive({{1, {{offset, size, region.lkey}}}}) != 0) continue;  // detected at once
    EXPECT_NE(status_of(send_request({{0, size}})), IBV_WC_SUCCESS);
    EXPECT_NE(far().received().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(far().untouched(0, 1024));
    EXPECT_TRUE(far().untouched(1280, 1024));
  }
}

CONFORMANCE_TEST(access, KeysThatNothingHas, "access.lkey.unknown", "access.rkey.unknown",
                 "access.rkey.stale") {
  {
    const About about("access.lkey.unknown");
    const wire::Region region = local(IBV_ACCESS_LOCAL_WRITE);
    ASSERT_EQ(near().deregister_region(region), 0);
    ASSERT_EQ(far().receive(0, 64), 0);
    const ibv_wc_status status = status_of(send_request({{1024, 8, region.lkey}}));
    EXPECT_EQ(status, IBV_WC_LOC_PROT_ERR) << name_of(status);
  }
  for (const bool is_stale : {false, true}) {
    const About about(is_stale ? ClauseId("access.rkey.stale") : ClauseId("access.rkey.unknown"));
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      new_pair(of_the_responder());
      const wire::Region region =
          far().register_region(1024, 256, all_remote_access & ~IBV_ACCESS_REMOTE_ATOMIC);
      ASSERT_EQ(far().deregister_region(region), 0);
      for (int i = 0; is_stale && i < 8; ++i) {
        const wire::Region later =
            far().register_region(1024, 256, all_remote_access & ~IBV_ACCESS_REMOTE_ATOMIC);
        // An adapter may keep keys for the next region.
        if (later.rkey == region.rkey) throw NotTested{"a later region has the same rkey: it is not stale"};
      }
      SendRequest request = remote_request(opcode, {{0, 8}}, far().facts(), 1024);
      request.rkey = region.rkey;
      const ibv_wc_status status = status_of(request);
      EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR) << name_of(status);
      EXPECT_TRUE(far().untouched(0, 4096));
    }
  }
}

CONFORMANCE_TEST(access, KeysOfAnotherPd, "access.rkey.other-pd") {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    new_pair(of_the_responder());
    near().fill_pattern(0, 512, 5);
    const wire::Region region =
        far().register_region(1024, 256, all_remote_access & ~IBV_ACCESS_REMOTE_ATOMIC, true);
    ASSERT_EQ(region.error, 0);
    SendRequest request = remote_request(opcode, {{0, 8}}, far().facts(), 1024);
    request.rkey = region.rkey;
    const ibv_wc_status status = status_of(request);
    EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR) << name_of(status);
    EXPECT_TRUE(far().untouched(0, 4096));
    EXPECT_TRUE(near().has_pattern(0, 512, 5));
  }
}

CONFORMANCE_TEST(access, NoBytesNeedNoKey, "access.zero-length") {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    SendRequest request = send_request({}, 1, opcode);
    request.remote = 0;
    request.rkey = 0;
    const ibv_wc_status status = status_of(request);
    EXPECT_EQ(status, IBV_WC_SUCCESS) << name_of(status);
  }
}

CONFORMANCE_TEST(access, UcDropsWhatIsDenied, "access.uc-denied") {
  PairSpec spec = of_the_responder();
  spec.both.type = IBV_QPT_UC;
  pair(spec);
  const wire::Region region = far().register_region(1024, 256, IBV_ACCESS_LOCAL_WRITE);
  SendRequest request = remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, far().facts(), 1024);
  request.rkey = region.rkey;
  EXPECT_EQ(status_of(request), IBV_WC_SUCCESS);
  ASSERT_EQ(far().receive(4096, 64), 0);
  near().fill(0, 8, 0x11);
  EXPECT_EQ(status_of(send_request({{0, 8}})), IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has(4096, 8, 0x11));
  EXPECT_TRUE(far().untouched(0, 4096));
  EXPECT_EQ(far().state(), IBV_QPS_RTS);
}

}  // namespace
}  // namespace conformance::access_more_chapter
