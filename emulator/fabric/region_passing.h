// SPDX-License-Identifier: BSD-2-Clause
//
// How a peer gets to map the memory of a region: a service of the owner's socket (service_socket.h). If the
// region lies in memory that the owner has mapped MAP_SHARED, the owner passes a descriptor of the file. A
// System V segment is attached by its number.
#pragma once

#include <cstdint>

#include "fabric/service_socket.h"
#include "fabric/shared_file.h"

namespace verbena {

// The peer's request: on the wire.
struct RegionQuery {
  uint32_t index;     // of the key
  uint32_t mappable;  // SharedMr::mappable, as the peer has seen it
  uint32_t slot;      // of the peer, which is woken when the key becomes invalid
  uint32_t generation;
};

// The owner's reply: on the wire, with a descriptor.
struct RegionReply {
  uint64_t device, inode;  // of the file
  uint64_t offset;         // of the region's first byte in the file
  uint64_t address;        // of that byte in the owner's address space
  uint64_t length;         // bytes
  uint64_t alignment;      // of offsets and sizes of a mapping of the file
  uint64_t writable;       // the descriptor is open for writing, and the region was registered for that
  // Not 0: a System V segment, its number + 1 (shmget(2)). It has no descriptor: that of the owner's IPC
  // namespace is passed, in which the number is valid.
  uint64_t segment;
};

// Owner: [reply.address, reply.address + reply.length), which is `writable`, lies in `file`. Completes the
// reply and sends it. False: the owner has no descriptor of the file.
bool pass_region(const ServiceCall& call, const SharedFile& file, RegionReply reply);

// A region's memory in this process.
struct MappedFile {
  void* mapping = nullptr;
  uint64_t mapping_size = 0;
  std::byte* bytes = nullptr;  // where the region's first byte is
  uint64_t address = 0;        // where it is in the owner's address space
  uint64_t length = 0;
  bool writable = false;
  bool is_segment = false;  // of shmat(2)
};
void unmap(const MappedFile& file);  // nothing, if there is no mapping

// Peer: a request without a reply yet.
class RegionRequest {
 public:
  // Sends the request to `owner`, without waiting. errno values of call_service().
  int begin(const SlotAddress& owner, const RegionQuery& query);
  // Takes the reply and maps the file. EAGAIN: no reply yet. ENXIO: the owner passes nothing. Other errno: it
  // cannot be mapped here. For a thread of the emulator.
  int take(MappedFile* out) const;
  void close() { connection_.close(); }

 private:
  MessageSocket connection_;
};

}  // namespace verbena
