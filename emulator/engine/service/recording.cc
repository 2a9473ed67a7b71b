// SPDX-License-Identifier: BSD-2-Clause
#include "engine/service/recording.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>

#include "adapter/clock.h"
#include "fabric/instruments.h"
#include "fabric/private_folder.h"
#include "observe/log.h"
#include "record/recorder.h"

namespace verbena {
namespace {

// ns. An instrument that has died is noticed after this time.
constexpr int64_t kWatchPeriod = 1'000'000'000;
// On a node, those of dead processes included.
constexpr size_t kMostRings = 64;

// Is `name` the ring of a living process (slot_name())?
bool has_living_owner(void* context, const std::string& name) {
  const auto& membership = *static_cast<const NodeMembership*>(context);
  unsigned slot = 0, generation = 0;
  return sscanf(name.c_str(), "%u.%u", &slot, &generation) == 2 && slot < kMaxSlots &&
         membership.directory().alive(slot, generation);
}

// Never destroyed: a call that is under way may still reach it.
record::Recorder& recorder() {
  static auto* const only = new record::Recorder;
  return *only;
}

// Another number when an instrument comes, goes or changes its mind.
uint64_t sum_of_entries(const NodeDirectory& directory) {
  uint64_t sum = 0;
  for (const InstrumentEntry& entry : directory.header().instruments)
    sum = (sum + entry.holder.load(std::memory_order_acquire)) * 0x9e3779b97f4a7c15u +
          entry.wish.load(std::memory_order_acquire);
  return sum;
}

uint64_t ring_size(const RecordWish& wish) {
  const uint64_t wanted = uint64_t{wish.ring_mib} << 20;
  if (wanted <= record::kSmallestRing) return record::kSmallestRing;
  return wanted >= record::kLargestRing ? record::kLargestRing : std::bit_floor(wanted);
}

std::string path_of_ring(const NodeMembership& membership) {
  return record_path(membership.node(), membership.slot(), membership.generation());
}

// Can instruments read the ring that is written? The last one may have removed the file as it ended, and the
// next one come before this process saw that.
bool is_readable(const NodeMembership& membership) {
  struct stat status;
  if (lstat(path_of_ring(membership).c_str(), &status) != 0) return errno != ENOENT;
  return status.st_ino == recorder().ring().file();
}

// Makes a new ring and writes there from now on. errno; then the ring before is written, if there was one.
int open_ring(const NodeMembership& membership, const RecordWish& wish) {
  const std::string& node = membership.node();
  const uint32_t slot = membership.slot(), generation = membership.generation();
  const std::string path = path_of_ring(membership), fresh = path + record::kFreshRing;
  record::RingOwner owner{membership.directory().header().node_id, slot, generation, {}};
  const Slot& own = membership.directory().slot(slot);
  memcpy(owner.program, own.program, sizeof own.program);
  int error = ensure_private_folder(records_folder(node), nullptr);
  if (error != 0) return error;
  record::make_room(records_folder(node), kMostRings, has_living_owner,
                    const_cast<NodeMembership*>(&membership));
  if (unlink(fresh.c_str()) != 0 && errno != ENOENT) return errno;
  error = recorder().ring().open(fresh, ring_size(wish), owner);
  // In the place of the ring that instruments have had so far: their readers have it open, and read it to its
  // end.
  if (error == 0 && rename(fresh.c_str(), path.c_str()) != 0) {
    error = errno;
    unlink(fresh.c_str());
  }
  return error;
}

}  // namespace

// Another instrument may want a larger ring.
bool Recording::is_outdated(const NodeMembership& membership, const RecordWish& wish) const {
  const uint64_t wanted = ring_size(wish);
  return (recorder().ring().size() < wanted && wanted != refused_size_) || !is_readable(membership);
}

void Recording::begin(const NodeMembership& membership, const RecordWish& wish) {
  if (const int error = open_ring(membership, wish); error != 0) {
    const std::string path = path_of_ring(membership);
    if (is_attached_ && is_readable(membership)) {
      refused_size_ = ring_size(wish);
      VERBENA_ERROR(
          nothing_recorded,
          "the records of all instruments stay in a ring of %llu MiB: there is none of %llu MiB, which one "
          "of them wants: %s: %s",
          static_cast<unsigned long long>(recorder().ring().size() >> 20),
          static_cast<unsigned long long>(refused_size_ >> 20), path.c_str(), strerror(error));
      return;
    }
    detach();
    VERBENA_ERROR(nothing_recorded, "nothing is recorded for `verbena capture` and `verbena trace`: %s: %s",
                  path.c_str(), strerror(error));
    return;
  }
  refused_size_ = 0;
  if (is_attached_) return;
  Observer* const before = observer();
  recorder().set_next(before);
  set_observer(&recorder());
  retry_observer.store(&recorder(), std::memory_order_release);
  is_attached_ = true;
}

int64_t Recording::follow(const NodeMembership& membership) {
  const uint64_t entries = sum_of_entries(membership.directory());
  std::lock_guard lock(mutex_);
  if (entries == entries_ && (entries == 0 || now_ns() < look_at_)) return look_at_;
  const RecordWish wish = find_record_wish(membership.directory());
  if (entries != entries_) refused_size_ = 0;  // it may be had now
  entries_ = entries;
  look_at_ = entries != 0 ? now_ns() + kWatchPeriod : kEndOfTime;
  const bool needs_ring = wish.classes != 0 && is_attached_ && is_outdated(membership, wish);
  if (!needs_ring && wish.pack() == wish_) return look_at_;
  wish_ = wish.pack();
  if (wish.classes == 0) {
    detach();
  } else {
    recorder().set_wish(wish);
    if (!is_attached_ || needs_ring) begin(membership, wish);
    // Packets are made of what the slow path tells, and so is the log.
    const bool is_content = is_attached_ && wish.classes == kRecordTimeline && recorder().next() == nullptr;
    fast_path_observer.store(is_content ? &recorder() : nullptr, std::memory_order_release);
  }
  return look_at_;
}

void Recording::end() {
  std::lock_guard lock(mutex_);
  detach();
}

void Recording::detach() {
  if (!is_attached_) return;
  is_attached_ = false;
  fast_path_observer.store(nullptr, std::memory_order_release);
  retry_observer.store(nullptr, std::memory_order_release);
  set_observer(recorder().next());
  recorder().set_wish({});
  recorder().ring().close();
}

void Recording::forget() {
  if (observer() != &recorder()) return;
  fast_path_observer.store(nullptr, std::memory_order_release);
  retry_observer.store(nullptr, std::memory_order_release);
  set_observer(recorder().next());
  recorder().set_wish({});
  recorder().ring().forget();
  record::Recorder::forget_thread();
}

}  // namespace verbena
