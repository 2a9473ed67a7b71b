// SPDX-License-Identifier: BSD-2-Clause
#include "wire/incoming_table.h"

#include <algorithm>
#include <utility>

#include "adapter/clock.h"

namespace verbena::wire {

// ---- one kind ----

IncomingTable::Kind::Source IncomingTable::Kind::source_of(const Incoming& incoming) {
  Source source = incoming.peer().bytes;
  if (!incoming.peer().is_ipv4()) std::fill(source.begin() + 8, source.end(), uint8_t{0});
  return source;
}

void IncomingTable::Kind::close_one() {
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  const size_t most = std::max_element(sources_.begin(), sources_.end(), fewer)->second;
  const auto oldest = std::find_if(all_.begin(), all_.end(), [&](const auto& each) {
    return sources_.at(source_of(*each.second)) == most;
  });
  take(oldest->first);
}

Incoming& IncomingTable::Kind::add(uint64_t token, std::unique_ptr<Incoming> incoming) {
  if (all_.size() == most_) close_one();
  ++sources_[source_of(*incoming)];
  return *(all_[token] = std::move(incoming));
}

Incoming* IncomingTable::Kind::find(uint64_t token) const {
  const auto found = all_.find(token);
  return found == all_.end() ? nullptr : found->second.get();
}

std::unique_ptr<Incoming> IncomingTable::Kind::take(uint64_t token) {
  const auto found = all_.find(token);
  if (found == all_.end()) return nullptr;
  std::unique_ptr<Incoming> taken = std::move(found->second);
  all_.erase(found);
  if (const auto source = sources_.find(source_of(*taken)); --source->second == 0) sources_.erase(source);
  return taken;
}

void IncomingTable::Kind::clear() {
  all_.clear();
  sources_.clear();
}

// ---- both ----

Incoming& IncomingTable::add(uint64_t token, std::unique_ptr<Incoming> incoming) {
  return silent_.add(token, std::move(incoming));
}

Incoming* IncomingTable::find(uint64_t token) const {
  Incoming* const found = greeted_.find(token);
  return found != nullptr ? found : silent_.find(token);
}

void IncomingTable::greeted(uint64_t token) {
  if (std::unique_ptr<Incoming> incoming = silent_.take(token)) greeted_.add(token, std::move(incoming));
}

std::unique_ptr<Incoming> IncomingTable::take(uint64_t token) {
  std::unique_ptr<Incoming> taken = greeted_.take(token);
  return taken != nullptr ? std::move(taken) : silent_.take(token);
}

std::unique_ptr<Incoming> IncomingTable::take_expired(int64_t now) {
  for (Kind* kind : {&silent_, &greeted_})
    if (const Incoming* oldest = kind->oldest(); oldest != nullptr && oldest->deadline_ns() <= now)
      return kind->take(kind->oldest_token());
  return nullptr;
}

int64_t IncomingTable::deadline_ns() const {
  int64_t first = kEndOfTime;
  for (const Kind* kind : {&silent_, &greeted_})
    if (const Incoming* oldest = kind->oldest(); oldest != nullptr)
      first = std::min(first, oldest->deadline_ns());
  return first;
}

void IncomingTable::clear() {
  silent_.clear();
  greeted_.clear();
}

}  // namespace verbena::wire
