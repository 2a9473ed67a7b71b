// SPDX-License-Identifier: BSD-2-Clause
//
// Completion queues and their channels (ibv_create_cq(3), ibv_poll_cq(3), ibv_req_notify_cq(3),
// ibv_get_cq_event(3)).
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "engine/clock.h"
#include "engine/cq_rings.h"
#include "engine/device_attributes.h"
#include "engine/error_flow.h"
#include "engine/objects.h"
#include "engine/small_copy.h"
#include "engine/streaming.h"
#include "observe/log.h"

namespace verbena {
namespace {

bool worker_alive(void* process, uint32_t packed) {
  return static_cast<Process*>(process)->directory().worker_alive(packed);
}

// Whose entry it is: a QP's, or of an XRC SRQ. Both nullptr: nobody's, or the entry is not to be believed.
struct Party {
  Qp* qp;
  Srq* srq;  // where the receive WQE came from; nullptr: the QP's own ring
};

// What has landed: the WQE whose buffers it belongs to, and where it lies now.
struct Landed {
  const ReceiveWqe& wqe;
  uint32_t max_sge;
  std::byte* from;
  uint32_t length;
};

Landed landed_of(const Party& party, const Cqe& entry) {
  const ReceiveWqe& wqe =
      party.srq != nullptr ? party.srq->ring.wqe(entry.index) : party.qp->receives.wqe(entry.index);
  const uint32_t max_sge = party.srq != nullptr ? party.srq->ring.max_sge : party.qp->receives.max_sge;
  if ((entry.flags & kCqeInline) != 0) {
    const uint32_t header = (entry.flags & (kCqeDatagram | kCqeXrc)) != 0 ? sizeof(DatagramSource) : 0;
    return {wqe, max_sge, reinterpret_cast<std::byte*>(const_cast<uint8_t*>(entry.payload)) + header,
            std::min<uint32_t>(entry.byte_len, kCqeInlineSize - header)};
  }
  return {wqe, max_sge,
          party.srq != nullptr ? party.srq->ring.landing(entry.index) : party.qp->receives.landing(entry.index),
          std::min(entry.byte_len, kLandingSize)};
}

// A message that arrived in the receive slot goes to the buffers of its WQE. `read_ahead`: so many slots further
// on another message lies already, by all likelihood.
void scatter(const Party& party, const Cqe& entry, uint32_t read_ahead) {
  const auto [wqe, max_sge, source, length] = landed_of(party, entry);
  uint32_t left = length;
  if ((entry.flags & kCqeInline) == 0 && read_ahead != 0 && party.srq == nullptr) {
    const std::byte* next = party.qp->receives.landing(entry.index + read_ahead);
    for (uint32_t at = 0; at < left; at += kCacheLine) prefetch(next + at);
  }
  const std::byte* from = source;
  for (uint32_t i = 0; i < wqe.sge_count && i < max_sge && left != 0; ++i) {
    const uint32_t n = std::min(wqe.sge[i].length, left);
    if (n == 0) continue;
    copy_small(reinterpret_cast<void*>(wqe.sge[i].address), from, n);
    from += n;
    left -= n;
  }
}

// The same by the kernel's hand, off the data path: the program may have unmapped the buffer before it deregisters it.
void scatter_safely(Process& process, const Party& party, const Cqe& entry) {
  const auto [wqe, max_sge, source, length] = landed_of(party, entry);
  uint32_t left = length;
  std::byte* from = source;
  for (uint32_t i = 0; i < wqe.sge_count && i < max_sge && left != 0; ++i) {
    const uint32_t n = std::min(wqe.sge[i].length, left);
    const iovec local{from, n}, remote{reinterpret_cast<void*>(wqe.sge[i].address), n};
    process.self().write(process.directory(), &local, 1, &remote, 1);
    from += n;
    left -= n;
  }
}

Party party_of(const Cq& cq, const Cqe& entry) {
  if ((entry.flags & kCqeFromShared) != 0) {
    Qp* qp = nullptr;
    Srq* srq = shared_queue_of(cq, entry, &qp);
    if (srq == nullptr || entry.index >= srq->slots.size()) return {nullptr, nullptr};
    return {qp, srq};
  }
  const uint32_t index = std::atomic_ref(const_cast<uint32_t&>(entry.qp_index)).load(std::memory_order_relaxed);
  Qp* qp = index < kMaxQpsPerProcess ? cq.process->qp(index) : nullptr;
  if (qp == nullptr || qp->shared->birth != entry.qp_birth) return {nullptr, nullptr};
  if ((entry.flags & kCqeReceive) != 0 && qp->receives.ready == nullptr) return {nullptr, nullptr};
  return {qp, nullptr};
}

// Slots below `index` (32 low bits of a running number) are free from now on.
void free_slots(std::atomic<uint64_t>& freed, uint32_t index) {
  const uint64_t before = freed.load(std::memory_order_relaxed);
  const uint32_t ahead = index - static_cast<uint32_t>(before);
  if (ahead < 0x8000'0000u) freed.store(before + ahead + 1, std::memory_order_release);
}

// Where a datagram came from.
void fill_origin(const Cqe& entry, ibv_wc* wc) {
  DatagramSource source;
  std::memcpy(&source, entry.payload, sizeof source);
  wc->src_qp = source.qpn;
  wc->slid = source.lid;
  wc->sl = source.sl;
  wc->dlid_path_bits = source.path_bits & ~DatagramSource::kWithGrh;
  if ((source.path_bits & DatagramSource::kWithGrh) != 0) wc->wc_flags |= IBV_WC_GRH;
}

void fill_wc(const Party& party, const Cqe& entry, bool landed, uint32_t read_ahead, ibv_wc* wc) {
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
    wc->qp_num = party.qp->shared->qpn;
    wc->src_qp = party.qp->shared->dest_qpn;
  }
  wc->wc_flags = (entry.flags & kCqeWithImmediate) != 0 ? IBV_WC_WITH_IMM : 0;
  if ((entry.flags & kCqeWithInvalidate) != 0) wc->wc_flags = IBV_WC_WITH_INV;
  wc->pkey_index = 0;
  wc->slid = 0;
  wc->sl = 0;
  wc->dlid_path_bits = 0;
  if ((entry.flags & kCqeDatagram) != 0) fill_origin(entry, wc);
  if (receive) {
    if (landed) scatter(party, entry, read_ahead);
    wc->opcode = static_cast<ibv_wc_opcode>(entry.opcode | IBV_WC_RECV);
    if (party.srq != nullptr) {
      wc->wr_id = wr_id_of(*party.srq, entry.index);
      free_slot(*party.srq, entry.index);
    } else {
      Qp& qp = *party.qp;
      wc->wr_id = qp.rq_wr_ids[entry.index & qp.receives.mask()];
      free_slots(qp.rq_freed, entry.index);
    }
  } else {
    Qp& qp = *party.qp;
    wc->opcode = static_cast<ibv_wc_opcode>(entry.opcode);
    wc->wr_id = entry.wr_id;
    free_slots(qp.sq_freed, entry.index);
    qp.shared->sq_completed.store(qp.sq_freed.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
}

std::string channel_path(Context& context, uint32_t number) {
  return context.process->home().folder() + "/c" + std::to_string(number);
}

// The channel whose reading end the program holds as `fd`; nullptr: none. Channels that the program has
// closed are dropped on the way: libibverbs closes them without telling the provider.
CompChannel* find_channel(Context& context, int fd) {
  CompChannel* found = nullptr;
  std::lock_guard lock(context.channels_mutex);
  std::erase_if(context.channels, [&](const std::unique_ptr<CompChannel>& channel) {
    const bool held = channel->fifo.is_same_pipe(channel->program_fd);
    if (held && channel->program_fd == fd) {
      found = channel.get();
      return false;
    }
    return !held && channel->users.load(std::memory_order_acquire) == 0;
  });
  return found;
}

}  // namespace

void Process::owe_event(uint64_t user_handle) {
  std::lock_guard lock(attend_mutex_);
  const uint32_t limit = view().header().cq_high_water.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < limit; ++i) {
    Cq* cq = this->cq(i);
    if (cq == nullptr || cq->user_handle != user_handle) continue;
    cq->shared->lost.fetch_add(1, std::memory_order_acq_rel);
    view().header().lost_events.store(1, std::memory_order_release);
    call_attention();
  }
}

bool Process::reinject_lost_events() {
  SegmentHeader& header = view().header();
  if (header.lost_events.exchange(0, std::memory_order_acq_rel) == 0) return true;
  std::lock_guard lock(attend_mutex_);
  bool all = true;
  const uint32_t limit = header.cq_high_water.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < limit; ++i) {
    Cq* cq = this->cq(i);
    if (cq == nullptr || cq->channel == nullptr) continue;
    while (cq->shared->lost.load(std::memory_order_acquire) != 0) {
      if (cq->channel->fifo.write(&cq->user_handle, sizeof cq->user_handle) != 0) {
        all = false;
        break;
      }
      cq->shared->lost.fetch_sub(1, std::memory_order_acq_rel);
    }
  }
  if (!all) header.lost_events.store(1, std::memory_order_release);
  return all;
}

void scatter_landed(Cq& cq) {
  std::lock_guard lock(cq.lock);
  cq.consumer.for_each([&](Cqe& entry, bool landed) {
    if (!landed) return false;
    const Party party = party_of(cq, entry);
    if (party.qp == nullptr && party.srq == nullptr) return false;
    scatter_safely(*cq.process, party, entry);
    CompletionConsumer::mark_scattered(entry);
    return false;
  });
}

CompChannel::~CompChannel() { unlink(path.c_str()); }

int create_comp_channel(Context* context, int* fd) {
  if (int error = usable(*context); error != 0) return error;
  static std::atomic<uint32_t> next_number{1};
  find_channel(*context, -1);
  auto channel = std::make_unique<CompChannel>();
  channel->number = next_number.fetch_add(1, std::memory_order_relaxed);
  channel->path = channel_path(*context, channel->number);
  if (int error = channel->fifo.make(channel->path); error != 0) return error;
  channel->program_fd = FifoEnd::open_reader(channel->path);
  if (channel->program_fd < 0) return errno;
  *fd = channel->program_fd;
  std::lock_guard lock(context->channels_mutex);
  context->channels.push_back(std::move(channel));
  return 0;
}

int create_cq(Context* context, int cqe, int channel_fd, int comp_vector, uint64_t user_handle, Cq** out,
              const CqOptions& options) {
  Process& process = *context->process;
  if (int error = usable(*context); error != 0) return error;
  if (const uint64_t most = context->device->limits.max_cqe; cqe < 1 || static_cast<uint32_t>(cqe) > most) {
    VERBENA_WARN("ibv_create_cq: %d entries: must be 1 to %llu", cqe, static_cast<unsigned long long>(most));
    return EINVAL;
  }
  if (comp_vector < 0 || comp_vector >= kCompletionVectors) {
    VERBENA_WARN("ibv_create_cq: completion vector %d: must be below %d", comp_vector, kCompletionVectors);
    return EINVAL;
  }
  CompChannel* channel = nullptr;
  if (channel_fd >= 0 && (channel = find_channel(*context, channel_fd)) == nullptr) return EINVAL;

  auto* cq = new (std::nothrow) Cq;
  if (cq == nullptr) return ENOMEM;
  const bool counted = take_quota(*context, Counted::kCqs, "ibv_create_cq") == 0;
  if (!counted || !process.cq_indices().take(&cq->index)) {
    if (counted) give_quota(*context, Counted::kCqs);
    delete cq;
    return ENOMEM;
  }
  const bool committed =
      process.segment().commit(kCqTableOffset + sizeof(SharedCq) * cq->index, sizeof(SharedCq)) == 0;
  cq->shared = committed ? process.view().cq(cq->index) : nullptr;
  if (cq->shared == nullptr ||
      make_cq_ring(process, cq->shared->rings[0], cq_ring_order(static_cast<uint32_t>(cqe))) != 0) {
    process.cq_indices().give(cq->index);
    give_quota(*context, Counted::kCqs);
    delete cq;
    return ENOMEM;
  }
  cq->context = context;
  cq->process = &process;
  cq->user_handle = user_handle;
  cq->ignore_overrun = options.ignore_overrun;
  cq->channel = channel;
  SharedCq& shared = *cq->shared;
  shared.ring_generation.store(0, std::memory_order_relaxed);
  shared.scattered_generation.store(0, std::memory_order_relaxed);
  shared.user_handle = user_handle;
  shared.channel = channel != nullptr ? channel->number : 0;
  shared.flags = (options.stamped ? kCqStamped : 0u) | (options.ignore_overrun ? kCqIgnoresOverrun : 0u);
  shared.armed.store(Armed::kNo, std::memory_order_relaxed);
  shared.overrun.store(0, std::memory_order_relaxed);
  shared.raised.store(0, std::memory_order_relaxed);
  shared.lost.store(0, std::memory_order_relaxed);
  for (auto* word : {&shared.moderation, &shared.unreported, &shared.timer_asked})
    word->store(0, std::memory_order_relaxed);
  shared.alive.store(1, std::memory_order_release);
  cq->ring.follow(process.view(), shared);
  cq->consumer.begin(cq->ring.current(), worker_alive, &process);
  if (channel != nullptr) channel->users.fetch_add(1, std::memory_order_relaxed);
  std::atomic<uint32_t>& high_water = process.view().header().cq_high_water;
  for (uint32_t seen = high_water.load();
       seen <= cq->index && !high_water.compare_exchange_weak(seen, cq->index + 1);) {
  }
  process.set_cq(cq->index, cq);
  *out = cq;
  return 0;
}

int cq_capacity(const Cq* cq) {
  const uint64_t most = cq->context->device->limits.max_cqe;
  return static_cast<int>(std::min(uint64_t{1} << cq->ring.current().order, most));
}
uint32_t cq_handle(const Cq* cq) { return cq->index; }

int poll_cq(Cq* cq, int num_entries, ibv_wc* wc, uint64_t* stamps) {
  if (cq->process->dead()) return -EIO;
  if (num_entries < 0) return -EINVAL;
  // A producer that was stopped between claiming and filling an entry hides those behind it. Whoever is woken
  // by events may poll only once, whoever polls without end may look now and then.
  bool thoroughly = false;
  if (const int64_t pause = cq->look_again_at.load(std::memory_order_relaxed); pause != 0) {
    if (received_in_a_row >= kStream && now_ns() < pause) {
      if (cq->process->has_pending()) cq->process->progress_from_poll();
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
      if (cq->process->has_pending()) cq->process->progress_from_poll();
      return 0;
    }
  }
  int count = 0;
  cq->lock.lock();
  while (count < num_entries) {
    bool landed = false;
    Cqe* entry = cq->consumer.take(&landed, thoroughly);
    if (entry == nullptr) break;
    if (stamps != nullptr) stamps[count] = entry->stamp();
    if (const Party party = party_of(*cq, *entry); party.qp != nullptr || party.srq != nullptr)
      fill_wc(party, *entry, landed, cq->consumer.read_ahead(), &wc[count++]);
    cq->consumer.consume();
  }
  cq->consumer.finish();
  cq->lock.unlock();
  received_in_a_row += static_cast<uint32_t>(count);
  if (received_in_a_row >= kStream && count < num_entries)
    cq->look_again_at.store(now_ns() + kStreamPause, std::memory_order_relaxed);
  return count;
}

int req_notify_cq(Cq* cq, bool solicited_only) {
  if (int error = usable(*cq->context); error != 0) return error;
  cq->look_again_at.store(0, std::memory_order_relaxed);
  // Armed for everything stays so when asked for solicited only (ibv_req_notify_cq(3); vol. 1, 11.4.2.2).
  Armed armed = cq->shared->armed.load(std::memory_order_relaxed);
  const Armed wanted = solicited_only ? Armed::kSolicited : Armed::kNext;
  while ((armed == Armed::kRaising || static_cast<uint32_t>(armed) < static_cast<uint32_t>(wanted)) &&
         !cq->shared->armed.compare_exchange_weak(armed, wanted, std::memory_order_acq_rel)) {
  }
  // The other half of the Dekker race in raise_completion_event: the program's next poll sees what was
  // published before anybody could have seen the arming.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return 0;
}

void cq_event(Cq* cq) {
  cq->comp_events.fetch_add(1, std::memory_order_relaxed);
  if (!cq->process->dead() && cq->process->view().header().lost_events.load(std::memory_order_relaxed) != 0)
    cq->process->reinject_lost_events();
}

int destroy_cq(Cq* cq, uint32_t* comp_events, uint32_t* async_events) {
  Process& process = *cq->process;
  *comp_events = *async_events = 0;
  if (process.dead()) return 0;
  if (cq->users.load(std::memory_order_acquire) != 0) {
    VERBENA_WARN("ibv_destroy_cq: %u queue pairs still use it", cq->users.load());
    return EBUSY;
  }
  SharedCq& shared = *cq->shared;
  shared.armed.store(Armed::kNo, std::memory_order_seq_cst);
  shared.alive.store(0, std::memory_order_release);
  process.forget_cq(cq->index);
  process.wait_for_visitors();
  if (cq->channel != nullptr) {
    // What is still in the pipe is taken out; other CQs' records go back in, in their order.
    std::lock_guard lock(cq->channel->drain_mutex);
    std::vector<uint64_t> others;
    uint64_t record;
    while (cq->channel->fifo.read(&record, sizeof record))
      if (record != cq->user_handle) others.push_back(record);
    for (uint64_t other : others)
      if (cq->channel->fifo.write(&other, sizeof other) != 0) process.owe_event(other);
    cq->channel->users.fetch_sub(1, std::memory_order_release);
  }
  *comp_events = cq->comp_events.load(std::memory_order_relaxed);
  *async_events = take_back_events(*cq->context, cq->user_handle, cq->async_events.load());
  release_cq_rings(*cq);
  process.cq_indices().give(cq->index);
  give_quota(*cq->context, Counted::kCqs);
  delete cq;
  return 0;
}

}  // namespace verbena
