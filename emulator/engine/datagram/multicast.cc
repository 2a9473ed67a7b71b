// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_attach_mcast(3), ibv_detach_mcast(3). The checks are those of the kernel (verbs.c, ib_attach_mcast()
// and is_valid_mcast_lid(); uverbs_cmd.c, ib_uverbs_attach_mcast()). Attaching again succeeds and changes
// nothing, so one detach undoes it. The LID matters on InfiniBand only.
#include "engine/datagram/multicast.h"

#include <errno.h>

#include <cstring>

#include "emulator.h"
#include "engine/datagram/datagram_header.h"
#include "engine/objects/context.h"
#include "engine/objects/network.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/rules/multicast_limits.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr uint16_t kFirstMulticastLid = 0xc000;
constexpr uint16_t kPermissiveLid = 0xffff;

MulticastMember member_of(const Qp& qp) {
  return {qp.process->membership().slot(), qp.process->membership().generation(), qp.index,
          qp.shared->incarnation};
}

MulticastGid name_of(const ibv_gid& gid) {
  MulticastGid name;
  std::memcpy(name.data(), gid.raw, sizeof gid.raw);
  return name;
}

int check(const Qp& qp, const ibv_gid& gid, uint16_t lid, const char* verb) {
  const char* why = nullptr;
  if (!is_multicast(gid))
    why = "the GID is not a multicast GID";
  else if (qp.type != IBV_QPT_UD)
    why = "only UD queue pairs can be attached to a group";
  else if (qp.context->device->link_layer == LinkLayer::kInfiniband &&
           (lid < kFirstMulticastLid || lid == kPermissiveLid))
    why = "the LID is not a multicast LID";
  if (why == nullptr) return 0;
  VERBENA_WARN(multicast, "%s: QP 0x%06x, LID 0x%04x: %s", verb, qp.shared->qpn, lid, why);
  return EINVAL;
}

}  // namespace

int attach_mcast(Qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (int error = usable(*qp->context); error != 0) return error;
  const MulticastLimits limits = multicast_limits(qp->context->device->limits);
  if (limits.groups == 0) {
    VERBENA_WARN(feature_absent, "ibv_attach_mcast: the device has no multicast groups");
    return EOPNOTSUPP;
  }
  if (int error = check(*qp, *gid, lid, "ibv_attach_mcast"); error != 0) return error;
  const int error = MulticastTable(qp->process->directory())
                        .attach(member_of(*qp), name_of(*gid), lid, qp->context->device_index, limits);
  if (Network* network = qp->process->network(); error == 0 && network != nullptr) network->groups_changed();
  if (error != 0)
    VERBENA_WARN(
        limit_reached,
        "ibv_attach_mcast: QP 0x%06x: the device has room for %u groups, %u members of each, %u in all",
        qp->shared->qpn, limits.groups, limits.members_of_group, limits.members);
  return error;
}

int detach_mcast(Qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (int error = usable(*qp->context); error != 0) return error;
  if (int error = check(*qp, *gid, lid, "ibv_detach_mcast"); error != 0) return error;
  const int error = MulticastTable(qp->process->directory()).detach(member_of(*qp), name_of(*gid), lid);
  if (Network* network = qp->process->network(); error == 0 && network != nullptr) network->groups_changed();
  if (error != 0) {
    VERBENA_WARN(multicast, "ibv_detach_mcast: QP 0x%06x is not attached to this group with LID 0x%04x",
                 qp->shared->qpn, lid);
    return error;
  }
  // After the return no message of the group arrives any more.
  qp->process->wait_for_hazards({"ibv_detach_mcast", "QP", qp->shared->qpn, true});
  return 0;
}

bool attached_to_group(const Qp& qp) {
  return qp.type == IBV_QPT_UD && MulticastTable(qp.process->directory()).attached(member_of(qp));
}

}  // namespace verbena
