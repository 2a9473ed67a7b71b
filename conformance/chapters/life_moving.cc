// SPDX-License-Identifier: BSD-2-Clause
//
// Regions that are deregistered, or change, during transfers; and limits used to the last.
#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "support/pair.h"
#include "support/threads.h"

namespace conformance::life_moving_chapter {
namespace {

constexpr uint32_t length = 1u << 16;
constexpr int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

class Moving : public PairTest {
 protected:
  // While the far end carries out `opcode` on a region of the near end again and again, `change` removes what
  // the requests need. Requests under way may succeed or fail; one that begins afterwards fails.
  void change_under_way(ClauseId clause, ibv_wr_opcode opcode, const std::function<int(ibv_mr*)>& change) {
    PairSpec spec;
    spec.both.buffer = 2 * length;
    spec.path.retry_count = 6;  // some take 7 for endless
    pair(spec);
    const About about(clause);
    region_ = near().register_region(0, length, remote);
    ASSERT_EQ(region_.error, 0);
    SendRequest request = remote_request(opcode, {{0, length}}, near().facts());
    request.rkey = region_.rkey;
    std::atomic<bool> goes_on{false};
    std::atomic<int> result{-1};
    wire::HammerAnswer first, rest;
    run_in_threads({[&] {
                      first = far().hammer(request, 20);
                      goes_on = true;
                      rest = far().hammer(request, UINT32_MAX, std::chrono::seconds(5));
                    },
                    [&] {
                      const auto deadline =
                          std::chrono::steady_clock::now() + scaled(std::chrono::seconds(5));
                      while (!goes_on && std::chrono::steady_clock::now() < deadline)
                        std::this_thread::yield();
                      result = change(pair().native().regions.at(region_.region));
                      before_ = near().read(0, length);
                    }});
    EXPECT_EQ(first.completed, 20u);
    EXPECT_EQ(first.status, IBV_WC_SUCCESS);
    ASSERT_EQ(result, 0);
    if (rest.status == IBV_WC_REM_ACCESS_ERR) return;
    // A driver may take a QP that is using the region to ERR: then nothing answers any more.
    EXPECT_EQ(rest.status, IBV_WC_RETRY_EXC_ERR)
        << name_of(rest.status) << " after " << rest.completed << " requests: the far end could go on";
    EXPECT_EQ(near().state(), IBV_QPS_ERR) << "no answer, though the QP is not in ERR";
  }

  wire::Region region_;
  std::string before_;  // the bytes when the change had returned
};

using Fixture = Moving;

CONFORMANCE_TEST_AS(Traits().limit(30), life, DeregisteredUnderWrites, "life.dereg-mr.moving",
                    "life.dereg-mr.moving-bytes") {
  change_under_way("life.dereg-mr.moving", IBV_WR_RDMA_WRITE,
                   [&](ibv_mr*) { return near().deregister_region(region_); });
  if (HasFatalFailure()) return;
  observe("life.dereg-mr.moving-bytes", near().read(0, length) == before_ ? "none did" : "some did");
}

CONFORMANCE_TEST_AS(Traits().limit(30), life, DeregisteredUnderReads, "life.dereg-mr.moving-read") {
  change_under_way("life.dereg-mr.moving-read", IBV_WR_RDMA_READ,
                   [&](ibv_mr*) { return near().deregister_region(region_); });
}

CONFORMANCE_TEST_AS(Traits().limit(30), life, ReregisteredUnderWrites, "life.rereg-mr.moving") {
  {
    const Pd pd = make_pd(device());
    const Buffer buffer(4096);
    const Mr mr = make_mr(pd, buffer);
    const int result =
        CALL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE));
    if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
      throw NotClaimed{"ibv_rereg_mr refused with " + errno_text(errno)};
    if (result != 0)
      throw NotTested{"access is not changed: ibv_rereg_mr.access; seen: " + errno_text(errno)};
  }
  change_under_way("life.rereg-mr.moving", IBV_WR_RDMA_WRITE, [](ibv_mr* mr) {
    return CALL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE));
  });
}

class Limits : public PairTest {
 protected:
  // The near end receives from an SRQ of so many requests and elements, cut to what is claimed.
  void make(uint32_t requests, uint32_t elements, uint32_t entries) {
    if (device().attributes().max_srq == 0) throw NotClaimed{"max_srq is 0"};
    PairSpec spec;
    spec.far = spec.both;
    spec.both.cq_entries = static_cast<int32_t>(entries);
    pair(spec);
    ibv_srq_init_attr attr = {nullptr, {requests, elements, 0}};
    End& end = pair().native().end;
    srq_ = Srq(CALL(ibv_create_srq(end.pd, &attr)));
    if (!srq_) throw NotTested{"an SRQ as large as claimed is out of reach: " + errno_text(errno)};
    QpSpec receiver;
    receiver.srq = srq_;
    qp_ = make_qp(end.pd, end.cq, receiver);
    sender_.emplace(topology().far(), wire::MakeEnd{});
    conformance::connect(device(), qp_, *sender_);
  }
  int post(std::vector<ibv_sge>& elements, uint64_t id) {
    ibv_recv_wr wr = {id, nullptr, elements.data(), static_cast<int>(elements.size())}, *bad = nullptr;
    return ibv_post_srq_recv(srq_, &wr, &bad);
  }
  Srq srq_;
  Qp qp_;
  std::optional<Endpoint> sender_;
};

