// SPDX-License-Identifier: BSD-2-Clause
//
// What a node with RoCE v2 drops before a queue pair sees it, and answers that it does not give. Counted in
// the node directory from the creation of the node on; `verbena status` shows it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace verbena {

enum class PacketDrop : uint32_t {
  kForeign,      // from an address that is not in --peers
  kDamaged,      // the ICRC does not fit: damaged, or its addresses were translated on the way
  kPkey,         // of another partition than the queue pair
  kUnknown,      // RC, UC, XRC: for a queue pair that the node has not, or whose peer is another one
  kAnswer,       // an answer that was not given, since its source had enough of them (packets/answer_limit.h)
  kNotPassedOn,  // for another process of the node, which does not take it: it is stopped, slow, or ends
  kNotSent,      // a datagram, or answers of one queue pair, as the socket's send buffer was full
  kDrops
};
inline constexpr size_t kPacketDrops = static_cast<size_t>(PacketDrop::kDrops);
inline constexpr std::array<const char*, kPacketDrops> kPacketDropNames = {
    "from_strangers",   "wrong_icrc",    "wrong_pkey", "unknown_qp",
    "answers_withheld", "not_passed_on", "not_sent"};

}  // namespace verbena
