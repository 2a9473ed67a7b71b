// SPDX-License-Identifier: BSD-2-Clause
//
// Gathers the records of all processes of a node, living and dead, in the order of their times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "fabric/node_directory.h"
#include "record/ring_reader.h"

namespace verbena::record {

class Collector {
 public:
  // `ring`: a number of the ring, the same for all its records.
  using Take = std::function<void(uint32_t ring, const RingOwner& owner, std::span<const std::byte> record)>;

  // `directory` must live as long. `node`: its path.
  Collector(const NodeDirectory& directory, std::string node)
      : directory_(directory), node_(std::move(node)) {}

  // Reads what there is now, and gives records to `take` that are older than `until`, ns of CLOCK_MONOTONIC.
  // Newer ones are kept: a slower process may still write an older one.
  void collect(int64_t until, const Take& take);

  // Removes the rings of dead processes that are read to their end.
  void remove_finished();
  // Removes all rings: the last instrument ends.
  void remove_all();

  // Does each living process of the node write into a ring that is read?
  bool has_all() const;

  uint64_t lost() const;                         // records overwritten before they were read
  uint32_t damaged() const { return damaged_; }  // rings that could not be read to the end

 private:
  struct Source {
    RingReader reader;
    uint32_t number = 0;
    bool is_over = false;  // damaged
  };
  // A record in bytes_.
  struct Item {
    int64_t time;
    uint64_t place;
    uint32_t size;
    uint32_t ring;
  };

  void find_rings();
  void read(Source& source);
  void drop_taken(size_t count);
  void forget(const Source& source);

  const NodeDirectory& directory_;
  std::string node_;
  std::map<std::string, Source> sources_;  // by the name of the file
  std::vector<RingOwner> owners_;          // by the number of the ring
  std::vector<Item> waiting_;
  std::vector<std::byte> bytes_, spare_;
  uint64_t lost_before_ = 0;  // of rings that are removed
  uint32_t damaged_ = 0;
};

}  // namespace verbena::record
