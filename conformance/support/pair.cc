// SPDX-License-Identifier: BSD-2-Clause
#include "support/pair.h"

#include <algorithm>
#include <stdexcept>

namespace conformance {

Topology::Topology(Device& device) : host_(device) {
  if (options().peer.empty()) return;
  try {
    far_ = StreamLink::to(options().peer, scaled(std::chrono::seconds(5)));
  } catch (const std::runtime_error& error) {
    throw NotTested{error.what()};
  } catch (const Deviation& deviation) {  // its device, say, can no longer be opened
    throw NotTested{deviation.text};
  }
}

Pair::Pair(Topology& topology, const PairSpec& spec, Where where)
    : near(spec.tests_far ? topology.far() : topology.near(), spec.both),
      far(spec.tests_far ? topology.near() : topology.far(), spec.far.value_or(spec.both)),
      topology_(topology),
      spec_(spec) {
  if (spec.is_connected) connect(where);
}

void Pair::connect(Where where) {
  for (const auto& [end, other] : {std::pair(&near, &far), std::pair(&far, &near)}) {
    const int error = end->connect(other->facts(), spec_.path);
    if (error == 0) continue;
    const std::string text = "to connect an end; expected: 0; seen: " + errno_text(error);
    const bool is_at_peer = !topology_.is_loopback() && end == (spec_.tests_far ? &near : &far);
    if (is_at_peer) throw NotTested{"the far end: " + text};
    throw Deviation{text, where};
  }
}

void connect(Device& device, ibv_qp* qp, Endpoint& end, Where where) {
  const EndFacts& there = end.facts();
  ibv_gid gid;
  std::copy(there.gid.begin(), there.gid.end(), gid.raw);
  const bool sends_alone = qp->qp_type == IBV_QPT_XRC_SEND;
  ibv_qp_attr attr = attributes_for(device, {.destination = sends_alone ? there.receiving_qpn : there.qpn});
  attr.ah_attr = device.address_of(gid, static_cast<uint16_t>(there.lid));
  attr.path_mtu = std::min(attr.path_mtu, there.mtu);
  bring_to(qp, IBV_QPS_RTS, attr, where);
  EndFacts here;
  here.qpn = here.receiving_qpn = qp->qp_num;
  here.lid = device.port().lid;
  std::copy(std::begin(device.gid().raw), std::end(device.gid().raw), here.gid.begin());
  here.mtu = device.port().active_mtu;
  if (const int error = end.connect(here); error != 0)
    throw Deviation{"to connect an end; expected: 0; seen: " + errno_text(error), where};
}

HostedEnd& Pair::native() { return topology_.host().at(near.facts().end); }

}  // namespace conformance
