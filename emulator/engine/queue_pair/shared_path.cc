// SPDX-License-Identifier: BSD-2-Clause
#include "emulator.h"
#include "engine/queue_pair/shared_path.h"

#include <cstddef>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace verbena {
namespace {

constexpr int kTries = 64;

struct Path {
  uint8_t dgid[16];
  uint32_t flow_label;
  uint32_t sq_psn;
  uint16_t dlid;
  uint16_t pkey_index;
  uint8_t is_global;
  uint8_t sgid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
  uint8_t sl;
  uint8_t src_path_bits;
  uint8_t static_rate;
  uint8_t address_port;
  uint8_t port_num;
  uint8_t timeout;
  uint8_t path_mig_state;
  uint8_t unused;
};
constexpr size_t kWords = std::size(SharedQp{}.path_words);
static_assert(sizeof(Path) == kWords * sizeof(uint32_t) && std::is_trivially_copyable_v<Path>);
static_assert(offsetof(Path, dgid) == 0);  // survey/snapshot.cc

Path path_of(const ibv_qp_attr& attr) {
  const ibv_ah_attr& address = attr.ah_attr;
  Path path{};
  std::memcpy(path.dgid, address.grh.dgid.raw, sizeof path.dgid);
  path.flow_label = address.grh.flow_label;
  path.sq_psn = attr.sq_psn;
  path.dlid = address.dlid;
  path.pkey_index = attr.pkey_index;
  path.is_global = address.is_global;
  path.sgid_index = address.grh.sgid_index;
  path.hop_limit = address.grh.hop_limit;
  path.traffic_class = address.grh.traffic_class;
  path.sl = address.sl;
  path.src_path_bits = address.src_path_bits;
  path.static_rate = address.static_rate;
  path.address_port = address.port_num;
  path.port_num = attr.port_num;
  path.timeout = attr.timeout;
  path.path_mig_state = static_cast<uint8_t>(attr.path_mig_state);
  return path;
}

void apply(const Path& path, ibv_qp_attr* attr) {
  ibv_ah_attr& address = attr->ah_attr;
  std::memcpy(address.grh.dgid.raw, path.dgid, sizeof path.dgid);
  address.grh.flow_label = path.flow_label;
  attr->sq_psn = path.sq_psn;
  address.dlid = path.dlid;
  attr->pkey_index = path.pkey_index;
  address.is_global = path.is_global;
  address.grh.sgid_index = path.sgid_index;
  address.grh.hop_limit = path.hop_limit;
  address.grh.traffic_class = path.traffic_class;
  address.sl = path.sl;
  address.src_path_bits = path.src_path_bits;
  address.static_rate = path.static_rate;
  address.port_num = path.address_port;
  attr->port_num = path.port_num;
  attr->timeout = path.timeout;
  attr->path_mig_state = static_cast<ibv_mig_state>(path.path_mig_state & 3);
}

}  // namespace

void publish_path(SharedQp& qp, const ibv_qp_attr& attr) {
  const Path path = path_of(attr);
  uint32_t words[kWords];
  std::memcpy(words, &path, sizeof path);
  const uint32_t version = qp.path_version.load(std::memory_order_relaxed) | 1;
  qp.path_version.store(version, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t i = 0; i < kWords; ++i) qp.path_words[i].store(words[i], std::memory_order_relaxed);
  qp.path_version.store(version + 1, std::memory_order_release);
}

void read_path(const SharedQp& qp, ibv_qp_attr* attr) {
  uint32_t words[kWords];
  for (int tries = 0; tries < kTries; ++tries) {
    const uint32_t before = qp.path_version.load(std::memory_order_acquire);
    for (size_t i = 0; i < kWords; ++i) words[i] = qp.path_words[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if ((before & 1) == 0 && qp.path_version.load(std::memory_order_relaxed) == before) break;
  }
  Path path;
  std::memcpy(&path, words, sizeof path);
  apply(path, attr);
}

}  // namespace verbena
