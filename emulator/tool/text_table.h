// SPDX-License-Identifier: BSD-2-Clause
//
// A table as plain text.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace verbena::tool {

// Columns are as wide as their widest cell, with two spaces between them. The first one is indented.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { row(std::move(head)); }
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.size() == 1; }

  std::string text() const {
    std::vector<size_t> widths(rows_[0].size(), 0);
    for (const auto& cells : rows_)
      for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
    std::string text;
    for (const auto& cells : rows_) {
      std::string line = "   ";
      for (size_t i = 0; i < cells.size(); ++i) line += fmt::format(" {:<{}} ", cells[i], widths[i]);
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace verbena::tool
