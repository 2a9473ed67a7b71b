// SPDX-License-Identifier: BSD-2-Clause
//
// A thread that has been cancelled, and a program that gets signals all the time: every verb is carried out
// as a whole, and the device still works.
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include <functional>

#include "pair.h"

namespace verbena::test {
namespace {

class CancellationTest : public PairTest {
 protected:
  // Carries out `verb` in a thread that has been cancelled and would end at the next cancellation point.
  // False: it did end there.
  static bool returns(const std::function<void()>& verb) {
    struct Call {
      const std::function<void()>& verb;
      bool returned = false;
    } call{verb};
    pthread_t thread;
    EXPECT_EQ(pthread_create(
                  &thread, nullptr,
                  [](void* argument) -> void* {
                    auto& it = *static_cast<Call*>(argument);
                    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
                    pthread_cancel(pthread_self());
                    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
                    it.verb();
                    int state = PTHREAD_CANCEL_DISABLE;
                    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
                    EXPECT_EQ(state, PTHREAD_CANCEL_ENABLE) << "the verb has left another state behind";
                    it.returned = true;
                    return nullptr;
                  },
                  &call),
              0);
    pthread_join(thread, nullptr);
    return call.returned;
  }
};

struct CancelledVerb {
  const char* name;
  std::function<bool()> call;  // has it succeeded?
};

TEST_F(CancellationTest, ActsInNoVerb) {
  Pd pd, other_pd;
  Cq cq, big_cq;
  Qp qp, peer;
  Srq srq;
  Channel channel;
  ibv_mr* mr = nullptr;
  ibv_mw* mw = nullptr;
  ibv_ah* ah = nullptr;
  ibv_wc wc = {};
  ibv_sge sge = local_.sge(0, 8), whole = local_.sge(0, kBufferSize), room = remote_.sge(0, 64);
  ibv_qp_attr init = init_attr(), rts = rts_attr(), rtr = {}, error = {}, queried = {};
  error.qp_state = IBV_QPS_ERR;
  ibv_qp_init_attr made = qp_init(cq_.get(), cq_.get()), queried_init = {};
  ibv_ah_attr address = rtr_attr(0).ah_attr;
  ibv_port_attr port;
  ibv_srq_init_attr srq_init = {nullptr, {.max_wr = 16, .max_sge = 1, .srq_limit = 0}};
  ibv_send_wr small = request(IBV_WR_RDMA_WRITE, &sge), large = request(IBV_WR_RDMA_WRITE, &whole, 1, 2),
              send = request(IBV_WR_SEND, &sge, 1, 3);
  const auto taken = [&](ibv_cq* from) {
    while (ibv_poll_cq(from, 1, &wc) == 0) sched_yield();
    return wc.status == IBV_WC_SUCCESS;
  };
  const CancelledVerb verbs[] = {
      {"query_device", [&] { return ibv_query_device(context_.get(), &device_) == 0; }},
      {"query_port", [&] { return ibv_query_port(context_.get(), kPort, &port) == 0; }},
      {"alloc_pd", [&] { return (pd = Pd(ibv_alloc_pd(context_.get()))) != nullptr; }},
      {"create_comp_channel",
       [&] { return (channel = Channel(ibv_create_comp_channel(context_.get()))) != nullptr; }},
      {"create_cq", [&] { return (cq = make_cq(1000, channel.get())) != nullptr; }},
      {"create_cq, of memory yet to be taken", [&] { return (big_cq = make_cq(500'000)) != nullptr; }},
      {"resize_cq", [&] { return ibv_resize_cq(cq.get(), 100'000) == 0; }},
      {"req_notify_cq", [&] { return ibv_req_notify_cq(cq.get(), 0) == 0; }},
      {"reg_mr",
       [&] { return (mr = ibv_reg_mr(pd_.get(), local_.data(), kBufferSize, kAllAccess)) != nullptr; }},
      {"rereg_mr",
       [&] {
         return ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE) ==
                0;
       }},
      {"dereg_mr", [&] { return ibv_dereg_mr(mr) == 0; }},
      {"alloc_mw", [&] { return (mw = ibv_alloc_mw(pd_.get(), IBV_MW_TYPE_2)) != nullptr; }},
      {"dealloc_mw", [&] { return ibv_dealloc_mw(mw) == 0; }},
      {"create_ah", [&] { return (ah = ibv_create_ah(pd_.get(), &address)) != nullptr; }},
      {"destroy_ah", [&] { return ibv_destroy_ah(ah) == 0; }},
      {"create_srq", [&] { return (srq = Srq(ibv_create_srq(pd_.get(), &srq_init))) != nullptr; }},
      {"destroy_srq", [&] { return ibv_destroy_srq(srq.release()) == 0; }},
      {"create_qp", [&] { return (qp = Qp(ibv_create_qp(pd_.get(), &made))) != nullptr; }},
      {"create_qp, its peer",
       [&] {
         peer = Qp(ibv_create_qp(pd_.get(), &made));
         if (peer != nullptr) rtr = rtr_attr(peer->qp_num);
         return peer != nullptr;
       }},
      {"modify_qp to INIT", [&] { return ibv_modify_qp(qp.get(), &init, kInitMask) == 0; }},
      {"modify_qp to RTR", [&] { return ibv_modify_qp(qp.get(), &rtr, kRtrMask) == 0; }},
      {"modify_qp to RTS", [&] { return ibv_modify_qp(qp.get(), &rts, kRtsMask) == 0; }},
      {"query_qp", [&] { return ibv_query_qp(qp.get(), &queried, IBV_QP_STATE, &queried_init) == 0; }},
      {"modify_qp to ERR", [&] { return ibv_modify_qp(qp.get(), &error, IBV_QP_STATE) == 0; }},
      {"destroy_qp", [&] { return ibv_destroy_qp(qp.release()) == 0; }},
      {"post_recv", [&] { return receive(&room, 1) == 0; }},
      {"post_send of a WRITE", [&] { return post(&small) == 0; }},
      {"poll_cq", [&] { return taken(cq_.get()); }},
      {"post_send of 64 KiB", [&] { return post(&large) == 0; }},
      {"poll_cq after 64 KiB", [&] { return taken(cq_.get()); }},
      {"post_send of a SEND", [&] { return post(&send) == 0; }},
      {"poll_cq for the SEND", [&] { return taken(cq_.get()); }},
      {"poll_cq for what was received", [&] { return taken(responder_cq_.get()); }},
      {"destroy_cq", [&] { return ibv_destroy_cq(cq.release()) == 0; }},
      {"dealloc_pd", [&] { return ibv_dealloc_pd(pd.release()) == 0; }},
  };
  for (const CancelledVerb& verb : verbs) {
    bool succeeded = false;
    ASSERT_TRUE(returns([&] { succeeded = verb.call(); })) << verb.name << ": the thread ended within it";
    EXPECT_TRUE(succeeded) << verb.name;
  }
}

// Signals that interrupt every system call (no SA_RESTART), so often that all of them are hit.
class SignalStorm {
 public:
  SignalStorm() {
    struct sigaction action = {};
    action.sa_handler = [](int) { count = count + 1; };
    EXPECT_EQ(sigaction(SIGALRM, &action, &before_), 0);
    const itimerval often = {{0, 50}, {0, 50}};
    EXPECT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  }
  ~SignalStorm() {
    const itimerval never = {};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }
  SignalStorm(const SignalStorm&) = delete;
  SignalStorm& operator=(const SignalStorm&) = delete;

  static inline volatile sig_atomic_t count = 0;

 private:
  struct sigaction before_ = {};
};

// Opens and closes devices; the fixture's is one, these are further ones.
TEST_F(PairTest, SignalsInterruptNoVerb) {
  const SignalStorm storm;
  for (int life = 0; life < 40 && !HasFailure(); ++life) {
    Context context = open_device();
    ASSERT_NE(context, nullptr) << strerror(errno);
    Pd pd(ibv_alloc_pd(context.get()));
    ASSERT_NE(pd, nullptr) << strerror(errno);
    Channel channel(ibv_create_comp_channel(context.get()));
    ASSERT_NE(channel, nullptr) << strerror(errno);
    Cq cq(ibv_create_cq(context.get(), 1000 + life, nullptr, channel.get(), 0));
    ASSERT_NE(cq, nullptr) << strerror(errno);
    Buffer buffer(pd.get(), size_t{1} << 20);
    ibv_qp_init_attr init = qp_init(cq.get(), cq.get());
    Qp qp(ibv_create_qp(pd.get(), &init));
    ASSERT_NE(qp, nullptr) << strerror(errno);
    connect(qp.get(), qp->qp_num);
    for (int round = 0; round < 5; ++round) {
      memset(buffer.data(), life + round + 1, buffer.size() / 2);
      ibv_sge sge = buffer.sge(0, buffer.size() / 2);
      ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
      wr.wr.rdma = {buffer.address(buffer.size() / 2), buffer.rkey()};
      ibv_send_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_send(qp.get(), &wr, &bad), 0);
      ASSERT_EQ(next_status(cq.get()), IBV_WC_SUCCESS);
      ASSERT_EQ(memcmp(buffer.data(), buffer.data() + buffer.size() / 2, buffer.size() / 2), 0);
    }
  }
  EXPECT_GT(SignalStorm::count, 100);
}

}  // namespace
}  // namespace verbena::test
