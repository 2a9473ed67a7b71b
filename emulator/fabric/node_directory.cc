// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/node_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "adapter/lower_count.h"
#include "fabric/descriptor.h"
#include "fabric/node_file.h"
#include "fabric/process_identity.h"

namespace verbena {
namespace {

constexpr uint32_t kQpnSpace = 1u << 24;
constexpr uint32_t kFirstQpn = 2;             // 0 and 1 are the SMI and the GSI
constexpr uint32_t kLastQpn = kQpnSpace - 2;  // 0xffffff is the multicast QPN

constexpr size_t align_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
constexpr size_t kQpnTableOffset = kHazardsOffset + sizeof(Hazard) * kHazardsPerSlot * kMaxSlots;
constexpr size_t kXrcDomainHandlesOffset = align_up(kQpnTableOffset + sizeof(uint64_t) * kQpnTableSize, 4096);
constexpr size_t kMulticastOffset =
    align_up(kXrcDomainHandlesOffset + sizeof(XrcDomainHandle) * kXrcEntries, 4096);
constexpr size_t kKinds = static_cast<size_t>(Counted::kKinds);
constexpr size_t kCountsOffset =  // [device][kind][slot]
    align_up(kMulticastOffset + sizeof(MulticastEntry) * kMulticastEntries, 64);
constexpr size_t kEventsOffset =
    align_up(kCountsOffset + sizeof(uint32_t) * kMaxDevices * kKinds * kMaxSlots, alignof(DeviceEventLog));
constexpr size_t kHoldersOffset = align_up(kEventsOffset + sizeof(DeviceEventLog) * kMaxDevices, 64);
constexpr size_t kFlowsOffset = align_up(kHoldersOffset + sizeof(uint64_t) * kMaxHolders, 4096);
constexpr size_t kDirectorySize = align_up(kFlowsOffset + sizeof(FlowEntry) * kFlowEntries, 4096);

bool is_sound(const DeviceTable& table) {
  if (table.count > kMaxDevices || table.network.count > kMaxGids) return false;
  return std::all_of(table.devices.begin(), table.devices.begin() + table.count,
                     [](const DeviceDescription& device) {
                       return device.port_count >= 1 && device.port_count <= kMaxPorts &&
                              device.pkey_count >= 1 && device.pkey_count <= kMaxPkeys &&
                              device.lmc <= kMaxLmc && device.ports[0].gid_count <= kMaxGids &&
                              device.ports[1].gid_count <= kMaxGids && device.name.back() == 0;
                     });
}

bool held(Slot& slot) {
  const uint32_t word = slot.life.load(std::memory_order_acquire);
  return word != 0 && (word & kOwnerDied) == 0;
}

}  // namespace

NodeDirectory::NodeDirectory(NodeDirectory&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      file_(std::move(other.file_)),
      devices_(std::move(other.devices_)) {}

NodeDirectory& NodeDirectory::operator=(NodeDirectory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  std::swap(file_, other.file_);
  std::swap(devices_, other.devices_);
  return *this;
}

NodeDirectory::~NodeDirectory() {
  if (base_ != nullptr) munmap(base_, size_);
}

int NodeDirectory::create(const char* path, const DeviceTable& devices) {
  Descriptor file{::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (file.fd < 0) return errno;
  // Written with zeros instead of only fallocate(2), which not every file system has.
  if (int error = posix_fallocate(file.fd, 0, kDirectorySize); error != 0) return error;
  void* memory = mmap(nullptr, kDirectorySize, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
  if (memory == MAP_FAILED) return errno;

  auto* header = new (memory) DirectoryHeader{};
  int error = 0;
  for (uint32_t i = 0; i < kMaxSlots; ++i)
    new (static_cast<std::byte*>(memory) + kSlotsOffset + i * sizeof(Slot)) Slot{};
  if (getrandom(&header->node_id, sizeof header->node_id, 0) != sizeof header->node_id) error = errno;
  uint32_t first = kFirstQpn;
  if (error == 0 && getrandom(&first, sizeof first, 0) == sizeof first)
    header->next_qpn = kFirstQpn + first % (kLastQpn - kFirstQpn);
  header->layout_version = kLayoutVersion;
  header->size = kDirectorySize;
  header->boot = this_boot();
  header->devices = devices;
  header->magic = kDirectoryMagic;
  munmap(memory, kDirectorySize);
  return error;
}

int NodeDirectory::open(const char* path) {
  Descriptor file;
  if (const int error = open_node_file(path, &file); error != 0) return error;
  return open_file(file.fd);
}

int NodeDirectory::open_file(int file) {
  struct stat status;
  if (fstat(file, &status) != 0) return errno;
  if (status.st_uid != geteuid()) return EPERM;
  if (!S_ISREG(status.st_mode) || static_cast<size_t>(status.st_size) != kDirectorySize) return EPROTO;
  void* memory = mmap(nullptr, kDirectorySize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return errno;
  const auto* header = static_cast<const DirectoryHeader*>(memory);
  std::unique_ptr<const DeviceTable> devices(new (std::nothrow) DeviceTable(header->devices));
  if (devices == nullptr || header->magic != kDirectoryMagic || header->layout_version != kLayoutVersion ||
      header->size != kDirectorySize || !is_sound(*devices)) {
    munmap(memory, kDirectorySize);
    return devices == nullptr ? ENOMEM : EPROTO;
  }
  devices_ = std::move(devices);
  if (base_ != nullptr) munmap(base_, size_);
  base_ = static_cast<std::byte*>(memory);
  size_ = kDirectorySize;
  file_.keep(fcntl(file, F_DUPFD_CLOEXEC, 0));  // -1: it is found by its name alone
  return 0;
}

int NodeDirectory::reopen() const { return file_.reopen(O_RDWR); }

std::atomic<uint64_t>& NodeDirectory::holder(uint32_t index) const {
  return std::launder(reinterpret_cast<std::atomic<uint64_t>*>(base_ + kHoldersOffset))[index % kMaxHolders];
}

MulticastEntry& NodeDirectory::multicast_entry(uint32_t index) const {
  const size_t at = kMulticastOffset + index % kMulticastEntries * sizeof(MulticastEntry);
  return *std::launder(reinterpret_cast<MulticastEntry*>(base_ + at));
}

FlowEntry& NodeDirectory::flow_entry(uint32_t index) const {
  return *std::launder(
      reinterpret_cast<FlowEntry*>(base_ + kFlowsOffset + index % kFlowEntries * sizeof(FlowEntry)));
}

XrcDomainHandle& NodeDirectory::xrc_domain_handle(uint32_t index) const {
  return *std::launder(reinterpret_cast<XrcDomainHandle*>(base_ + kXrcDomainHandlesOffset +
                                                          index % kXrcEntries * sizeof(XrcDomainHandle)));
}

bool NodeDirectory::worker_alive(uint32_t packed) const {
  const Worker worker = Worker::unpack(packed);
  const uint32_t generation = slot(worker.slot).generation.load(std::memory_order_acquire);
  return (generation & Worker::kGenerationMask) == worker.generation && alive(worker.slot, generation);
}

void NodeDirectory::note_holder(uint32_t index) const {
  Slot& s = slot(index);
  s.holder.store(s.life.load(std::memory_order_relaxed) & kTidMask, std::memory_order_relaxed);
}

bool NodeDirectory::occupied(uint32_t index) const { return held(slot(index)); }

std::atomic<uint64_t>* NodeDirectory::qpn_table() const {
  return std::launder(reinterpret_cast<std::atomic<uint64_t>*>(base_ + kQpnTableOffset));
}

uint32_t NodeDirectory::claim_qpn(uint32_t slot_index, uint32_t qp_index) const {
  std::atomic<uint64_t>* table = qpn_table();
  slot(slot_index).numbers.fetch_add(1, std::memory_order_seq_cst);
  for (uint32_t tries = 0; tries < 2 * kQpnTableSize; ++tries) {
    const uint32_t turn = header().next_qpn.fetch_add(1, std::memory_order_relaxed);
    const uint32_t qpn = kFirstQpn + turn % (kLastQpn - kFirstQpn + 1);
    uint64_t expected = 0;
    if (table[qpn % kQpnTableSize].compare_exchange_strong(
            expected, QpnEntry{qpn, slot_index, qp_index}.pack(), std::memory_order_acq_rel))
      return qpn;
  }
  lower_count(slot(slot_index).numbers, 1);
  return 0;
}

void NodeDirectory::release_qpn(uint32_t qpn, uint32_t slot_index) const {
  std::atomic<uint64_t>& entry = qpn_table()[qpn % kQpnTableSize];
  uint64_t word = entry.load(std::memory_order_acquire);
  const QpnEntry found = QpnEntry::unpack(word);
  if (word != 0 && found.qpn == qpn && found.slot == slot_index &&
      entry.compare_exchange_strong(word, 0, std::memory_order_acq_rel))
    lower_count(slot(slot_index).numbers, 1);
}

bool NodeDirectory::take_over_qpn(uint32_t qpn, const QpnEntry* from, uint32_t slot_index,
                                  uint32_t qp_index) const {
  std::atomic<uint64_t>& entry = qpn_table()[qpn % kQpnTableSize];
  uint64_t word = entry.load(std::memory_order_acquire);
  if (word != 0 && (from == nullptr || word != from->pack())) return false;
  slot(slot_index).numbers.fetch_add(1, std::memory_order_seq_cst);
  // The entry's last holder keeps it in its count, which is an upper bound.
  if (entry.compare_exchange_strong(word, QpnEntry{qpn, slot_index, qp_index}.pack(),
                                    std::memory_order_acq_rel))
    return true;
  lower_count(slot(slot_index).numbers, 1);
  return false;
}

void NodeDirectory::release_all_qpns(uint32_t slot_index) const {
  std::atomic<uint32_t>& numbers = slot(slot_index).numbers;
  uint32_t seen = numbers.load(std::memory_order_seq_cst);
  if (seen == 0) return;  // most processes destroy what they create
  std::atomic<uint64_t>* table = qpn_table();
  for (uint32_t i = 0; i < kQpnTableSize; ++i) {
    uint64_t word = table[i].load(std::memory_order_acquire);
    if (word != 0 && QpnEntry::unpack(word).slot == slot_index)
      table[i].compare_exchange_strong(word, 0, std::memory_order_acq_rel);
  }
  // Another thread may be at it, if the process closed its last device beside it: the bound stays then.
  numbers.compare_exchange_strong(seen, 0, std::memory_order_release, std::memory_order_relaxed);
}

std::atomic<uint32_t>& NodeDirectory::count(uint32_t device, Counted kind, uint32_t slot_index) const {
  const size_t row = device % kMaxDevices * kKinds + static_cast<size_t>(kind);
  std::byte* counts = base_ + kCountsOffset;
  return std::launder(
      reinterpret_cast<std::atomic<uint32_t>*>(counts))[row * kMaxSlots + slot_index % kMaxSlots];
}

void NodeDirectory::clear_counts(uint32_t slot_index) const {
  for (uint32_t device = 0; device < devices().count; ++device)
    for (size_t kind = 0; kind < kKinds; ++kind) {
      std::atomic<uint32_t>& own = count(device, static_cast<Counted>(kind), slot_index);
      if (own.load(std::memory_order_relaxed) != 0) own.store(0, std::memory_order_release);
    }
}

DeviceEventLog& NodeDirectory::events(uint32_t device) const {
  return std::launder(reinterpret_cast<DeviceEventLog*>(base_ + kEventsOffset))[device % kMaxDevices];
}

bool NodeDirectory::find_number(uint32_t number, QpnEntry* out) const {
  const uint64_t word = qpn_table()[number % kQpnTableSize].load(std::memory_order_acquire);
  if (word == 0) return false;
  *out = QpnEntry::unpack(word);
  return out->qpn == number && out->slot < kMaxSlots;
}

bool NodeDirectory::find_qpn(uint32_t qpn, QpnEntry* out) const {
  return find_number(qpn, out) && out->qp_index < kMaxQpsPerProcess;  // in a damaged node it may be anything
}

bool NodeDirectory::find_srqn(uint32_t srqn, uint32_t* slot, uint32_t* srq_index) const {
  QpnEntry found;
  if (!find_number(srqn, &found) || (found.qp_index & kSrqFlag) == 0) return false;
  *slot = found.slot;
  *srq_index = found.qp_index & ~kSrqFlag;
  return true;
}

}  // namespace verbena
