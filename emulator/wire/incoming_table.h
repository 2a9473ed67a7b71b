// SPDX-License-Identifier: BSD-2-Clause
//
// The unfinished connections from other nodes: a bounded number, of whatever peers. The service thread
// alone.
//
// Those that have sent a valid hello are kept apart from those that have not, each kind up to a limit, so
// that neither displaces the other. Beyond its limit a kind loses a connection of the source that has most
// of them there, the oldest of these. So
// - a peer that has said its hello is not displaced by any number of strangers that have not,
// - a peer is not displaced by strangers from another source, unless these have as many sources as there are
//   places.
// A source is an IPv4 address, or the first 64 bits of an IPv6 address: who has one of these has all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "wire/incoming.h"

namespace verbena::wire {

class IncomingTable {
 public:
  // Places for each kind. Each takes a descriptor and about 700 bytes of the process.
  static constexpr size_t kMostSilent = 128, kMostGreeted = 128;

  // Takes a connection that has sent nothing yet. `token`: greater than any before. Another one may be
  // closed.
  Incoming& add(uint64_t token, std::unique_ptr<Incoming> incoming);
  // nullptr: it is not here any more.
  Incoming* find(uint64_t token) const;
  // The connection of the token has sent a valid hello. Another one may be closed. Idempotent.
  void greeted(uint64_t token);
  // Takes the connection out; nullptr: it is not here.
  std::unique_ptr<Incoming> take(uint64_t token);
  // Takes out a connection whose time limit has passed; nullptr: there is none.
  std::unique_ptr<Incoming> take_expired(int64_t now);
  // When the first time limit passes, ns; kEndOfTime (adapter/clock.h): the table is empty.
  int64_t deadline_ns() const;
  size_t size() const { return silent_.size() + greeted_.size(); }
  void clear();

 private:
  class Kind {
   public:
    explicit Kind(size_t most) : most_(most) {}
    Incoming& add(uint64_t token, std::unique_ptr<Incoming> incoming);
    Incoming* find(uint64_t token) const;
    std::unique_ptr<Incoming> take(uint64_t token);
    const Incoming* oldest() const { return all_.empty() ? nullptr : all_.begin()->second.get(); }
    uint64_t oldest_token() const { return all_.begin()->first; }
    size_t size() const { return all_.size(); }
    void clear();

   private:
    using Source = std::array<uint8_t, 16>;
    static Source source_of(const Incoming& incoming);
    void close_one();

    const size_t most_;
    std::map<uint64_t, std::unique_ptr<Incoming>> all_;  // the oldest first
    std::map<Source, size_t> sources_;                   // how many of all_ each has
  };

  Kind silent_{kMostSilent}, greeted_{kMostGreeted};
};

}  // namespace verbena::wire
