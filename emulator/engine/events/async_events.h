// SPDX-License-Identifier: BSD-2-Clause
//
// Asynchronous events (ibv_get_async_event(3)): records in the FIFO of a context. Any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena {

struct Context;
struct Cq;
struct Qp;
struct Srq;

void raise_qp_event(Qp& qp, ibv_event_type type);
void raise_cq_event(Cq& cq, ibv_event_type type);
void raise_srq_event(Srq& srq, ibv_event_type type);
void raise_port_event(Context& context, uint32_t port, ibv_event_type type);

// Removes the unread events of a destroyed object from the descriptor. Returns how many of the `raised`
// events the program has read.
uint32_t take_back_events(Context& context, uint64_t user_handle, uint32_t raised);

// The word SharedQp::events_told: the number of events so far (16 bits), and the types of the last six (a
// byte each), the newest lowest.
struct ToldEvents {
  static constexpr int kKept = 6;
  static constexpr uint64_t count_of(uint64_t word) { return word >> 48; }
  static constexpr uint64_t with(uint64_t word, uint8_t type) {
    return (count_of(word) + 1) << 48 | (word << 8 & 0xffff'ffff'ff00) | type;
  }
  // The type of the event `ago` events before the newest.
  static constexpr uint8_t type(uint64_t word, int ago) { return static_cast<uint8_t>(word >> (8 * ago)); }
};

}  // namespace verbena
