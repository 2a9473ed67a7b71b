// SPDX-License-Identifier: BSD-2-Clause
//
// Probes for perf, bpftrace and SystemTap (USDT; systemtap-sdt-dev's <sys/sdt.h>). Each is a nop until a tool attaches to
// it, and nothing at all where that header was missing when Verbena was built.
//
//   verbena:post_send   QP number, wr_id, enum ibv_wr_opcode, number of SGEs
//   verbena:post_recv   QP number (of an SRQ its number), wr_id, number of SGEs
//   verbena:completion  QP number, wr_id, enum ibv_wc_status, enum ibv_wc_opcode, bytes
#pragma once

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define VERBENA_PROBE_POST_SEND(qpn, wr_id, opcode, sges) DTRACE_PROBE4(verbena, post_send, qpn, wr_id, opcode, sges)
#define VERBENA_PROBE_POST_RECV(qpn, wr_id, sges) DTRACE_PROBE3(verbena, post_recv, qpn, wr_id, sges)
#define VERBENA_PROBE_COMPLETION(qpn, wr_id, status, opcode, bytes) \
  DTRACE_PROBE5(verbena, completion, qpn, wr_id, status, opcode, bytes)
#else
#define VERBENA_PROBE_POST_SEND(qpn, wr_id, opcode, sges) static_cast<void>(0)
#define VERBENA_PROBE_POST_RECV(qpn, wr_id, sges) static_cast<void>(0)
#define VERBENA_PROBE_COMPLETION(qpn, wr_id, status, opcode, bytes) static_cast<void>(0)
#endif
