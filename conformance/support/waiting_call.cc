// SPDX-License-Identifier: BSD-2-Clause
#include "support/waiting_call.h"

#include <chrono>
#include <utility>

#include "suite/test.h"

namespace conformance {

WaitingCall::WaitingCall(std::function<int()> call)
    : thread_([this, call = std::move(call)] {
        {
          const std::lock_guard lock(mutex_);
          begun_ = true;
        }
        changed_.notify_all();
        const int result = call();
        {
          const std::lock_guard lock(mutex_);
          returned_ = true;
          result_ = result;
        }
        changed_.notify_all();
      }) {}

WaitingCall::~WaitingCall() {
  if (thread_.joinable()) thread_.join();
}

testing::AssertionResult WaitingCall::waits() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return begun_; });
  if (changed_.wait_for(lock, scaled(std::chrono::milliseconds(50)), [this] { return returned_; }))
    return testing::AssertionFailure() << "it returned " << result_;
  return testing::AssertionSuccess();
}

int WaitingCall::result() {
  if (thread_.joinable()) thread_.join();
  return result_;
}

}  // namespace conformance
