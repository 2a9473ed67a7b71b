// SPDX-License-Identifier: BSD-2-Clause
#include "tool/top_screen.h"

#define NCURSES_NOMACROS
#include <curses.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace verbena::tool {
namespace {

TopKey key_of(int code) {
  switch (code) {
    case KEY_UP:
    case 'k':
      return TopKey::kUp;
    case KEY_DOWN:
    case 'j':
      return TopKey::kDown;
    case KEY_PPAGE:
      return TopKey::kPageUp;
    case KEY_NPAGE:
      return TopKey::kPageDown;
    case '\n':
    case '\r':
    case KEY_ENTER:
      return TopKey::kEnter;
    case 27:  // Esc
    case KEY_BACKSPACE:
    case KEY_LEFT:
      return TopKey::kBack;
    case 's':
      return TopKey::kSort;
    case 'r':
      return TopKey::kReverse;
    case ' ':
    case 'p':
      return TopKey::kPause;
    case '+':
      return TopKey::kFaster;
    case '-':
      return TopKey::kSlower;
    case 'q':
    case 'Q':
    case 3:  // Ctrl-C, in raw mode
      return TopKey::kQuit;
    default:
      return TopKey::kOther;
  }
}

attr_t attributes_of(TopLine::Style style) {
  switch (style) {
    case TopLine::Style::kHead:
      return A_REVERSE;
    case TopLine::Style::kSelected:
      return A_BOLD | A_UNDERLINE;
    case TopLine::Style::kNote:
      return A_BOLD;
    case TopLine::Style::kPlain:
      return A_NORMAL;
  }
  return A_NORMAL;
}

}  // namespace

// newterm(3) reports a terminal that it does not know; initscr(3) would end the process.
TopScreen::TopScreen() {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) return;
  SCREEN* const screen = newterm(nullptr, stdout, stdin);
  if (screen == nullptr) return;
  screen_ = screen;
  raw();
  noecho();
  nonl();
  keypad(stdscr, TRUE);
  set_escdelay(25);
  curs_set(0);
}

TopScreen::~TopScreen() {
  if (screen_ == nullptr) return;
  endwin();
  delscreen(static_cast<SCREEN*>(screen_));
}

size_t TopScreen::rows() const { return static_cast<size_t>(std::max(getmaxy(stdscr), 0)); }

void TopScreen::show(const std::vector<TopLine>& lines) {
  const int width = getmaxx(stdscr), height = getmaxy(stdscr);
  werase(stdscr);
  for (int y = 0; y < height && y < static_cast<int>(lines.size()); ++y) {
    const TopLine& line = lines[static_cast<size_t>(y)];
    std::string text = line.text.substr(0, static_cast<size_t>(std::max(width - 1, 0)));
    if (line.style == TopLine::Style::kHead) text.resize(static_cast<size_t>(std::max(width - 1, 0)), ' ');
    wattrset(stdscr, static_cast<int>(attributes_of(line.style)));
    mvwaddnstr(stdscr, y, 0, text.c_str(), static_cast<int>(text.size()));
  }
  wattrset(stdscr, A_NORMAL);
  wrefresh(stdscr);
}

bool TopScreen::wait(double seconds, TopKey* key) {
  pollfd terminal{STDIN_FILENO, POLLIN, 0};
  const int limit = static_cast<int>(std::ceil(seconds * 1000));
  const int ready = poll(&terminal, 1, std::max(limit, 0));
  wtimeout(stdscr, 0);
  const int code = wgetch(stdscr);  // a changed size comes without any input: KEY_RESIZE
  if (code != ERR) {
    *key = key_of(code);
    return true;
  }
  if (ready <= 0) return false;
  *key = TopKey::kQuit;  // readable, and nothing to read
  return true;
}

}  // namespace verbena::tool
