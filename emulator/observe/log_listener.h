// SPDX-License-Identifier: BSD-2-Clause
#pragma once

namespace verbena {

// Each later line of level warn or above goes to `listener` as well, without the line feed and what precedes the text,
// in the thread that wrote it, with whatever locks it holds. The listener must not log. Lines above the level of
// VERBENA_LOG go to the listener alone. For the checker (provider/check).
using LogListener = void (*)(int level, const char* text);
void set_log_listener(LogListener listener);

}  // namespace verbena
