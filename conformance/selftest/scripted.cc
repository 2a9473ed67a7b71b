// SPDX-License-Identifier: BSD-2-Clause
//
// Tests of every verdict, with the suite's own main(), for program.py. Most do not use the device; the
// clauses are borrowed. A program of its own, so that no run of the suite contains them.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "suite/test.h"
#include "support/fixture.h"
#include "support/operator_event.h"

namespace conformance {
namespace {

using Fixture = Test;

CONFORMANCE_TEST(pd, Conforms, "ibv_alloc_pd.pointer") { EXPECT_EQ(1, 1); }

// Text that each of the reports has to escape: markup, a control character, half a character.
CONFORMANCE_TEST(pd, Deviates, "ibv_dealloc_pd.zero") {
  CALL(getpid());
  EXPECT_TRUE(false) << "<script src=\"http://nowhere\">&]]></pre> \x01 \xc3\xa4 \xc3|";
}

CONFORMANCE_TEST(pd, DeviatesInOneOfTwo, "ibv_alloc_pd.several", "ibv_alloc_pd.many") {
  ABOUT("ibv_alloc_pd.many") ADD_FAILURE() << "expected: a thousand; seen: one";
}

CONFORMANCE_TEST(pd, EndsInOneOfTwo, "ibv_dealloc_pd.busy-mr", "ibv_dealloc_pd.busy-qp") {
  const About about("ibv_dealloc_pd.busy-mr");
  throw Deviation{"expected: a refusal; seen: none", Where::current()};
}

CONFORMANCE_TEST(mr, Crashes, "ibv_reg_mr.fields") {
  CALL(getppid());
  raise(SIGSEGV);
}

CONFORMANCE_TEST(cq, IsNotClaimed, "ibv_create_cq.max") { throw NotClaimed{"no \"such\" thing"}; }
CONFORMANCE_TEST(cq, IsNotTested, "ibv_create_cq.beyond-max") { throw NotTested{"no such <machine>"}; }

CONFORMANCE_TEST_AS(Traits().slow(), cq, IsSlow, "ibv_create_cq.max") { EXPECT_EQ(1, 1); }
CONFORMANCE_TEST_AS(Traits().disruptive(), cq, IsDisruptive, "ibv_create_cq.max") { EXPECT_EQ(1, 1); }

// Runs until it is killed.
CONFORMANCE_TEST_AS(Traits().disruptive(), order, Waits, "order.completions") {
  CALL(getpid());
  for (;;) pause();
}

// Deviates every second time: the file that CONFORMANCE_SCRIPTED_STATE names grows by a byte with each run.
CONFORMANCE_TEST_AS(Traits().disruptive(), order, IsFlaky, "order.unsignaled") {
  const char* path = getenv("CONFORMANCE_SCRIPTED_STATE");
  if (path == nullptr) throw NotTested{"no CONFORMANCE_SCRIPTED_STATE"};
  std::ofstream(path, std::ios::app) << '.';
  const auto size = std::filesystem::file_size(path);
  EXPECT_EQ(size % 2, 0u) << "expected: an even number of runs; seen: " << size;
}

// A value of the field in a message: its name.
CONFORMANCE_TEST_AS(Traits().disruptive(), order, NamesValues, "order.error-completes") {
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS);
}

namespace device {
using Fixture = DeviceTest;

// What --event-command does.
CONFORMANCE_TEST_AS(Traits().disruptive().limit(60), order, CausesAReset, "order.fence") {
  context();
  cause(OperatorEvent::reset, this->device());
}
CONFORMANCE_TEST_AS(Traits().disruptive(), order, UsesTheDevice, "order.fence-write") { context(); }
CONFORMANCE_TEST_AS(Traits().disruptive(), order, UsesTheDeviceAgain, "order.fence-write") { context(); }

}  // namespace device

}  // namespace
}  // namespace conformance
