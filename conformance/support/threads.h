// SPDX-License-Identifier: BSD-2-Clause
//
// Several threads of a test. An exception of one is thrown again when all have ended.
#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace conformance {

inline void run_in_threads(const std::vector<std::function<void()>>& bodies) {
  std::vector<std::exception_ptr> thrown(bodies.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < bodies.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        bodies[i]();
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& each : thrown)
    if (each) std::rethrow_exception(each);
}

inline void run_in_threads(size_t count, const std::function<void(size_t)>& body) {
  std::vector<std::function<void()>> bodies;
  for (size_t i = 0; i < count; ++i) bodies.push_back([&body, i] { body(i); });
  run_in_threads(bodies);
}

}  // namespace conformance
