// SPDX-License-Identifier: BSD-2-Clause
//
// What the log says of a call that waits for a stopped process.
#include <chrono>
#include <future>
#include <optional>
#include <string>

#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/process.h"
#include "fabric/hazard_guard.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

TEST(TeardownLog, NamesCallObjectAndStoppedProcess) {
  const TemporaryNode node;
  int to_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  Child child([&](const Child& self) {
    const Owned<Context> context = open_device();
    self.tell('r');
    uint32_t slot = 0;
    if (read(to_child[0], &slot, sizeof slot) != sizeof slot) return 1;
    std::optional<HazardGuard> guard(std::in_place, context->process->hazards(), slot);  // within a request
    self.tell('g');
    self.hear();
    guard.reset();
    return 0;
  });
  ASSERT_EQ(child.answer(), 'r');
  const Owned<Context> context = open_device();
  Owned<Cq> cq = make_cq(context.get());
  const uint32_t slot = context->process->membership().slot(), number = cq->index;
  ASSERT_EQ(write(to_child[1], &slot, sizeof slot), static_cast<ssize_t>(sizeof slot));
  ASSERT_EQ(child.answer(), 'g');
  child.stop();
  testing::internal::CaptureStderr();
  auto destroyed = std::async(std::launch::async, [&cq] { cq.reset(); });
  EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(1500)), std::future_status::timeout);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("error: ibv_destroy_cq: CQ " + std::to_string(number) + ": waits for process " +
                      std::to_string(child.pid()) + ", which is stopped"),
            std::string::npos)
      << said;
  child.command('o');
  child.go_on();
  ASSERT_EQ(destroyed.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(child.finish(), 0);
  for (const int end : to_child) close(end);
}

}  // namespace
}  // namespace verbena
