// SPDX-License-Identifier: BSD-2-Clause
//
// Polling a CQ (ibv_poll_cq(3)). Eager data is copied to the program's buffers on the way.
#include <errno.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "adapter/arming.h"
#include "adapter/clock.h"
#include "adapter/memory_table.h"
#include "emulator.h"
#include "engine/completion/poll.h"
#include "engine/completion/poll_patience.h"
#include "engine/completion/streaming.h"
#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/receive/bounce_memory.h"
#include "engine/receive/shared_receive_queue.h"
#include "engine/receive/tag_matching.h"
#include "engine/rules/small_copy.h"
#include "faults/injection.h"
#include "insight.h"
#include "keep_errno.h"
#include "observe/log.h"
#include "observe/observer.h"
#include "observe/probes.h"

namespace verbena {
namespace {

// A program that polls drives its waiting requests.
void progress_from_poll(Process& process) {
  const KeepErrno guard;
  process.scheduler().progress_from_poll(process.network());
}

// The owner of a CQE: a QP, or an XRC SRQ. Both nullptr: it has none, or the CQE is not to be trusted.
struct CqeOwner {
  Qp* qp;
  Srq* srq;  // where the receive WQE came from; nullptr: the QP's own ring
};

// A message as eager data: the WQE whose buffers it belongs to, and where it lies now.
struct EagerData {
  const ReceiveWqe& wqe;
  uint32_t max_sge;
  std::byte* from;
  uint32_t length;
  BouncedMessage bounced{};  // if it lies in the bounce ring of the queue pair
};

EagerData eager_of(const CqeOwner& cqe_owner, const Cqe& entry) {
  // Messages of tags are never eager: the queue is damaged.
  if (is_tag(entry.index) && cqe_owner.srq != nullptr) return {cqe_owner.srq->ring.wqe(0), 0, nullptr, 0};
  const ReceiveWqe& wqe = cqe_owner.srq != nullptr ? cqe_owner.srq->ring.wqe(entry.index)
                                                   : cqe_owner.qp->receives.wqe(entry.index);
  const uint32_t max_sge =
      cqe_owner.srq != nullptr ? cqe_owner.srq->ring.max_sge : cqe_owner.qp->receives.max_sge;
  if ((entry.flags & kCqeInline) != 0) {
    const uint32_t header = (entry.flags & (kCqeDatagram | kCqeXrc)) != 0 ? sizeof(DatagramSource) : 0;
    return {wqe, max_sge, reinterpret_cast<std::byte*>(const_cast<uint8_t*>(entry.payload)) + header,
            std::min<uint32_t>(entry.byte_len, kCqeInlineSize - header)};
  }
  const uint32_t length = entry.byte_len;
  if (length <= kBounceSize || cqe_owner.qp == nullptr) {
    std::byte* const slot = cqe_owner.srq != nullptr ? cqe_owner.srq->ring.bounce(entry.index)
                                                     : cqe_owner.qp->receives.bounce(entry.index);
    return {wqe, max_sge, slot, std::min(length, kBounceSize)};
  }
  uint64_t position;
  std::memcpy(&position, entry.payload, sizeof position);
  const BouncedMessage bounced = find_bounced(*cqe_owner.qp, position, length);
  return {wqe, max_sge, bounced.bytes, bounced.bytes != nullptr ? length : 0, bounced};
}

// Is the buffer a part of a region of this process? The WQE lies in shared memory, so it is not believed.
// Under Cq::lock.
bool is_registered_slowly(Cq& cq, const CqeOwner& cqe_owner, const WqeSge& sge, uint32_t length) {
  const SegmentView& view = cq.process->view();
  const uint32_t pd = cqe_owner.srq != nullptr ? cqe_owner.srq->pd_handle : cqe_owner.qp->pd->handle;
  if (!is_scatter_target(view, sge.lkey, pd, sge.address, length)) {
    VERBENA_ERROR(receive_damaged,
                  "CQ %u: a receive request has been damaged in shared memory: lkey 0x%x, address 0x%llx, "
                  "length %u is no region of this process; the message is lost",
                  cq.index, sge.lkey, static_cast<unsigned long long>(sge.address), length);
    return false;
  }
  cq.scattered.remember(view, sge.lkey, pd, MemoryUse::local_scatter);
  return true;
}

inline bool is_registered(Cq& cq, const CqeOwner& cqe_owner, const WqeSge& sge, uint32_t length) {
  const uint32_t epoch = cq.process->view().header().mr_epoch.load(std::memory_order_acquire);
  uint64_t at;
  return (cq.scattered.covers(epoch, sge.lkey, sge.address, length, &at) && at == sge.address) ||
         is_registered_slowly(cq, cqe_owner, sge, length);
}

// Copies a message from the bounce ring to the buffers of its WQE.
[[gnu::noinline]] void scatter_bounced(Cq& cq, const CqeOwner& cqe_owner, const ReceiveWqe& wqe,
                                       uint32_t max_sge, const BouncedMessage& message, uint32_t length) {
  const std::byte* from = message.bytes;
  for (uint32_t i = 0; i < wqe.sge_count && i < max_sge && length != 0; ++i) {
    const WqeSge sge = wqe.sge[i];
    const uint32_t n = std::min(sge.length, length);
    if (n == 0) continue;
    if (!is_registered(cq, cqe_owner, sge, n)) break;
    std::memcpy(reinterpret_cast<void*>(sge.address), from, n);
    from += n;
    length -= n;
  }
  free_bounced(*cqe_owner.qp, message);
}

// Copies eager data to the buffers of its WQE. `read_ahead`: probably another message lies this many slots
// further on, and is prefetched; 0: none is known.
void scatter(Cq& cq, const CqeOwner& cqe_owner, const Cqe& entry, uint32_t read_ahead) {
  const auto [wqe, max_sge, source, length, bounced] = eager_of(cqe_owner, entry);
  if (bounced.bytes != nullptr) return scatter_bounced(cq, cqe_owner, wqe, max_sge, bounced, length);
  uint32_t left = length;
  if ((entry.flags & kCqeInline) == 0 && read_ahead != 0 && cqe_owner.srq == nullptr) {
    const std::byte* next = cqe_owner.qp->receives.bounce(entry.index + read_ahead);
    for (uint32_t at = 0; at < left; at += kCacheLine) prefetch(next + at);
  }
  const std::byte* from = source;
  for (uint32_t i = 0; i < wqe.sge_count && i < max_sge && left != 0; ++i) {
    const WqeSge sge = wqe.sge[i];
    const uint32_t n = std::min(sge.length, left);
    if (n == 0) continue;
    if (!is_registered(cq, cqe_owner, sge, n)) return;
    copy_small(reinterpret_cast<void*>(sge.address), from, n);
    from += n;
    left -= n;
  }
}

// The same through system calls, off the data path: the program may have unmapped the buffer before it
// deregisters it, and a direct copy would fault.
void scatter_safely(Cq& cq, const CqeOwner& cqe_owner, const Cqe& entry) {
  const auto [wqe, max_sge, source, length, bounced] = eager_of(cqe_owner, entry);
  uint32_t left = length;
  std::byte* from = source;
  for (uint32_t i = 0; i < wqe.sge_count && i < max_sge && left != 0; ++i) {
    const WqeSge sge = wqe.sge[i];
    const uint32_t n = std::min(sge.length, left);
    if (n != 0 && !is_registered(cq, cqe_owner, sge, n)) break;
    const iovec local{from, n}, remote{reinterpret_cast<void*>(sge.address), n};
    cq.process->self().write(cq.process->directory(), &local, 1, &remote, 1);
    from += n;
    left -= n;
  }
  if (bounced.bytes != nullptr) free_bounced(*cqe_owner.qp, bounced);
}

CqeOwner cqe_owner_of(const Cq& cq, const Cqe& entry) {
  if ((entry.flags & kCqeFromShared) != 0) {
    Qp* qp = nullptr;
    Srq* srq = shared_queue_of(cq, entry, &qp);
    if (srq == nullptr) return {nullptr, nullptr};
    const bool of_tags = srq->tags && is_tag(entry.index);
    if (!of_tags && entry.index >= srq->ring.slots()) return {nullptr, nullptr};
    return {qp, srq};
  }
  const uint32_t index =
      std::atomic_ref(const_cast<uint32_t&>(entry.qp_index)).load(std::memory_order_relaxed);
  Qp* qp = index < kMaxQpsPerProcess ? cq.process->qp(index) : nullptr;
  if (qp == nullptr || qp->shared->incarnation != entry.qp_incarnation) return {nullptr, nullptr};
  if ((entry.flags & kCqeReceive) != 0 && qp->receives.ready == nullptr) return {nullptr, nullptr};
  return {qp, nullptr};
}

// Frees the slots up to `index` (low 32 bits of a running number), inclusive.
void free_slots(std::atomic<uint64_t>& freed, uint32_t index) {
  const uint64_t before = freed.load(std::memory_order_relaxed);
  const uint32_t ahead = index - static_cast<uint32_t>(before);
  if (ahead < 0x8000'0000u) freed.store(before + ahead + 1, std::memory_order_release);
}

// The same in a send queue. Of a queue pair that fetches messages of tags, the completions of two CQs free
// slots: one thread must not take back what another one has freed.
void free_send_slots(Qp& qp, uint32_t index) {
  if (!qp.own_requests) [[likely]]
    return free_slots(qp.sq_freed, index);
  uint64_t before = qp.sq_freed.load(std::memory_order_relaxed);
  for (;;) {
    const uint32_t ahead = index - static_cast<uint32_t>(before);
    if (ahead >= 0x8000'0000u) return;
    if (qp.sq_freed.compare_exchange_weak(before, before + ahead + 1, std::memory_order_release)) return;
  }
}

// A receive completion with an error is polled: its wr_id is known now. For `verbena status`.
void note_error(const Qp& qp, const Cqe& entry, uint64_t wr_id) {
  if (entry.status == IBV_WC_WR_FLUSH_ERR) return;
  SharedQp& shared = *qp.shared;
  const uint32_t error = ErrorWord{entry.status, entry.vendor_err, true}.pack();
  uint64_t time = shared.receive_error_time.load(std::memory_order_acquire);
  if (time == 0 || shared.receive_error.load(std::memory_order_relaxed) != error) time = wall_clock_ns();
  shared.error_time.store(0, std::memory_order_relaxed);
  shared.error_wr_id.store(wr_id, std::memory_order_release);
  shared.error.store(error, std::memory_order_relaxed);
  shared.error_time.store(time, std::memory_order_release);
}

// Fills in the source of a datagram.
void fill_origin(const Cqe& entry, ibv_wc* wc) {
  DatagramSource source;
  std::memcpy(&source, entry.payload, sizeof source);
  wc->src_qp = source.qpn;
  wc->slid = source.lid;
  wc->sl = source.sl & 15;
  wc->dlid_path_bits = source.path_bits & ~DatagramSource::kWithGrh;
  if ((source.path_bits & DatagramSource::kWithGrh) != 0) wc->wc_flags |= IBV_WC_GRH;
  if ((source.sl & DatagramSource::kChecksumsRight) != 0) wc->wc_flags |= IBV_WC_IP_CSUM_OK;
}

// What a completion of tag matching has besides (receive/tag_matching.h).
[[gnu::noinline]] void fill_tag(Cq& cq, const CqeOwner& cqe_owner, const Cqe& entry, ibv_wc* wc,
                                ibv_wc_tm_info* tag) {
  const TagCompletion completion = tag_completion_of(entry);
  if (tag != nullptr) *tag = {completion.tag, completion.app_ctx};
  if (take_tag_completion(*cqe_owner.srq, cqe_owner.qp, entry, completion, wc))
    cq.rendezvous_due.store(true, std::memory_order_relaxed);
  if (cqe_owner.qp != nullptr && completion.send_number != 0)
    free_send_slots(*cqe_owner.qp, completion.send_number - 1);
}

void fill_wc(Cq& cq, const CqeOwner& cqe_owner, const Cqe& entry, bool eager, uint32_t read_ahead, ibv_wc* wc,
             ibv_wc_tm_info* tag) {
  const bool receive = (entry.flags & kCqeReceive) != 0;
  wc->status = static_cast<ibv_wc_status>(entry.status);
  wc->vendor_err = entry.vendor_err;
  wc->byte_len = entry.byte_len;
  wc->imm_data = entry.immediate;
  if ((entry.flags & kCqeXrc) != 0) {
    XrcSource source;
    std::memcpy(&source, entry.payload, sizeof source);
    wc->qp_num = source.qpn;
    wc->src_qp = source.source_qpn;
  } else {
    wc->qp_num = cqe_owner.qp->shared->qpn;
    wc->src_qp = cqe_owner.qp->shared->dest_qpn;
  }
  wc->wc_flags = (entry.flags & kCqeWithImmediate) != 0 ? IBV_WC_WITH_IMM : 0;
  if ((entry.flags & kCqeWithInvalidate) != 0) wc->wc_flags = IBV_WC_WITH_INV;
  wc->pkey_index = 0;
  wc->slid = 0;
  wc->sl = 0;
  wc->dlid_path_bits = 0;
  if ((entry.flags & kCqeDatagram) != 0) fill_origin(entry, wc);
  if (receive) {
    if (eager) scatter(cq, cqe_owner, entry, read_ahead);
    wc->opcode = static_cast<ibv_wc_opcode>(entry.opcode | IBV_WC_RECV);
    if (cqe_owner.srq != nullptr && is_tag_completion(entry)) [[unlikely]] {
      fill_tag(cq, cqe_owner, entry, wc, tag);
    } else if (cqe_owner.srq != nullptr) {
      wc->wr_id = wr_id_of(*cqe_owner.srq, entry.index);
      free_slot(*cqe_owner.srq, entry.index);
    } else {
      Qp& qp = *cqe_owner.qp;
      wc->wr_id = qp.rq_wr_ids[entry.index & qp.receives.mask()];
      free_slots(qp.rq_freed, entry.index);
    }
    if (entry.status != IBV_WC_SUCCESS && cqe_owner.qp != nullptr)
      note_error(*cqe_owner.qp, entry, wc->wr_id);
  } else {
    Qp& qp = *cqe_owner.qp;
    wc->opcode = static_cast<ibv_wc_opcode>(entry.opcode);
    wc->wr_id = entry.wr_id;
    free_send_slots(qp, entry.index);
    qp.shared->sq_completed.store(qp.sq_freed.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
}

// A run of receive completions of one queue pair, whose receives are its own or those of an SRQ. The queue
// pair is looked up once per run. Under Cq::lock, which keeps the QP in existence.
class Series {
 public:
  Series() = default;
  Series(const Series&) = delete;
  Series& operator=(const Series&) = delete;
  ~Series() { end(); }

  // Fills *wc from an ordinary receive completion. False, and nothing is done: it is another one, or has no
  // owner.
  bool fill_received(Cq& cq, const Cqe& entry, bool eager, uint32_t read_ahead, ibv_wc* wc) {
    constexpr uint8_t kOrdinary =
        kCqeReceive | kCqeInline | kCqeWithImmediate | kCqeSolicited | kCqeFromShared;
    const uint8_t flags = entry.flags;
    if ((flags & kCqeReceive) == 0 || (flags & ~kOrdinary) != 0) return false;
    if (owner_.qp == nullptr || entry.qp_index != index_ || entry.qp_incarnation != incarnation_ ||
        ((flags & kCqeFromShared) != 0) != (owner_.srq != nullptr))
      if (!begin(cq, entry)) return false;
    const uint32_t number = entry.index;
    if (owner_.srq != nullptr && number >= owner_.srq->ring.slots()) return false;
    if (eager) {
      const ReceiveWqe& wqe =
          owner_.srq != nullptr ? owner_.srq->ring.wqe(number) : owner_.qp->receives.wqe(number);
      if (wqe.sge_count == 1 && (flags & kCqeInline) != 0)
        scatter_inline(cq, wqe.sge[0], entry);
      else
        scatter(cq, owner_, entry, read_ahead);
    }
    wc->wr_id = take_wr_id(number);
    wc->status = static_cast<ibv_wc_status>(entry.status);
    if (entry.status != IBV_WC_SUCCESS) [[unlikely]]
      note_error(*owner_.qp, entry, wc->wr_id);
    wc->opcode = static_cast<ibv_wc_opcode>(entry.opcode | IBV_WC_RECV);
    wc->vendor_err = entry.vendor_err;
    wc->byte_len = entry.byte_len;
    wc->imm_data = entry.immediate;
    wc->qp_num = qpn_;
    wc->src_qp = peer_qpn_;
    wc->wc_flags = (flags & kCqeWithImmediate) != 0 ? IBV_WC_WITH_IMM : 0;
    wc->pkey_index = 0;
    wc->slid = 0;
    wc->sl = 0;
    wc->dlid_path_bits = 0;
    return true;
  }

  // Frees the slots up to the last one received, and prefetches those that will be posted next.
  void end() {
    if (owner_.srq != nullptr) {
      owner_.srq->ring.prepare_posts();
    } else if (owner_.qp != nullptr) {
      Qp& qp = *owner_.qp;
      free_slots(qp.rq_freed, last_);
      qp.receives.prepare_posts(qp.shared->rq_posted.load(std::memory_order_relaxed));
    }
    owner_ = {};
  }

 private:
  void scatter_inline(Cq& cq, const WqeSge sge, const Cqe& entry) const {
    const uint32_t n = std::min({sge.length, entry.byte_len, kCqeInlineSize});
    if (n != 0 && is_registered(cq, owner_, sge, n))
      copy_small(reinterpret_cast<void*>(sge.address), entry.payload, n);
  }
  // Also frees the slot, at once or at the end of the series.
  uint64_t take_wr_id(uint32_t number) {
    if (Srq* const srq = owner_.srq; srq != nullptr) {
      const uint64_t wr_id = srq->slot(number).wr_id;
      free_slot(*srq, number);
      return wr_id;
    }
    if (static_cast<int32_t>(number - last_) > 0) last_ = number;
    const Qp& qp = *owner_.qp;
    return qp.rq_wr_ids[number & qp.receives.mask()];
  }
  bool begin(const Cq& cq, const Cqe& entry) {
    end();
    const CqeOwner cqe_owner = cqe_owner_of(cq, entry);
    if (cqe_owner.qp == nullptr || (cqe_owner.srq != nullptr && cqe_owner.srq->tags)) return false;
    owner_ = cqe_owner;
    index_ = owner_.qp->index;
    incarnation_ = owner_.qp->shared->incarnation;
    qpn_ = owner_.qp->shared->qpn;
    peer_qpn_ = owner_.qp->shared->dest_qpn;
    last_ = entry.index;
    return true;
  }

  CqeOwner owner_{};  // the SRQ matches no tags
  uint32_t index_ = 0;
  uint32_t incarnation_ = 0;
  uint32_t qpn_ = 0;
  uint32_t peer_qpn_ = 0;
  uint32_t last_ = 0;  // receive WQE of the QP's own queue, low 32 bits of its number
};

// Of the calling thread, for all its CQs.
__attribute__((tls_model("initial-exec"))) constinit thread_local PollPatience patience;

// The calling thread has polled in vain for some time. It holds no lock. True: other threads had the
// processor.
[[gnu::noinline]] bool look_around() {
  if (!patience.look(now_ns())) return false;
  sched_yield();
  patience.yielded(now_ns());
  return true;
}

}  // namespace

void scatter_eager(Cq& cq) {
  std::lock_guard lock(cq.lock);
  cq.consumer.for_each([&](Cqe& entry, bool eager) {
    if (!eager) return false;
    const CqeOwner cqe_owner = cqe_owner_of(cq, entry);
    if (cqe_owner.qp == nullptr && cqe_owner.srq == nullptr) return false;
    scatter_safely(cq, cqe_owner, entry);
    CompletionConsumer::mark_scattered(entry);
    return false;
  });
}

namespace {

[[gnu::cold]] void tell_of_polled(Observer& observer, const ibv_wc* wc, int count) {
  for (int i = 0; i < count; ++i)
    observer.on_poll({wc[i].qp_num, wc[i].wr_id, wc[i].byte_len, static_cast<uint8_t>(wc[i].status),
                      static_cast<uint8_t>(wc[i].opcode & ~IBV_WC_RECV), (wc[i].opcode & IBV_WC_RECV) != 0});
}

[[gnu::cold]] void show_polled([[maybe_unused]] const ibv_wc* wc, int count) {
  for (int i = 0; i < count; ++i)
    VERBENA_PROBE_COMPLETION(wc[i].qp_num, wc[i].wr_id, wc[i].status, wc[i].opcode, wc[i].byte_len);
}

// Takes completions as ibv_poll_cq(3) does: how many, or -errno. No lock is held on return.
inline int take_completions(Cq* cq, int num_entries, ibv_wc* wc, uint64_t* stamps, ibv_wc_tm_info* tag) {
  // A producer that was stopped between claiming and publishing an entry hides the entries behind it. To look
  // behind it costs time. A program woken by events may poll only once, so each poll looks; without a channel
  // every 32nd does.
  bool thoroughly = false;
  if (const int64_t pause = cq->look_again_at.load(std::memory_order_relaxed); pause != 0) {
    // An armed CQ may be about to be waited for: another thread may have set the pause after it was armed.
    if (received_in_a_row >= kStream && now_ns() < pause && !is_armed(cq->shared->armed)) {
      if (cq->process->scheduler().has_work()) progress_from_poll(*cq->process);
      return 0;
    }
    cq->look_again_at.store(0, std::memory_order_relaxed);
  }
  if (cq->consumer.seems_empty()) {
    if (cq->context->failed.load(std::memory_order_relaxed)) return -EIO;
    const bool several_producers = cq->users.load(std::memory_order_relaxed) > 1;
    thoroughly = several_producers && (cq->channel != nullptr ||
                                       (cq->empty_polls.fetch_add(1, std::memory_order_relaxed) & 31) == 31);
    if (!thoroughly) {
      if (!cq->process->scheduler().has_work()) return 0;
      progress_from_poll(*cq->process);
      if (cq->consumer.seems_empty()) return 0;
    }
  }
  int count = 0;
  cq->lock.lock();
  Series series;
  while (count < num_entries) {
    bool eager = false;
    Cqe* entry = cq->consumer.take(&eager, thoroughly);
    if (entry == nullptr) break;
    if (stamps != nullptr) stamps[count] = entry->stamp();
    if (series.fill_received(*cq, *entry, eager, cq->consumer.read_ahead(), &wc[count]))
      ++count;
    else if (const CqeOwner cqe_owner = cqe_owner_of(*cq, *entry);
             cqe_owner.qp != nullptr || cqe_owner.srq != nullptr)
      fill_wc(*cq, cqe_owner, *entry, eager, cq->consumer.read_ahead(), &wc[count++], tag);
    cq->consumer.consume();
  }
  if (VERBENA_PROBE_IS_WATCHED(completion)) [[unlikely]]
    show_polled(wc, count);
  series.end();
  // The next message comes to the head, and then the entry behind it is looked at. In a stream the producer
  // may be writing there already.
  if (count < num_entries && received_in_a_row < kReplies) cq->consumer.fetch_behind_head();
  cq->consumer.finish();
  cq->lock.unlock();
  if (Observer* const seen = observer(); seen != nullptr && count != 0) [[unlikely]]
    tell_of_polled(*seen, wc, count);
  received_in_a_row += static_cast<uint32_t>(count);
  if (received_in_a_row >= kStream && count < num_entries)
    cq->look_again_at.store(now_ns() + stream_pause(cq->consumer.ring().capacity()),
                            std::memory_order_relaxed);
  return count;
}

}  // namespace

namespace {

// Messages of tags that this process has to fetch itself. The caller holds no lock.
[[gnu::cold, gnu::noinline]] void start_rendezvous(Cq& cq) {
  const KeepErrno guard;
  cq.rendezvous_due.store(false, std::memory_order_relaxed);
  Process& process = *cq.process;
  std::lock_guard lock(process.serving_mutex());
  const uint32_t limit = process.srq_indices().ever_taken();
  for (uint32_t i = 0; i < limit; ++i)
    if (Srq* const srq = process.srq(i); srq != nullptr && srq->cq == &cq && srq->tags)
      srq->tags->starter->start(*srq);
}

}  // namespace

int poll_cq(Cq* cq, int num_entries, ibv_wc* wc, uint64_t* stamps, ibv_wc_tm_info* tag) {
  if (cq->process->dead()) return -EIO;
  if (num_entries < 0) {
    VERBENA_WARN(poll_negative, "ibv_poll_cq: CQ %u: num_entries %d is negative", cq->index, num_entries);
    return -EINVAL;
  }
  // A thread that waits for an event, and polls once, would miss what is held.
  if (faults::Injection* const injection = faults::injection();
      injection != nullptr && cq->channel == nullptr) [[unlikely]]
    if (injection->holds_poll(cq->index, now_ns())) return 0;
  // "Empty" is true when the call returns, so it looks once more after a yield, which takes milliseconds if
  // another thread computes: a peer may have sent its last message and disconnected meanwhile. A program that
  // reads the event next destroys the queue pair, and its completions with it (libfabric 1.17: rxm_close_conn
  // closes the endpoint before it flushes the CQ). What the peer knows to have arrived is in the ring: to
  // look again needs no progress.
  do {
    const int count = take_completions(cq, num_entries, wc, stamps, tag);
    if (cq->rendezvous_due.load(std::memory_order_relaxed)) [[unlikely]]
      start_rendezvous(*cq);
    if (count != 0) {
      patience.found();
      return count;
    }
  } while (patience.is_due() && look_around() && !cq->consumer.seems_empty());
  return 0;
}

uint32_t count_completions(Cq* cq) {
  if (cq->process->dead()) return 0;
  uint32_t count = 0;
  std::lock_guard lock(cq->lock);
  cq->consumer.for_each([&](const Cqe& entry, bool) {
    const CqeOwner owner = cqe_owner_of(*cq, entry);
    count += owner.qp != nullptr || owner.srq != nullptr;
    return false;
  });
  return count;
}

bool has_overrun(const Cq* cq) { return cq->failed.load(std::memory_order_relaxed); }

}  // namespace verbena
