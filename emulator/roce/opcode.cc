// SPDX-License-Identifier: BSD-2-Clause
#include "roce/opcode.h"

#include <array>

namespace verbena::roce {
namespace {

using enum PacketType;

struct Row {
  PacketType type;
  Operation operation;
  bool begins, ends, has_payload;
  uint16_t headers;
  uint8_t transports;  // bit per TransportKind
};

constexpr uint8_t bit(TransportKind transport) {
  return static_cast<uint8_t>(1u << static_cast<unsigned>(transport));
}
constexpr uint8_t kConnected = bit(TransportKind::kRc) | bit(TransportKind::kUc) | bit(TransportKind::kXrc);
constexpr uint8_t kAny = kConnected | bit(TransportKind::kUd);
constexpr uint8_t kReliable = bit(TransportKind::kRc) | bit(TransportKind::kXrc);

constexpr Row kRows[] = {
    {kSendFirst, Operation::kSend, true, false, true, 0, kConnected},
    {kSendMiddle, Operation::kSend, false, false, true, 0, kConnected},
    {kSendLast, Operation::kSend, false, true, true, 0, kConnected},
    {kSendLastImmediate, Operation::kSend, false, true, true, kHasImmDt, kConnected},
    {kSendOnly, Operation::kSend, true, true, true, 0, kAny},
    {kSendOnlyImmediate, Operation::kSend, true, true, true, kHasImmDt, kAny},
    {kWriteFirst, Operation::kWrite, true, false, true, kHasReth, kConnected},
    {kWriteMiddle, Operation::kWrite, false, false, true, 0, kConnected},
    {kWriteLast, Operation::kWrite, false, true, true, 0, kConnected},
    {kWriteLastImmediate, Operation::kWrite, false, true, true, kHasImmDt, kConnected},
    {kWriteOnly, Operation::kWrite, true, true, true, kHasReth, kConnected},
    {kWriteOnlyImmediate, Operation::kWrite, true, true, true, kHasReth | kHasImmDt, kConnected},
    {kReadRequest, Operation::kRead, true, true, false, kHasReth, kReliable},
    {kReadResponseFirst, Operation::kReadResponse, true, false, true, kHasAeth, kReliable},
    {kReadResponseMiddle, Operation::kReadResponse, false, false, true, 0, kReliable},
    {kReadResponseLast, Operation::kReadResponse, false, true, true, kHasAeth, kReliable},
    {kReadResponseOnly, Operation::kReadResponse, true, true, true, kHasAeth, kReliable},
    {kAcknowledge, Operation::kAcknowledge, true, true, false, kHasAeth, kReliable},
    {kAtomicAcknowledge, Operation::kAtomicAcknowledge, true, true, false, kHasAeth | kHasAtomicAckEth,
     kReliable},
    {kCompareSwap, Operation::kCompareSwap, true, true, false, kHasAtomicEth, kReliable},
    {kFetchAdd, Operation::kFetchAdd, true, true, false, kHasAtomicEth, kReliable},
    {kSendLastInvalidate, Operation::kSend, false, true, true, kHasIeth, kReliable},
    {kSendOnlyInvalidate, Operation::kSend, true, true, true, kHasIeth, kReliable},
    {kAtomicWrite, Operation::kAtomicWrite, true, true, true, kHasReth, kReliable},
};

constexpr bool is_request(Operation operation) {
  return operation != Operation::kReadResponse && operation != Operation::kAcknowledge &&
         operation != Operation::kAtomicAcknowledge;
}

struct Table {
  std::array<OpcodeInfo, 256> rows{};
  std::array<bool, 256> known{};
};

constexpr Table make_table() {
  Table table;
  for (const Row& row : kRows)
    for (unsigned transport = 0; transport < 8; ++transport) {
      if ((row.transports >> transport & 1) == 0) continue;
      const auto kind = static_cast<TransportKind>(transport);
      uint16_t headers = row.headers;
      if (kind == TransportKind::kUd) headers |= kHasDeth;
      if (kind == TransportKind::kXrc && is_request(row.operation)) headers |= kHasXrceth;
      const uint8_t opcode = opcode_of(kind, row.type);
      table.rows[opcode] = {kind, row.type, row.operation, row.begins, row.ends, row.has_payload, headers};
      table.known[opcode] = true;
    }
  // A CNP has 16 reserved bytes where others have a payload.
  table.rows[kCnpOpcode] = {TransportKind::kCnp,
                            static_cast<PacketType>(kCnpOpcode & 0x1f),
                            Operation::kCongestion,
                            true,
                            true,
                            true,
                            0};
  table.known[kCnpOpcode] = true;
  return table;
}

constexpr Table kTable = make_table();

}  // namespace

const OpcodeInfo* find_opcode(uint8_t opcode) noexcept {
  return kTable.known[opcode] ? &kTable.rows[opcode] : nullptr;
}

}  // namespace verbena::roce
