// SPDX-License-Identifier: BSD-2-Clause
#include "record/recorder.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "adapter/clock.h"

namespace verbena::record {
namespace {

constexpr uint32_t kLongestDatagram = 4096;  // bytes, the largest MTU
// Bytes of payload in one record: so long other threads wait. Powers of two, so that they end where a packet
// does.
constexpr uint32_t kPiece = 64 << 10;
static_assert(sizeof(MessageRecord) + kPiece <= kSmallestRing / 4);  // no record is too long for a ring
constexpr uint32_t kUnsafePiece = 4096;                              // on the stack of the program's thread

// Copies bytes [from, from + size) of the message. `is_safe`: the bytes have just been moved. Else the memory
// may not be there, as nobody has looked yet: then zeros.
void copy_message(const ResponseEvent& event, uint32_t from, uint32_t size, bool is_safe, std::byte* to) {
  if (from < event.ranges_at) return std::memset(to, 0, size), void();
  uint64_t skip = from - event.ranges_at;
  for (size_t i = 0; i < event.range_count && size != 0; ++i) {
    const iovec& range = event.ranges[i];
    if (skip >= range.iov_len) {
      skip -= range.iov_len;
      continue;
    }
    const auto* const begin = static_cast<const std::byte*>(range.iov_base) + skip;
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(range.iov_len - skip, size));
    if (is_safe) {
      std::memcpy(to, begin, n);
    } else {
      std::memset(to, 0, n);
      const iovec here{to, n}, there{const_cast<std::byte*>(begin), n};
      static_cast<void>(process_vm_readv(getpid(), &here, 1, &there, 1, 0));
    }
    to += n;
    size -= n;
    skip = 0;
  }
  if (size != 0) std::memset(to, 0, size);
}

// What the record keeps of its piece of the message.
void copy_payload(const ResponseEvent& event, const MessageRecord& record, bool is_safe, std::byte* to) {
  for_each_kept(record.offset, record.end, record.mtu, record.snap, [&](uint32_t from, uint32_t size) {
    copy_message(event, from, size, is_safe, to);
    to += size;
  });
}

bool carries_payload(uint8_t opcode) {
  return opcode != IBV_WR_RDMA_READ && opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
         opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// gettid(2) of the calling thread; 0: not asked for yet.
__attribute__((tls_model("initial-exec"))) constinit thread_local uint32_t own_thread = 0;

}  // namespace

void Recorder::set_wish(const RecordWish& wish) { wish_.store(wish.pack(), std::memory_order_relaxed); }

void Recorder::forget_thread() { own_thread = 0; }

template <typename Event>
void Recorder::pass_on(void (Observer::*call)(const Event&), const Event& event) const {
  if (Observer* const other = next(); other != nullptr) (other->*call)(event);
}

// Inlined: the record is made where it stays.
[[gnu::always_inline]] inline void Recorder::note(TimelineRecord record) {
  if ((wish().classes & kRecordTimeline) == 0) return;
  if (own_thread == 0) [[unlikely]]
    own_thread = static_cast<uint32_t>(syscall(SYS_gettid));
  record.thread = own_thread;
  ring_.write(record, 0, [](std::byte*) {});
}

void Recorder::on_request(const RequestEvent& event) {
  pass_on(&Observer::on_request, event);
  note({.wr_id = event.wr_id,
        .qpn = event.qpn,
        .psn = event.psn,
        .length = event.length,
        .step = Step::kRequestEnd,
        .opcode = event.opcode,
        .more = event.vendor_err});
}

void Recorder::on_post(const PostEvent& event) {
  pass_on(&Observer::on_post, event);
  note({.wr_id = event.wr_id,
        .qpn = event.qpn,
        .length = event.length,
        .step = event.is_receive ? Step::kPostReceive : Step::kPostSend,
        .opcode = event.opcode});
}

void Recorder::on_poll(const PollEvent& event) {
  pass_on(&Observer::on_poll, event);
  note({.wr_id = event.wr_id,
        .qpn = event.qpn,
        .length = event.byte_len,
        .step = event.is_receive ? Step::kPollReceive : Step::kPollSend,
        .opcode = event.opcode,
        .status = event.status});
}

void Recorder::on_small_request(const SmallRequestEvent& event) {
  note({.wr_id = event.wr_id,
        .qpn = event.qpn,
        .peer_qpn = event.peer_qpn,
        .psn = event.psn,
        .length = event.length,
        .step = Step::kSmallRequest,
        .opcode = event.opcode});
}

void Recorder::on_retry(const RetryEvent& event) {
  note({.wr_id = event.wr_id,
        .qpn = event.qpn,
        .psn = event.psn,
        .length = event.length,
        .step = Step::kRetry,
        .opcode = event.opcode,
        .more = event.vendor_err});
}

void Recorder::on_event(const RaisedEvent& event) {
  pass_on(&Observer::on_event, event);
  note({.qpn = event.number, .step = Step::kEvent, .status = event.type});
}

void Recorder::on_completion(const CompletionEvent& event) { pass_on(&Observer::on_completion, event); }

void Recorder::on_state(const StateEvent& event) {
  pass_on(&Observer::on_state, event);
  note({.qpn = event.qpn, .step = Step::kState, .status = event.to, .more = event.from});
}

bool Recorder::is_repeated_rnr(const ResponseEvent& event) {
  Waiting& waiting = waiting_[event.source_qpn % waiting_.size()];
  const uint64_t request = uint64_t{event.source_qpn} << 32 | event.psn;
  if (event.reply != Reply::kRnr) {
    if (waiting.request.load(std::memory_order_relaxed) >> 32 == event.source_qpn)
      waiting.request.store(0, std::memory_order_relaxed);
    return false;
  }
  const int64_t now = now_ns();
  if (waiting.request.load(std::memory_order_relaxed) == request &&
      now < waiting.until.load(std::memory_order_relaxed))
    return true;
  waiting.until.store(now + static_cast<int64_t>(event.rnr_wait_ns), std::memory_order_relaxed);
  waiting.request.store(request, std::memory_order_relaxed);
  return false;
}

void Recorder::on_datagram(const DatagramEvent& event) {
  pass_on(&Observer::on_datagram, event);
  constexpr uint32_t kManagementQpn = 1;
  constexpr size_t kTransaction = 8, kAttribute = 17;  // MADHeader:TransactionID, the low byte of AttributeID
  if (event.target_qpn == kManagementQpn && event.payload.size() > kAttribute) {
    uint64_t transaction = 0;
    std::memcpy(&transaction, event.payload.data() + kTransaction, sizeof transaction);
    note({.wr_id = be64toh(transaction), .step = Step::kManagement, .opcode = event.payload[kAttribute]});
  }
  const RecordWish wanted = wish();
  if ((wanted.classes & kRecordPackets) == 0) return;
  const auto length = static_cast<uint32_t>(event.payload.size());
  const uint32_t kept = std::min(length, wanted.snap);
  const MessageRecord record{
      .route = event.route,
      .source_qpn = event.source_qpn,
      .target_qpn = event.target_qpn,
      .psn = event.psn,
      .length = length,
      .end = length,
      .immediate = event.immediate,
      .rkey = event.qkey,
      .mtu = kLongestDatagram,
      .snap = std::min(wanted.snap, kLongestDatagram),
      .kept = kept,
      .pkey = event.pkey,
      .transport = IBV_QPT_UD,
      .opcode = event.with_immediate ? uint8_t{IBV_WR_SEND_WITH_IMM} : uint8_t{IBV_WR_SEND},
      .reply = Reply::kSilence,
      .solicited = event.solicited};
  ring_.write(record, kept, [&](std::byte* to) { std::memcpy(to, event.payload.data(), kept); });
}

void Recorder::on_packet(const PacketEvent& event) {
  pass_on(&Observer::on_packet, event);
  const RecordWish wanted = wish();
  if ((wanted.classes & kRecordPackets) == 0) return;
  const auto length = static_cast<uint32_t>(event.bytes.size());
  const uint32_t kept = std::min(length, wanted.snap);
  const PacketRecord record{.route = event.route, .length = length, .kept = kept, .port = event.port};
  ring_.write(record, kept, [&](std::byte* to) { std::memcpy(to, event.bytes.data(), kept); });
}

void Recorder::on_frame(const FrameEvent& event) {
  pass_on(&Observer::on_frame, event);
  const RecordWish wanted = wish();
  if ((wanted.classes & kRecordPackets) == 0) return;
  const auto length = static_cast<uint32_t>(event.bytes.size());
  const uint32_t kept = std::min(length, wanted.snap);
  const FrameRecord record{.source_qpn = event.source_qpn, .length = length, .kept = kept};
  ring_.write(record, kept, [&](std::byte* to) { std::memcpy(to, event.bytes.data(), kept); });
}

void Recorder::on_response(const ResponseEvent& event) {
  pass_on(&Observer::on_response, event);
  const RecordWish wanted = wish();
  if (event.reply == Reply::kNothing || is_repeated_rnr(event)) return;
  if ((wanted.classes & kRecordTimeline) != 0 && event.reply != Reply::kMore)
    note({.qpn = event.target_qpn,
          .peer_qpn = event.source_qpn,
          .psn = event.psn,
          .length = event.length,
          .step = Step::kResponse,
          .opcode = event.opcode,
          .status = static_cast<uint8_t>(event.reply),
          .more = event.vendor_err});
  if ((wanted.classes & kRecordPackets) != 0 && event.transport != 0 && event.mtu != 0)
    write_message(event, wanted.snap);
}

// As several records if it is long.
void Recorder::write_message(const ResponseEvent& event, uint32_t most) {
  const bool is_done = event.reply == Reply::kAcknowledged || event.reply == Reply::kMore;
  if (event.reply == Reply::kMore && event.end == event.offset) return;
  uint32_t end = event.end;
  // Of a request that is refused its first packet was on its way.
  if (!is_done)
    end = carries_payload(event.opcode)
              ? static_cast<uint32_t>(
                    std::min<uint64_t>(event.length, (event.offset / event.mtu + 1) * uint64_t{event.mtu}))
              : event.offset;
  MessageRecord record{.route = *event.route,
                       .remote_address = event.remote_address,
                       .compare_add = event.compare_add,
                       .swap = event.swap,
                       .source_qpn = event.source_qpn,
                       .target_qpn = event.target_qpn,
                       .psn = event.psn,
                       .length = event.length,
                       .offset = event.offset,
                       .end = end,
                       .immediate = event.immediate,
                       .rkey = event.rkey,
                       .srqn = event.srqn,
                       .msn = event.msn,
                       .mtu = event.mtu,
                       .snap = most == RecordWish::kWhole ? event.mtu : std::min(most, event.mtu),
                       .pkey = event.pkey,
                       .transport = event.transport,
                       .opcode = event.opcode,
                       .reply = event.reply,
                       .rnr_timer = event.rnr_timer,
                       .vendor_err = event.vendor_err,
                       .solicited = event.solicited};
  if (event.range_count == 0) record.snap = 0;
  const bool is_safe = is_done && !event.may_be_gone;
  const uint32_t size = record.snap == 0 ? UINT32_MAX : is_safe ? kPiece : kUnsafePiece;
  do {
    record.end = static_cast<uint32_t>(std::min<uint64_t>(end, (record.offset / size + 1) * uint64_t{size}));
    record.reply = record.end == end ? event.reply : Reply::kMore;
    record.kept =
        for_each_kept(record.offset, record.end, record.mtu, record.snap, [](uint32_t, uint32_t) {});
    if (is_safe || record.kept == 0)
      ring_.write(record, record.kept, [&](std::byte* to) { copy_payload(event, record, true, to); });
    else
      write_unsafe(event, record);
    record.offset = record.end;
  } while (record.offset < end);
}

// No system call while other threads wait for the ring.
[[gnu::noinline]] void Recorder::write_unsafe(const ResponseEvent& event, const MessageRecord& record) {
  std::byte payload[kUnsafePiece];
  copy_payload(event, record, false, payload);
  ring_.write(record, record.kept, [&](std::byte* to) { std::memcpy(to, payload, record.kept); });
}

}  // namespace verbena::record