namespace limits {
using Fixture = Limits;

CONFORMANCE_TEST_AS(Traits().alone().limit(30), life, DeepestSharedQueue, "life.limits.srq-depth") {
  const auto depth = std::min(static_cast<uint32_t>(device().attributes().max_srq_wr), 65536u);
  make(depth, 1, 64);
  const End& end = pair().native().end;
  std::vector<ibv_sge> element = {end.sge(0, 64)};
  for (uint32_t i = 0; i < depth; ++i) ASSERT_EQ(post(element, i), 0) << "request " << i << " of " << depth;
  std::set<uint64_t> ids;
  for (int i = 0; i < 32; ++i) {
    ASSERT_EQ(sender_->post(send_request({{0, 8}})), 0);
    ASSERT_EQ(sender_->completion().status, IBV_WC_SUCCESS);
    const ibv_wc received = completion(end.cq);
    EXPECT_EQ(received.status, IBV_WC_SUCCESS) << wc_text(received);
    EXPECT_LT(received.wr_id, depth);
    EXPECT_TRUE(ids.insert(received.wr_id).second) << "wr_id " << received.wr_id << " twice";
    if (i + 1 >= static_cast<int>(depth)) break;
  }
}

CONFORMANCE_TEST(life, AllElementsOfASharedQueue, "life.limits.srq-sge") {
  const auto most = static_cast<uint32_t>(device().attributes().max_srq_sge);
  make(4, most, 16);
  End& end = pair().native().end;
  std::vector<ibv_sge> elements;
  for (uint32_t i = 0; i < most; ++i) elements.push_back(end.sge(4096 + (i * 16) % 8192, 1 + i % 2));
  uint32_t bytes = 0;
  for (const ibv_sge& element : elements) bytes += element.length;
  ASSERT_EQ(post(elements, 1), 0) << most << " elements";
  sender_->fill_pattern(0, bytes, 5);
  ASSERT_EQ(sender_->post(send_request({{0, bytes}})), 0);
  EXPECT_EQ(sender_->completion().status, IBV_WC_SUCCESS);
  const ibv_wc received = completion(end.cq);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS) << wc_text(received);
  EXPECT_EQ(received.byte_len, bytes);
  uint64_t at = 0;
  for (const ibv_sge& element : elements) {
    if (most <= 512) {  // otherwise they overlap
      EXPECT_TRUE(near().has_pattern(element.addr - end.buffer.address(), element.length, 5, at));
    }
    at += element.length;
  }
}

// As many as the device gives, and no more than that.
template <typename Object, typename Make>
std::string count(const char* what, int claimed, Make make) {
  if (claimed == 0) return std::string(what) + ": no number claimed";  // max_ah of some
  std::vector<Object> all;
  const int most = std::min(claimed, 256);
  while (static_cast<int>(all.size()) < most) {
    Object one = make();
    if (!one) break;
    all.push_back(std::move(one));
  }
  return std::string(what) + ": " + std::to_string(all.size()) + " of " + std::to_string(most);
}

CONFORMANCE_TEST_AS(Traits().alone().limit(30), life, ManyObjects, "life.limits.objects") {
  const ibv_device_attr& claims = device().attributes();
  std::string text = count<Pd>("PDs", claims.max_pd, [&] { return Pd(ibv_alloc_pd(context())); });
  const Pd pd = make_pd(device());
  const Buffer buffer(4096);
  ibv_ah_attr address = device().own_address();
  text += ", " + count<Mr>("MRs", claims.max_mr, [&] { return Mr(ibv_reg_mr(pd, buffer.data(), 4096, 0)); });
  text += ", " + count<Cq>("CQs", claims.max_cq,
                           [&] { return Cq(ibv_create_cq(context(), 4, nullptr, nullptr, 0)); });
  // Address handles are for datagrams, which iWARP and some others have not, whatever max_ah says.
  const bool is_refused =
      Ah(CALL(ibv_create_ah(pd, &address))) == nullptr && is_refusal_of_qp(errno);  // as BusyWithAnAh
  const bool is_iwarp = context()->device->transport_type == IBV_TRANSPORT_IWARP;
  text += is_iwarp || is_refused
              ? ", AHs: it has none"
              : ", " + count<Ah>("AHs", claims.max_ah, [&] { return Ah(ibv_create_ah(pd, &address)); });
  EXPECT_EQ(text.find(": 0 of"), std::string::npos) << text;
  observe("life.limits.objects", text);
}

}  // namespace limits

}  // namespace
}  // namespace conformance::life_moving_chapter
