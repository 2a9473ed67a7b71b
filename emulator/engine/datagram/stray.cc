// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datagram/stray.h"

#include <algorithm>
#include <memory>

#include "adapter/refusals.h"
#include "engine/rules/address_port.h"
#include "engine/objects/process.h"
#include "engine/responder/refusal.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr PeerTable::Patience kStrayPatience{500};  // ms
constexpr uint32_t kNoIndex = UINT32_MAX;           // the index of no queue pair

// The devices that the datagram came to; bit d: device d.
uint32_t count_strays(const NodeDirectory& directory, const ibv_ah_attr& address) {
  const DeviceTable& table = directory.devices();
  uint32_t devices = 0;
  for (uint32_t i = 0; i < std::min(table.count, kMaxDevices); ++i) {
    const uint32_t port = find_port(address, table.devices[i]);
    if (port == 0 || port_down(directory, i, port)) continue;
    directory.header().stray_datagrams[port_place(i, port)].fetch_add(1, std::memory_order_relaxed);
    devices |= 1u << i;
  }
  return devices;
}

// The UD queue pairs of an adapter that may wait for the datagram: `refusal` gets the first one's number, and
// how many there are. `sender`: the index of one that does not count.
void find_who_may_wait(const SegmentView& view, uint32_t devices, uint32_t sender, RequestRefusal* refusal) {
  refusal->qpn = refusal->expected = 0;
  const uint32_t end =
      std::min(view.header().qp_high_water.load(std::memory_order_acquire), kMaxQpsPerProcess);
  for (uint32_t i = 0; i < end; ++i) {
    const SharedQp* const qp = view.qp(i);
    if (i == sender || qp == nullptr || qp->in_use.load(std::memory_order_acquire) == 0 ||
        qp->type != IBV_QPT_UD || qp->device >= kMaxDevices || (devices >> qp->device & 1) == 0)
      continue;
    if (refusal->expected++ == 0) refusal->qpn = qp->qpn;
  }
}

}  // namespace

void note_stray(DatagramSender& from, const ibv_ah_attr& address, const Destination& to, uint32_t qpn,
                const DatagramMessage& message) {
  const NodeDirectory& directory = from.process->directory();
  NodeMembership& membership = from.process->membership();
  const uint32_t devices = count_strays(directory, address);
  if (devices == 0 || to.has_been_ready || !is_sparse(++from.strays)) return;
  constexpr auto kLevel = LogLevel::kWarn;
  QpnEntry entry;
  RequestRefusal refusal{};
  refusal.kind = directory.find_qpn(qpn, &entry) ? RefusalKind::kNoDatagrams : RefusalKind::kNoQueuePair;
  refusal.opcode = opcode_of(message);
  refusal.source_qpn = message.source.qpn;
  refusal.length = message.length - kGrhBytes;
  refusal.got = qpn;
  refusal.count = from.strays;
  name_source(*from.process, from.origin, &refusal);
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    const bool own = i == membership.slot();
    const Slot& slot = directory.slot(i);
    if (!own && slot.explained.load(std::memory_order_relaxed) < static_cast<uint32_t>(kLevel)) continue;
    if (own && !logs(kLevel)) continue;
    const uint32_t generation =
        own ? membership.generation() : slot.generation.load(std::memory_order_acquire);
    std::shared_ptr<PeerAdapter> adapter;
    if (!directory.alive(i, generation) ||
        from.process->peers().get(membership, i, generation, &adapter, kStrayPatience) != 0)
      continue;
    find_who_may_wait(adapter->view(), devices, own ? from.index : kNoIndex, &refusal);
    if (own)
      explain(*from.process, *adapter, refusal);
    else if (refusal.expected != 0)
      adapter->explain(refusal, membership.worker());
  }
}

}  // namespace verbena
