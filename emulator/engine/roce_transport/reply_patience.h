// SPDX-License-Identifier: BSD-2-Clause
//
// Should an acknowledgement that the service thread could send wait for the program's reply? Pure: times and
// outcomes in, decisions out.
//
// Two programs that write to each other and read their memory until the other one has written poll for their
// own completions in between. If the acknowledgement comes with the reply, each of them receives both by the
// poll that it makes anyway, and its service thread sleeps. If it comes first, the program has stopped
// polling when the reply comes, and has to wait for its service thread. A process whose acknowledgements
// waited in vain is asked ever less often, so that a peer that writes to a program that does not reply loses
// little.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena {

class ReplyPatience {
 public:
  static constexpr int64_t kLength = 50'000;  // ns
  // So many opportunities are left out after one in vain, twice as many after the next one, and so on.
  static constexpr uint32_t kFewest = 16, kMost = 1024;

  // Only acknowledgements are due, and the service thread has received what they are for. True: they may wait
  // until until(); then call end().
  bool begin(int64_t now) {
    if (left_out_ < leave_out_) {
      ++left_out_;
      return false;
    }
    left_out_ = 0;
    until_ = now + kLength;
    return true;
  }
  // `in_vain`: no reply has taken them along.
  void end(bool in_vain) {
    until_ = 0;
    leave_out_ = in_vain ? std::clamp(2 * leave_out_, kFewest, kMost) : 0;
  }

  bool is_waiting() const { return until_ != 0; }
  int64_t until() const { return until_; }  // ns; when is_waiting()

 private:
  int64_t until_ = 0;
  uint32_t leave_out_ = 0, left_out_ = 0;
};

}  // namespace verbena
