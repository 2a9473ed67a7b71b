// SPDX-License-Identifier: BSD-2-Clause
#include "engine/responder/pieces.h"

#include <algorithm>
#include <array>
#include <utility>

#include "adapter/clock.h"
#include "engine/responder/payload_stream.h"
#include "engine/responder/placement.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/send_rules.h"
#include "faults/draw.h"
#include "faults/injection.h"

namespace verbena {
namespace {

constexpr uint32_t kMostPieces = 16;

}  // namespace

uint64_t order_on_purpose(const RequesterContext& requester, const Request& request) {
  faults::Injection* const injection = faults::injection();
  if (injection == nullptr) [[likely]]
    return 0;
  if (requester.origin.node != nullptr) return 0;
  return injection->order_of_bytes(requester.index, number_in(request.opcode), request.done, now_ns());
}

int place_in_pieces(const RequesterContext& requester, const Request& request, const LocalBytes& local,
                    const iovec* remote, size_t remotes, uint32_t size, uint64_t order) {
  constexpr size_t kMost = PeerAdapter::kMaxRanges;
  const uint32_t pieces = std::min(size, kMostPieces);
  std::array<uint32_t, kMostPieces> turn{};
  for (uint32_t i = 0; i < pieces; ++i) turn[i] = i;
  for (uint32_t i = pieces; i > 1; --i) std::swap(turn[i - 1], turn[faults::draw({order, i}) % i]);
  for (uint32_t i = 0; i < pieces; ++i) {
    const auto begin = static_cast<uint32_t>(uint64_t{size} * turn[i] / pieces);
    const auto end = static_cast<uint32_t>(uint64_t{size} * (turn[i] + 1) / pieces);
    iovec from[kMost], to[kMost];
    const size_t froms =
        cut_ranges(local.ranges, local.count, request.done + begin, end - begin, from, kMost);
    const size_t tos = cut_ranges(remote, remotes, request.done + begin, end - begin, to, kMost);
    const int error = requester.path.memory->write(requester.process->directory(), from, froms, to, tos);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace verbena
