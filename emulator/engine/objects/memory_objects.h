// SPDX-License-Identifier: BSD-2-Clause
//
// The process-private half of the memory objects: protection domains, memory regions and windows, device
// memory. Peers see only the keys (adapter/memory_table.h).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "adapter/memory_table.h"
#include "engine/objects/context_use.h"
#include "fabric/kept_descriptor.h"

namespace verbena {

struct Context;
class Process;
struct Mw;
struct Dm;

using UserCount = std::shared_ptr<std::atomic<uint32_t>>;

// A context that imports a domain (ibv_import_pd(3)) has its own Pd, which shares handle and count.
struct Pd {
  ContextUse context;
  uint32_t handle = 0;  // unique in the process: a key must not fit another context's domain
  UserCount count = std::make_shared<std::atomic<uint32_t>>(0);
  std::atomic<uint32_t>& users = *count;
};

enum class MrOrigin : uint8_t {
  kProgram,     // ibv_reg_mr(3)
  kNull,        // ibv_alloc_null_mr: reads return zeros, writes are discarded
  kDevice,      // ibv_reg_dm_mr(3)
  kDescriptor,  // ibv_reg_dmabuf_mr(3): `mapping` is ours
};

// Fields without a comment do not change after creation. A registration belongs to the context's file, not to
// the context: it outlives a context that has been imported elsewhere.
struct Mr {
  Process* process = nullptr;
  uint64_t file = 0;
  uint32_t device = 0;  // index
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  MrOrigin origin = MrOrigin::kProgram;
  Dm* dm = nullptr;
  void* mapping = nullptr;
  size_t mapping_size = 0;
  std::mutex change_mutex;  // one rereg_mr at a time
  // Under MemoryObjects::mutex.
  UserCount pd_users;
  MemoryTable::Region region;
  std::vector<Mw*> windows;  // last bound to it, and perhaps still
};

struct Mw {
  Process* process = nullptr;
  uint64_t file = 0;
  uint32_t device = 0;  // index
  UserCount pd_users;
  uint32_t pd = 0;
  KeyKind kind = KeyKind::kWindow1;
  uint32_t rkey = 0;  // the first one; later ones differ in the tag
  // Under MemoryObjects::mutex.
  Mr* region = nullptr;    // last bound to it
  bool was_bound = false;  // a requester may still use an earlier binding
};

struct Dm {
  Process* process = nullptr;
  uint64_t file = 0;
  uint32_t device = 0;  // index
  uint32_t handle = 0;
  std::byte* memory = nullptr;
  size_t length = 0;
  KeptDescriptor backing;          // the file behind it, which peers can map; none: it has no file
  std::atomic<uint32_t> users{0};  // memory regions
  // The forked child that allocated it through its parent's context; 0: the parent. Not in MemoryObjects.
  int32_t child = 0;
};

// All memory objects by handle. The handle of a PD or DM is a running number. The handle of an MR or MW is
// the index of the key. The mutex is held for short lookups only, and is the last of all locks.
struct MemoryObjects {
  struct Domain {
    uint64_t file;
    UserCount count;
    uint32_t listed;  // its entry (adapter/listed.h)
  };
  std::mutex mutex;
  std::unordered_map<uint32_t, Domain> domains;
  std::unordered_map<uint32_t, Mr*> mrs;
  std::unordered_map<uint32_t, Mw*> mws;
  std::unordered_map<uint32_t, Dm*> dms;
  void* zeros = nullptr;  // of the null region, once there has been one
  void* sink = nullptr;
};

// Is a window bound to the region? Under MemoryObjects::mutex.
bool has_windows(const Mr& mr);

// The last step of every kind of registration: enters `region` (but for its pd) and makes the Mr `*out`,
// which belongs to `pd`. ENOMEM.
int enter_region(Pd* pd, MemoryTable::Region region, MrOrigin origin, Mr** out);

// The object with this handle if it belongs to the context's file, else nullptr. Under MemoryObjects::mutex.
template <typename Object>
Object* find_object(const std::unordered_map<uint32_t, Object*>& objects, uint32_t handle, uint64_t file) {
  const auto found = objects.find(handle);
  return found != objects.end() && found->second->file == file ? found->second : nullptr;
}

}  // namespace verbena
