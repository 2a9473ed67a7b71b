// SPDX-License-Identifier: BSD-2-Clause
#include "support/pair.h"

#include <stdexcept>

namespace conformance {

Topology::Topology(Device& device) : host_(device) {
  if (options().peer.empty()) return;
  try {
    far_ = StreamLink::to(options().peer, scaled(std::chrono::seconds(5)));
  } catch (const std::runtime_error& error) {
    throw Deviation{error.what(), Where::current()};
  }
}

Pair::Pair(Topology& topology, const PairSpec& spec, Where where)
    : near(topology.near(), spec.both),
      far(topology.far(), spec.far.value_or(spec.both)),
      topology_(topology),
      spec_(spec) {
  if (spec.is_connected) connect(where);
}

void Pair::connect(Where where) {
  for (const auto& [end, other] : {std::pair(&near, &far), std::pair(&far, &near)})
    if (const int error = end->connect(other->facts(), spec_.path); error != 0)
      throw Deviation{"to connect an end; expected: 0; seen: " + errno_text(error), where};
}

HostedEnd& Pair::native() { return topology_.host().at(near.facts().end); }

}  // namespace conformance
