// SPDX-License-Identifier: BSD-2-Clause
#include "engine/qp_state/state_change.h"

#include "adapter/clock.h"
#include "engine/objects/qp.h"
#include "engine/rules/qp_state_table.h"
#include "observe/log.h"
#include "observe/observer.h"

namespace verbena {

void change_state(Qp& qp, ibv_qp_state to, Generation generation) {
  std::atomic<uint64_t>& word = qp.shared->responder_state;
  const uint64_t current = ResponderState::unpack(word.load(std::memory_order_relaxed)).generation;
  const uint64_t next = generation == Generation::kNext ? current + 1 : current;
  word.store(ResponderState{next, static_cast<uint8_t>(to)}.pack(), std::memory_order_seq_cst);
  const ibv_qp_state from = qp.state.exchange(to, std::memory_order_acq_rel);
  if (from == to) return;
  qp.shared->state_since.store(wall_clock_ns(), std::memory_order_relaxed);
  VERBENA_INFO("QP 0x%06x: %s to %s", qp.shared->qpn, name_of_state(from), name_of_state(to));
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]]
    seen->on_state({qp.shared->qpn, static_cast<uint8_t>(from), static_cast<uint8_t>(to)});
}

}  // namespace verbena
