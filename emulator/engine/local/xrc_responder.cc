// SPDX-License-Identifier: BSD-2-Clause
#include "engine/local/xrc_responder.h"

#include <utility>

#include "adapter/clock.h"
#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "engine/responder/xrc_target.h"
#include "engine/rules/address_port.h"
#include "fabric/kick.h"
#include "fabric/xrc_domains.h"

namespace verbena {
namespace {

// For a process that is asked for its segment in the middle of a request. A process that does not answer may
// be stopped. It counts as silent, and is asked again with each attempt of the request.
constexpr int kOwnerPatienceMs = 100;

}  // namespace

bool follow_responder(Qp& qp) {
  constexpr int64_t kWakeAgain = 5'000'000;
  PeerPath& path = qp.requester.path;
  Process& process = *qp.process;
  const NodeDirectory& directory = process.directory();
  const bool left = path.qp->in_use.load(std::memory_order_acquire) == 0 && path.qp->left_in != 0;
  if (path.qp->incarnation != path.incarnation || (path.adapter->alive(directory) && !left)) return false;
  QpnEntry found;
  std::shared_ptr<PeerAdapter> adapter;
  if (directory.find_qpn(qp.shared->dest_qpn, &found)) {
    const uint32_t generation = directory.slot(found.slot).generation.load(std::memory_order_acquire);
    const bool same = found.slot == path.adapter->slot() && generation == path.adapter->generation();
    if (!same && directory.alive(found.slot, generation) &&
        process.peers().get(process.membership(), found.slot, generation, &adapter, {kOwnerPatienceMs}) == 0) {
      SharedQp* there = adapter->view().qp(found.qp_index);
      if (there == nullptr || there->in_use.load(std::memory_order_acquire) == 0 ||
          there->qpn != qp.shared->dest_qpn || there->type != IBV_QPT_XRC_RECV ||
          there->device >= directory.devices().count)
        return false;
      path.port = find_port(qp.attr.ah_attr, directory.devices().devices[there->device]);
      path.ports = port_bit(qp.context->device_index, qp.attr.port_num) | port_bit(there->device, path.port);
      path.index = found.qp_index;
      path.incarnation = there->incarnation;
      path.qp = there;
      path.adapter = std::move(adapter);
      path.generation = path.responder_state = 0;
      return true;
    }
  }
  bool held = false;
  const bool wake = now_ns() >= qp.requester.xrc_targets->wake_again_at;
  for_each_holder(directory, qp.shared->dest_qpn, [&](uint32_t slot, uint32_t generation) {
    held = true;
    if (wake) kick_slot(directory, process.membership().node(), slot, generation);
  });
  if (wake) qp.requester.xrc_targets->wake_again_at = now_ns() + kWakeAgain;
  return held;
}

}  // namespace verbena
