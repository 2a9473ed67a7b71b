// SPDX-License-Identifier: BSD-2-Clause
//
// A poll that gives its processor away looks again before it says that the CQ is empty: what came meanwhile
// is found by that call, not by the next one. The program may do something else in between, such as destroy
// the queue pair.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <utility>

#include "unit/engine/scene.h"

namespace {
using Action = std::function<void()>;
// A pointer, since it needs no constructor: one of another thread's first yield would allocate.
constinit thread_local const Action* while_others_run = nullptr;
}  // namespace

// The emulator's yields come here; in other tests they are the kernel's. So do those of LeakSanitizer, which
// has locked the allocator.
extern "C" int sched_yield() noexcept {
  if (const Action* action = std::exchange(while_others_run, nullptr)) (*action)();
  return static_cast<int>(syscall(SYS_sched_yield));
}

namespace verbena {
namespace {

TEST(PollAfterYield, FindsWhatCameMeanwhile) {
  Scene scene;
  Region memory{scene.pd.get(), 64};
  const Owned<Cq> send_cq = make_cq(scene.context.get()), receive_cq = make_cq(scene.context.get());
  const Owned<Qp> from = make_qp(scene.pd.get(), send_cq.get(), send_cq.get(), {}, 1);
  const Owned<Qp> to = make_qp(scene.pd.get(), send_cq.get(), receive_cq.get(), {}, 2);
  connect(from.get(), qp_number(to.get()), scene.gid());
  connect(to.get(), qp_number(from.get()), scene.gid());
  ASSERT_EQ(receive(to.get(), {memory.sge(8, 8)}, 7), 0);

  bool yielded = false;
  const Action send_one = [&] {
    yielded = true;
    EXPECT_EQ(send(from.get(), {memory.sge(0, 8)}), 0);
  };
  while_others_run = &send_one;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  ibv_wc wc{};
  int found = 0;
  while (!yielded && std::chrono::steady_clock::now() < deadline) found = poll_cq(receive_cq.get(), 1, &wc);
  while_others_run = nullptr;
  ASSERT_TRUE(yielded) << "20 s of polls in vain, and the processor was never given away";
  EXPECT_EQ(found, 1) << "the poll during which the message came said that the CQ is empty";
  EXPECT_EQ(wc.wr_id, 7u);
}

}  // namespace
}  // namespace verbena
