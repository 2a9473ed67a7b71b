// SPDX-License-Identifier: BSD-2-Clause
#pragma once

namespace verbena::check {

// From now on memory that the program gives back is looked at.
void watch_memory();

}  // namespace verbena::check
