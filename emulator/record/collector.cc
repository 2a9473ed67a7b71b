// SPDX-License-Identifier: BSD-2-Clause
#include "record/collector.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "adapter/clock.h"
#include "fabric/instruments.h"
#include "fabric/private_folder.h"
#include "fabric/slot_folder.h"

namespace verbena::record {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostAtOnce = 256 << 20;    // bytes of a ring in one pass: its process may go on writing
constexpr size_t kTakenBetweenReads = 1024;  // records

bool is_alive(const NodeDirectory& directory, const RingOwner& owner) {
  return owner.slot < kMaxSlots && directory.alive(owner.slot, owner.generation);
}

}  // namespace

void Collector::forget(const Source& source) { lost_before_ += source.reader.lost(); }

void Collector::find_rings() {
  const std::string folder = records_folder(node_);
  if (check_private_folder(folder, nullptr) != 0) return;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    const std::string name = file->path().filename().string();
    struct stat status;
    if (name.ends_with(kFreshRing) || lstat(file->path().c_str(), &status) != 0) continue;
    // A process that is recorded again, or for another instrument, has made a new ring. The old one ends.
    if (const auto known = sources_.find(name); known != sources_.end()) {
      if (known->second.reader.file() == status.st_ino) continue;
      read(known->second);  // what is left there
      if (!known->second.is_over && known->second.reader.has_more()) continue;
      forget(known->second);
      sources_.erase(known);
    }
    Source source;
    if (source.reader.open(file->path().string()) != 0) continue;  // it may not be complete yet
    if (source.reader.owner().node_id != directory_.header().node_id) continue;
    source.number = static_cast<uint32_t>(owners_.size());
    owners_.push_back(source.reader.owner());
    sources_.emplace(name, std::move(source));
  }
}

void Collector::read(Source& source) {
  const size_t most = bytes_.size() + kMostAtOnce;
  while (!source.is_over && bytes_.size() < most) {
    const size_t place = bytes_.size();
    const RingReader::Next next = source.reader.append(&bytes_);
    if (next == RingReader::Next::kNone) return;
    if (next == RingReader::Next::kDamaged) {
      source.is_over = true;
      ++damaged_;
      return;
    }
    Head head;
    std::memcpy(&head, bytes_.data() + place, sizeof head);
    waiting_.push_back({head.time, place, head.size, source.number});
  }
}

void Collector::collect(int64_t until, const Take& take) {
  find_rings();
  for (auto& [name, source] : sources_) read(source);
  std::ranges::stable_sort(waiting_, {}, &Item::time);
  const size_t sorted = waiting_.size();
  size_t taken = 0;
  while (taken < sorted && waiting_[taken].time < until) {
    const Item item = waiting_[taken++];
    take(item.ring, owners_[item.ring], std::span(bytes_).subspan(item.place, item.size));
    // What is done with a record takes longer than to write it: meanwhile the rings would be overwritten.
    // What is read now waits for the next time, if there is one.
    if (taken % kTakenBetweenReads == 0 && bytes_.size() < kMostAtOnce && until != kEndOfTime)
      for (auto& [name, source] : sources_) read(source);
  }
  drop_taken(taken);
}

// The first `count` of waiting_. The bytes of the others move together. Both buffers keep their memory: to
// get new pages from the kernel for each pass takes longer than to read the ring.
void Collector::drop_taken(size_t count) {
  if (count == 0) return;
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count));
  spare_.clear();
  for (Item& item : waiting_) {
    const auto from = bytes_.begin() + static_cast<ptrdiff_t>(item.place);
    item.place = spare_.size();
    spare_.insert(spare_.end(), from, from + item.size);
  }
  std::swap(bytes_, spare_);
}

void Collector::remove_finished() {
  for (auto source = sources_.begin(); source != sources_.end();) {
    const uint32_t number = source->second.number;
    const bool waits = std::ranges::any_of(waiting_, [&](const Item& item) { return item.ring == number; });
    RingReader& reader = source->second.reader;
    if (waits || is_alive(directory_, reader.owner()) || (!source->second.is_over && reader.has_more())) {
      ++source;
      continue;
    }
    forget(source->second);
    std::error_code ignored;
    fs::remove(records_folder(node_) + "/" + source->first, ignored);
    source = sources_.erase(source);
  }
}

void Collector::remove_all() {
  find_rings();
  std::error_code ignored;
  for (const auto& [name, source] : sources_) fs::remove(records_folder(node_) + "/" + name, ignored);
}

bool Collector::has_all() const {
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    const Slot& slot = directory_.slot(i);
    const uint32_t generation = slot.generation.load(std::memory_order_acquire);
    if (!directory_.alive(i, generation)) continue;
    const auto source = sources_.find(slot_name(i, generation));
    if (source == sources_.end() || !source->second.reader.is_written()) return false;
  }
  return true;
}

uint64_t Collector::lost() const {
  uint64_t sum = lost_before_;
  for (const auto& [name, source] : sources_) sum += source.reader.lost();
  return sum;
}

}  // namespace verbena::record
