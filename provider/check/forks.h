// SPDX-License-Identifier: BSD-2-Clause
//
// fork(2) with registered memory: what the device and the child make of it.
#pragma once

namespace verbena::check {

// Enters the handlers of pthread_atfork(3), which also keep the model's lock for the child.
void watch_forks();

// The child of a fork ends: which registered memory of its parent has it changed? Without the lock.
void report_child_changes();

}  // namespace verbena::check
