// SPDX-License-Identifier: BSD-2-Clause
//
// The terminal of `verbena top`, by ncurses. One at a time. While it exists, stdout is the screen.
#pragma once

#include <cstddef>
#include <vector>

#include "tool/top_view.h"

namespace verbena::tool {

class TopScreen {
 public:
  TopScreen();  // is_open() tells whether the terminal can be used
  ~TopScreen();
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  bool is_open() const { return screen_ != nullptr; }
  size_t rows() const;
  void show(const std::vector<TopLine>& lines);  // cut to the width of the screen

  // Waits for a key, up to `seconds`. false: there was none. A changed size of the terminal, and what is no
  // key of ours, is TopKey::kOther. The end of the input is TopKey::kQuit.
  bool wait(double seconds, TopKey* key);

 private:
  void* screen_ = nullptr;  // SCREEN of <curses.h>, whose macros stay out of this header
};

}  // namespace verbena::tool
