// SPDX-License-Identifier: BSD-2-Clause
//
// A node folder with the files that these tests look at, in the shape of emulator/fabric/device_tree.h.
#pragma once

#include <string>

namespace verbena::testing {

inline constexpr char kNodeGuid[] = "0001:0203:0405:0607";

// Makes a folder under $TMPDIR with the tree of one device, verbena0, and its uverbs0. Ends the program when
// it cannot be made.
std::string make_node();
void remove_folder(const std::string& path);

}  // namespace verbena::testing
