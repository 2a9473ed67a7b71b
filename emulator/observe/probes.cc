// SPDX-License-Identifier: BSD-2-Clause
#include "observe/probes.h"

#if VERBENA_PROBES
// Named in the notes of the probes, where the optimiser does not look.
extern "C" {
[[gnu::section(".probes"), gnu::used]] volatile unsigned short verbena_post_send_semaphore = 0;
[[gnu::section(".probes"), gnu::used]] volatile unsigned short verbena_post_recv_semaphore = 0;
[[gnu::section(".probes"), gnu::used]] volatile unsigned short verbena_completion_semaphore = 0;
}
#endif
