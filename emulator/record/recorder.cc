// SPDX-License-Identifier: BSD-2-Clause
#include "record/recorder.h"

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

bool carries_payload(uint8_t opcode) {
  return opcode != IBV_WR_RDMA_READ && opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
         opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
}

}  // namespace

void Recorder::set_wish(const RecordWish& wish) { wish_.store(wish.pack(), std::memory_order_relaxed); }

void Recorder::on_request(const RequestEvent& event) {
  if (Observer* const other = next(); other != nullptr) other->on_request(event);
  note({.wr_id = event.wr_id,
        .qpn = event.qpn,
        .psn = event.psn,
        .length = event.length,
        .step = Step::kRequestEnd,
        .opcode = event.opcode,
        .more = event.vendor_err});
}

void Recorder::on_post(const PostEvent& event) {
  if (Observer* const other = next(); other != nullptr) other->on_post(event);
  note({.wr_id = event.wr_id,
        .qpn = event.qpn,
        .length = event.length,
        .step = event.is_receive ? Step::kPostReceive : Step::kPostSend,
        .opcode = event.opcode});
}

void Recorder::on_poll(const PollEvent& event) {
  if (Observer* const other = next(); other != nullptr) other->on_poll(event);
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

void Recorder::on_event(const RaisedEvent& event) {
  if (Observer* const other = next(); other != nullptr) other->on_event(event);
  note({.qpn = event.number, .step = Step::kEvent, .status = event.type});
}

void Recorder::on_completion(const CompletionEvent& event) {
  if (Observer* const other = next(); other != nullptr) other->on_completion(event);
}

void Recorder::on_state(const StateEvent& event) {
  if (Observer* const other = next(); other != nullptr) other->on_state(event);
  note({.qpn = event.qpn, .step = Step::kState, .status = event.to, .more = event.from});
}

namespace {

// gettid(2) of the calling thread; 0: not asked for yet.
__attribute__((tls_model("initial-exec"))) constinit thread_local uint32_t own_thread = 0;

}  // namespace

void Recorder::forget_thread() { own_thread = 0; }

void Recorder::note(const TimelineRecord& record) {
  if ((RecordWish::unpack(wish_.load(std::memory_order_relaxed)).classes & kRecordTimeline) == 0) return;
  if (own_thread == 0) own_thread = static_cast<uint32_t>(syscall(SYS_gettid));
  ring_.write(Kind::kTimeline, sizeof record, [&](Head* head) {
    const Head written = *head;
    auto* const to = reinterpret_cast<TimelineRecord*>(head);
    *to = record;
    to->head = written;
    to->thread = own_thread;
  });
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
  if (Observer* const other = next(); other != nullptr) other->on_datagram(event);
  constexpr uint32_t kManagementQpn = 1;
  constexpr size_t kAttribute = 17;  // the low byte of MADHeader:AttributeID
  if (event.target_qpn == kManagementQpn && event.payload.size() > kAttribute)
    note({.step = Step::kManagement, .opcode = event.payload[kAttribute]});
  const auto wish = RecordWish::unpack(wish_.load(std::memory_order_relaxed));
  if ((wish.classes & kRecordPackets) == 0) return;
  const auto length = static_cast<uint32_t>(event.payload.size());
  const uint32_t kept = std::min(length, wish.snap);
  ring_.write(Kind::kMessage, sizeof(MessageRecord) + kept, [&](Head* head) {
    const Head written = *head;
    auto* const record = reinterpret_cast<MessageRecord*>(head);
    *record = {.head = written,
               .route = event.route,
               .source_qpn = event.source_qpn,
               .target_qpn = event.target_qpn,
               .psn = event.psn,
               .length = length,
               .end = length,
               .immediate = event.immediate,
               .rkey = event.qkey,
               .mtu = kLongestDatagram,
               .snap = std::min(wish.snap, kLongestDatagram),
               .kept = kept,
               .pkey = event.pkey,
               .transport = IBV_QPT_UD,
               .opcode = event.with_immediate ? uint8_t{IBV_WR_SEND_WITH_IMM} : uint8_t{IBV_WR_SEND},
               .reply = Reply::kSilence,
               .solicited = event.solicited};
    std::memcpy(record + 1, event.payload.data(), kept);
  });
}

void Recorder::on_packet(const PacketEvent& event) {
  if (Observer* const other = next(); other != nullptr) other->on_packet(event);
  const auto wish = RecordWish::unpack(wish_.load(std::memory_order_relaxed));
  if ((wish.classes & kRecordPackets) == 0) return;
  const auto length = static_cast<uint32_t>(event.bytes.size());
  const uint32_t kept = std::min(length, wish.snap);
  ring_.write(Kind::kPacket, sizeof(PacketRecord) + kept, [&](Head* head) {
    const Head written = *head;
    auto* const record = reinterpret_cast<PacketRecord*>(head);
    *record = {.head = written, .route = event.route, .length = length, .kept = kept, .port = event.port};
    std::memcpy(record + 1, event.bytes.data(), kept);
  });
}

void Recorder::on_response(const ResponseEvent& event) {
  if (Observer* const other = next(); other != nullptr) other->on_response(event);
  const auto wish = RecordWish::unpack(wish_.load(std::memory_order_relaxed));
  if (event.reply == Reply::kNothing || is_repeated_rnr(event)) return;
  if ((wish.classes & kRecordTimeline) != 0 && event.reply != Reply::kMore)
    note({.qpn = event.target_qpn,
          .peer_qpn = event.source_qpn,
          .psn = event.psn,
          .length = event.length,
          .step = Step::kResponse,
          .opcode = event.opcode,
          .status = static_cast<uint8_t>(event.reply),
          .more = event.vendor_err});
  if ((wish.classes & kRecordPackets) == 0 || event.transport == 0 || event.reply == Reply::kNothing ||
      event.mtu == 0)
    return;
  const bool is_done = event.reply == Reply::kAcknowledged || event.reply == Reply::kMore;
  if (event.reply == Reply::kMore && event.end == event.offset) return;
  uint32_t end = event.end;
  // Of a request that is refused its first packet was on its way.
  if (!is_done)
    end = carries_payload(event.opcode)
              ? static_cast<uint32_t>(
                    std::min<uint64_t>(event.length, (event.offset / event.mtu + 1) * uint64_t{event.mtu}))
              : event.offset;
  uint32_t snap = wish.snap == RecordWish::kWhole ? event.mtu : std::min(wish.snap, event.mtu);
  if (event.range_count == 0) snap = 0;
  uint32_t kept = for_each_kept(event.offset, end, event.mtu, snap, [](uint32_t, uint32_t) {});
  if (sizeof(MessageRecord) + kept > ring_.limit()) {
    ring_.count_cut();
    kept = snap = 0;
  }
  ring_.write(Kind::kMessage, sizeof(MessageRecord) + kept, [&](Head* head) {
    const Head written = *head;
    auto* const record = reinterpret_cast<MessageRecord*>(head);
    *record = {.head = written,
               .route = *event.route,
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
               .snap = snap,
               .kept = kept,
               .pkey = event.pkey,
               .transport = event.transport,
               .opcode = event.opcode,
               .reply = event.reply,
               .rnr_timer = event.rnr_timer,
               .vendor_err = event.vendor_err,
               .solicited = event.solicited};
    auto* to = reinterpret_cast<std::byte*>(record + 1);
    for_each_kept(event.offset, end, event.mtu, snap, [&](uint32_t from, uint32_t size) {
      copy_message(event, from, size, is_done && !event.may_be_gone, to);
      to += size;
    });
  });
}

}  // namespace verbena::record
