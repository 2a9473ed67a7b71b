// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "suite/test.h"
#include "support/device.h"

namespace conformance {

// An address vector was given the hop limit `set`; `seen`: what is queried, or arrives. On Ethernet the kernel's core
// may put that of the route in its place (Linux drivers/infiniband/core/verbs.c, ib_resolve_unicast_gid_dmac()), which
// says nothing of the device: NOT TESTED. A route's is never 0.
inline void expect_hop_limit(const Device& device, int seen, int set) {
  if (seen != set && seen != 0 && device.is_ethernet())
    throw NotTested{"the hop limit is " + std::to_string(seen) + ", not " + std::to_string(set) +
                    ": on Ethernet the kernel puts that of the route there"};
  EXPECT_EQ(seen, set);
}

}  // namespace conformance
