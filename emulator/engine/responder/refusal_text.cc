// SPDX-License-Identifier: BSD-2-Clause
//
// The sentences of explanations (refusal.h). The numbers come from shared memory and may have any value.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "engine/responder/refusal.h"
#include "engine/rules/qp_state_table.h"
#include "engine/rules/send_rules.h"
#include "wire/net_address.h"

namespace verbena {
namespace {

// Appends to a text of fixed size.
class Line {
 public:
  Line(char* text, size_t size) : text_(text), size_(size) { text_[0] = 0; }
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(text_ + used_, size_ - used_, format, arguments);
    va_end(arguments);
    if (written > 0) used_ = std::min(used_ + static_cast<size_t>(written), size_ - 1);
  }

 private:
  char* text_;
  size_t size_;
  size_t used_ = 0;
};

const char* name_of(uint8_t opcode) {
  const SendOperation* const operation = find_send_operation(static_cast<ibv_wr_opcode>(opcode));
  return operation != nullptr ? operation->name : "a request";
}

void add_source(Line& line, const RequestRefusal& refusal) {
  line.add("QP 0x%06x", refusal.source_qpn);
  if (refusal.is_remote) {
    wire::NetAddress address;
    std::memcpy(address.bytes.data(), refusal.source_address, sizeof refusal.source_address);
    line.add(" of %s", address.text().c_str());
  } else if (refusal.source_pid != 0) {
    line.add(" of process %d", refusal.source_pid);
  }
}

bool is_stray(const RequestRefusal& refusal) {
  return refusal.kind == RefusalKind::kNoQueuePair || refusal.kind == RefusalKind::kNoDatagrams;
}

void add_rights(Line& line, uint32_t access) {
  struct Right {
    uint32_t bit;
    const char* name;
  };
  constexpr Right kRights[] = {{IBV_ACCESS_LOCAL_WRITE, "LOCAL_WRITE"},
                               {IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE"},
                               {IBV_ACCESS_REMOTE_READ, "REMOTE_READ"},
                               {IBV_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC"}};
  const char* before = "";
  for (const Right& right : kRights) {
    if ((access & right.bit) == 0) continue;
    line.add("%s%s", before, right.name);
    before = "|";
  }
  if (*before == 0) line.add("none");
}

// `length`: of what is at `refusal.address`.
void add_key(Line& line, const RequestRefusal& refusal, const char* name, uint32_t length) {
  line.add("; %s 0x%x, address 0x%" PRIx64 ", length %u", name, refusal.key, refusal.address, length);
  if (!refusal.key_is_known) return;
  line.add("; its region: address 0x%" PRIx64 ", length %" PRIu64 ", access ", refusal.region_begin,
           refusal.region_length);
  add_rights(line, refusal.region_access);
  line.add(", PD %u; PD of the QP: %u", refusal.region_pd, refusal.qp_pd);
}

void add_request(Line& line, const RequestRefusal& refusal) {
  const auto error = static_cast<VendorError>(refusal.vendor_err);
  const VendorErrorText& row = *find_vendor_error(refusal.vendor_err);
  line.add(": %s: %s", row.name, row.text);
  switch (error) {
    case VendorError::rkey_unknown:
    case VendorError::rkey_other_pd:
    case VendorError::rkey_out_of_range:
    case VendorError::rkey_no_right:
    case VendorError::rkey_other_qp:
    case VendorError::remote_memory_gone:
      return add_key(line, refusal, "rkey", refusal.length);
    case VendorError::lkey_unknown:
    case VendorError::lkey_other_pd:
    case VendorError::lkey_out_of_range:
    case VendorError::lkey_no_local_write:
    case VendorError::local_memory_gone:
      if (refusal.key == 0) return line.add("; one of the SGEs of the receive request");
      return add_key(line, refusal, "receive request: lkey", refusal.expected);
    case VendorError::remote_qp_no_right:
      line.add("; qp_access_flags: ");
      return add_rights(line, refusal.region_access);
    case VendorError::receive_too_small:
      return line.add("; message: %u bytes, receive request: %u", refusal.got, refusal.expected);
    case VendorError::remote_atomic_misaligned:
      return line.add("; address 0x%" PRIx64, refusal.address);
    case VendorError::remote_no_read_resources:
      return line.add("; max_dest_rd_atomic: %u", refusal.max_dest_rd_atomic);
    case VendorError::remote_srq_unknown:
      return line.add("; SRQ number: 0x%06x", refusal.got);
    default:
      return;
  }
}

void add_stray(Line& line, const RequestRefusal& refusal) {
  line.add("%s of %u bytes from ", name_of(refusal.opcode), refusal.length);
  add_source(line, refusal);
  line.add(" is dropped: it is for QP 0x%06x, ", refusal.got);
  line.add(
      refusal.kind == RefusalKind::kNoQueuePair
          ? "a number that no queue pair of the node has"
          : "which takes no datagrams: it is no UD queue pair, not in RTR or later, of another device, or "
            "its process does not answer");
  if (refusal.expected == 1) line.add("; the UD queue pair here is QP 0x%06x", refusal.qpn);
  if (refusal.expected > 1)
    line.add("; the UD queue pairs here are QP 0x%06x and %u more", refusal.qpn, refusal.expected - 1);
}

}  // namespace

void describe_refusal(const RequestRefusal& refusal, int32_t of_process, char* text, size_t size) {
  Line line(text, size);
  if (is_stray(refusal)) {
    add_stray(line, refusal);
    if (refusal.count > 1) line.add(" (%u so far)", refusal.count);
    return;
  }
  line.add("QP 0x%06x", refusal.qpn);
  if (of_process != 0) line.add(" of process %d", of_process);
  const bool drops = refusal.kind == RefusalKind::kNoReceive || refusal.kind == RefusalKind::kNoSpace ||
                     refusal.kind == RefusalKind::kOtherQkey;
  line.add(" %s %s", drops ? "drops" : "refuses", name_of(refusal.opcode));
  if (refusal.opcode != UINT8_MAX) line.add(" of %u bytes", refusal.length);
  line.add(" from ");
  add_source(line, refusal);
  switch (refusal.kind) {
    case RefusalKind::kRequest:
      add_request(line, refusal);
      break;
    case RefusalKind::kNoReceive:
      line.add(": no receive request is posted");
      break;
    case RefusalKind::kNoSpace:
      line.add(
          ": a datagram needs 40 bytes more for its GRH: %u bytes in all; the oldest receive request takes "
          "%u",
          refusal.got, refusal.expected);
      break;
    case RefusalKind::kOtherQkey:
      line.add(": the Q_Key of the QP is 0x%08x, that of the datagram 0x%08x", refusal.expected, refusal.got);
      break;
    case RefusalKind::kOtherSource:
      line.add(": it is connected to QP 0x%06x, the request is of QP 0x%06x", refusal.expected, refusal.got);
      break;
    case RefusalKind::kOtherPsn:
      line.add(": it expects PSN 0x%06x (its rq_psn), and the request has 0x%06x (the sender's sq_psn)",
               refusal.expected, refusal.got);
      break;
    case RefusalKind::kNotReady:
      line.add(": it is in state %s, and takes requests from RTR on",
               name_of_state(static_cast<ibv_qp_state>(std::min<uint32_t>(refusal.expected, IBV_QPS_ERR))));
      break;
    case RefusalKind::kNoQueuePair:
    case RefusalKind::kNoDatagrams:
      break;  // add_stray()
  }
  if (refusal.count > 1) line.add(" (%u so far)", refusal.count);
}

}  // namespace verbena
