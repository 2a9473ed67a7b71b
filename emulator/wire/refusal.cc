// SPDX-License-Identifier: BSD-2-Clause
#include "wire/refusal.h"

namespace verbena::wire {
namespace {

struct RefusalRow {
  Refusal refusal;
  bool transient;
  const char* words;
};

constexpr RefusalRow kRefusals[] = {
    {Refusal::kNone, false, "nothing is wrong"},
    {Refusal::kVersion, false, "the other node speaks another version of Verbena's protocol"},
    {Refusal::kKey, false, "the other node has another key"},
    {Refusal::kAddress, false, "the address is not one of that node's"},
    {Refusal::kNobody, false, "no process of that node has what was asked for"},
    {Refusal::kBusy, true, "the process that has what was asked for does not answer"},
    {Refusal::kMalformed, false, "what arrived is not Verbena's protocol"},
    {Refusal::kSelf, false, "a node does not call itself"},
    {Refusal::kSilent, true, "connected, but nobody answers"},
    {Refusal::kUnreachable, true, "the machine cannot be reached"},
    {Refusal::kNotListening, true, "nobody listens at the port"},
    {Refusal::kClosed, true, "closed in the middle of the handshake"},
    {Refusal::kNoResources, true, "no descriptors or memory are left here"},
    {Refusal::kCancelled, false, "the connection listener was closed"},
};

const RefusalRow* find(Refusal refusal) {
  for (const RefusalRow& row : kRefusals)
    if (row.refusal == refusal) return &row;
  return nullptr;
}

}  // namespace

bool is_transient(Refusal refusal) {
  const RefusalRow* row = find(refusal);
  return row != nullptr && row->transient;
}

const char* words(Refusal refusal) {
  const RefusalRow* row = find(refusal);
  return row != nullptr ? row->words : "a reason that this version does not know";
}

}  // namespace verbena::wire
