// SPDX-License-Identifier: BSD-2-Clause
//
// How `verbena check` and the checker in the program's process speak to each other: environment variables one
// way, findings the other.
//
// A finding is one line of JSON, appended to the file of kFileVariable by a single write(2):
//   {"rule": "mr-range", "pid": 7, "program": "/usr/bin/x", "what": "...",
//    "calls": [{"what": "posted", "stack": [{"module": "/usr/bin/x", "offset": 4711, "symbol": "main"}]}]}
// - `what`: objects and values. The rest of the text is in the table of rules (rules.h).
// - `offset`: of the return address, from the begin of the module as it is linked (an address for
// addr2line(1)).
// - `symbol`: what dladdr(3) knows; "" if it knows none.
// - "leak": N instead of a finding of which the process may still think better: the object with the number N
// exists
//   at exit. {"retract": N, "pid": 7}: it was destroyed after all, by a destructor of another library.
// {"device": "verbena0", "pid": 7}: the process has opened a device.
#pragma once

namespace verbena::findings {

inline constexpr const char* kFileVariable = "VERBENA_CHECK";  // absolute path; unset: nothing is checked
inline constexpr const char* kEnabledVariable = "VERBENA_CHECK_ENABLE";  // ids of rules, separated by commas
inline constexpr const char* kDisabledVariable = "VERBENA_CHECK_DISABLE";
inline constexpr const char* kLikeVariable = "VERBENA_CHECK_LIKE";  // a family of adapters: families.h

}  // namespace verbena::findings
