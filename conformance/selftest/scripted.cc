// SPDX-License-Identifier: BSD-2-Clause
//
// Tests of every verdict, with the suite's own main(), for program.py. Most do not use the device; the
// clauses are borrowed. A program of its own, so that no run of the suite contains them.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "suite/test.h"
#include "support/fixture.h"
#include "support/operator_event.h"

namespace {

bool is_set_to(const char* variable, const char* value) {
  const char* const seen = std::getenv(variable);
  return seen != nullptr && std::strcmp(seen, value) == 0;
}

// A file that a test makes, and that later processes look for.
std::filesystem::path state() {
  const char* const path = std::getenv("CONFORMANCE_SCRIPTED_STATE");
  return path == nullptr ? "" : path;
}

}  // namespace

// Before that of libibverbs: a driver that crashes or hangs, as CONFORMANCE_SCRIPTED_DRIVER says. From the
// moment at which there is a state(), or always.
extern "C" ibv_device** ibv_get_device_list(int* count) {
  if (state().empty() || std::filesystem::exists(state())) {
    if (is_set_to("CONFORMANCE_SCRIPTED_DRIVER", "crashes")) raise(SIGSEGV);
    while (is_set_to("CONFORMANCE_SCRIPTED_DRIVER", "hangs")) pause();
  }
  using Function = ibv_device** (*)(int*);
  static const auto real =
      reinterpret_cast<Function>(dlvsym(RTLD_NEXT, "ibv_get_device_list", "IBVERBS_1.1"));
  return real(count);
}

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

// The device does not claim the second: the third is not come to.
CONFORMANCE_TEST(pd, IsNotClaimedInOneOfThree, "ibv_alloc_td.pointer", "ibv_alloc_parent_domain.td",
                 "ibv_dealloc_td.zero") {
  ABOUT("ibv_alloc_td.pointer") EXPECT_EQ(1, 1);
  const About about("ibv_alloc_parent_domain.td");
  throw NotClaimed{"no domains"};
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
  if (state().empty()) throw NotTested{"no CONFORMANCE_SCRIPTED_STATE"};
  std::ofstream(state(), std::ios::app) << '.';
  const auto size = std::filesystem::file_size(state());
  EXPECT_EQ(size % 2, 0u) << "expected: an even number of runs; seen: " << size;
}

// A value of the field in a message: its name.
CONFORMANCE_TEST_AS(Traits().disruptive(), order, NamesValues, "order.error-completes") {
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS);
}

CONFORMANCE_TEST_AS(Traits().disruptive(), order, BreaksTheDriver, "order.receives") {
  std::ofstream(state()).put('.');
  ADD_FAILURE() << "expected: nothing of this kind; seen: the driver is broken";
}

// All that is left of the file system of state().
CONFORMANCE_TEST_AS(Traits().disruptive(), order, FillsTheDisk, "order.receives") {
  std::ofstream file(state());
  const std::string page(4096, '.');
  for (int pages = 0; pages < 1024 && file.write(page.data(), page.size()).flush();) ++pages;
  EXPECT_FALSE(file) << "expected: a small disk; seen: 4 MiB of room";
}

// As if a driver kept the process in the kernel: a tracer does not let it be collected before the suite has
// ended.
CONFORMANCE_TEST_AS(Traits().disruptive().limit(5), order, CannotBeKilled, "order.xrc") {
  const pid_t test = getpid(), suite = getppid();
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  if (fork() == 0) {
    setsid();
    const int ended = static_cast<int>(syscall(SYS_pidfd_open, suite, 0));
    const char traces = ended >= 0 && ptrace(PTRACE_SEIZE, test, nullptr, nullptr) == 0 ? 'y' : 'n';
    if (write(ends[1], &traces, 1) != 1 || traces == 'n') _exit(1);
    pollfd waiting{ended, POLLIN, 0};
    poll(&waiting, 1, 60'000);
    _exit(0);
  }
  char traces = 'n';
  ASSERT_EQ(read(ends[0], &traces, 1), 1);
  if (traces == 'n') throw NotTested{"no process may be traced here"};
  for (;;) pause();
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
