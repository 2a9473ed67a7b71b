// SPDX-License-Identifier: BSD-2-Clause
//
// VERBENA_LOG=debug: each request, response and completion as a line of the log.
#pragma once

namespace verbena {

// Attaches the observer that writes the lines, if the log wants them and no other observer is attached.
// Requests then take the slow path.
void begin_debug_log();

}  // namespace verbena
