// SPDX-License-Identifier: BSD-2-Clause
//
// Probes for perf, bpftrace and SystemTap (USDT; systemtap-sdt-dev's <sys/sdt.h>). Each is a nop behind a
// branch: a tool that attaches to it raises its semaphore, and before that its arguments are not even looked
// at. They are nothing at all where that header was missing when Verbena was built.
//
//   verbena:post_send   QP number, wr_id, enum ibv_wr_opcode, number of SGEs
//   verbena:post_recv   QP number (of an SRQ its number), wr_id, number of SGEs
//   verbena:completion  QP number, wr_id, enum ibv_wc_status, enum ibv_wc_opcode, bytes
#pragma once

#if __has_include(<sys/sdt.h>)
#define VERBENA_PROBES 1
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

// probes.cc. The kernel counts in them who looks (its uprobes.c, update_ref_ctr()).
extern "C" {
[[gnu::visibility("hidden")]] extern volatile unsigned short verbena_post_send_semaphore;
[[gnu::visibility("hidden")]] extern volatile unsigned short verbena_post_recv_semaphore;
[[gnu::visibility("hidden")]] extern volatile unsigned short verbena_completion_semaphore;
}

// Does a tool look at the probe? One load.
#define VERBENA_PROBE_IS_WATCHED(probe) (__builtin_expect(verbena_##probe##_semaphore != 0, 0))
#define VERBENA_PROBE_POST_SEND(qpn, wr_id, opcode, sges)                                                 \
  do {                                                                                                    \
    if (VERBENA_PROBE_IS_WATCHED(post_send)) DTRACE_PROBE4(verbena, post_send, qpn, wr_id, opcode, sges); \
  } while (0)
#define VERBENA_PROBE_POST_RECV(qpn, wr_id, sges)                                                 \
  do {                                                                                            \
    if (VERBENA_PROBE_IS_WATCHED(post_recv)) DTRACE_PROBE3(verbena, post_recv, qpn, wr_id, sges); \
  } while (0)
// Where VERBENA_PROBE_IS_WATCHED(completion).
#define VERBENA_PROBE_COMPLETION(qpn, wr_id, status, opcode, bytes) \
  DTRACE_PROBE5(verbena, completion, qpn, wr_id, status, opcode, bytes)
#else
#define VERBENA_PROBES 0
#define VERBENA_PROBE_IS_WATCHED(probe) false
#define VERBENA_PROBE_POST_SEND(qpn, wr_id, opcode, sges) static_cast<void>(0)
#define VERBENA_PROBE_POST_RECV(qpn, wr_id, sges) static_cast<void>(0)
#define VERBENA_PROBE_COMPLETION(qpn, wr_id, status, opcode, bytes) static_cast<void>(0)
#endif
