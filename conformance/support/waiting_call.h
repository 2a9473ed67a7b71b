// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace conformance {

// A blocking call: another thread makes it, this one watches.
class WaitingCall {
 public:
  explicit WaitingCall(std::function<int()> call);
  ~WaitingCall();  // waits for it to return
  WaitingCall(const WaitingCall&) = delete;
  WaitingCall& operator=(const WaitingCall&) = delete;

  // Has begun, and does not return for a short while (times --time-scale). No proof, but bounded.
  testing::AssertionResult waits();
  // Waits until the call returns; returns its result.
  int result();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  bool returned_ = false;
  int result_ = 0;
  std::thread thread_;
};

}  // namespace conformance
