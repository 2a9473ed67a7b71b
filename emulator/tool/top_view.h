// SPDX-License-Identifier: BSD-2-Clause
//
// What `verbena top` shows: the lines of its screen, and what its keys do. No terminal is touched here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "survey/snapshot.h"
#include "tool/activity.h"

namespace verbena::tool {

enum class TopKey {
  kOther,
  kUp,
  kDown,
  kPageUp,
  kPageDown,
  kEnter,
  kBack,
  kSort,
  kReverse,
  kPause,
  kFaster,
  kSlower,
  kQuit
};

// A queue pair, from one look to the next.
struct QpName {
  std::string node;
  uint32_t slot = 0;
  uint32_t generation = 0;
  uint32_t qpn = 0;
  bool operator==(const QpName&) const = default;
};

struct TopState {
  SortBy order = SortBy::kBytes;
  bool reversed = false;
  bool paused = false;
  bool quits = false;
  bool looks_into_qp = false;  // the selected one, instead of the lists
  QpName selected;             // qpn 0: none; then the first one of the list
  double interval = 1;         // seconds, 0.1 to 60
};

struct TopLine {
  enum class Style : uint8_t { kPlain, kHead, kSelected, kNote };
  std::string text;
  Style style = Style::kPlain;
};

// The queue pairs in the order in which they are shown.
std::vector<QpName> shown_qps(const std::vector<NodeSnapshot>& nodes, const Activity& activity);

// `rows`: the height of the screen, for the page keys.
void press(TopKey key, const std::vector<QpName>& shown, size_t rows, TopState* state);

// At most `rows` lines. The selected queue pair is among them. Lines are not cut to a width.
std::vector<TopLine> top_lines(const std::vector<NodeSnapshot>& nodes, const Activity& activity,
                               const TopState& state, size_t rows);

// The lists as plain text, all of them.
std::string top_as_text(const std::vector<NodeSnapshot>& nodes, const Activity& activity);

// One line: {"time", "seconds", "nodes": [{"path", "problem"?}], "processes": [{"node", "pid", "program",
// "slot", "problem"?, "qps", "requests_out_per_s", "bytes_out_per_s", "requests_in_per_s", "bytes_in_per_s",
// "rnr_naks_per_s", "retries_per_s", "sends_outstanding", "receives_posted", "cq_fill", "cm_ids"}], "qps":
// [{"node", "pid", "qpn", "device", "type", "state", "peer", ... as above}]}
std::string top_as_json(const std::vector<NodeSnapshot>& nodes, const Activity& activity);

}  // namespace verbena::tool
