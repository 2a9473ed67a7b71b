// SPDX-License-Identifier: BSD-2-Clause
//
// What the device is, asked in a process of its own: a driver that crashes or hangs takes that one along.
#pragma once

#include <string>
#include <vector>

#include "suite/facts.h"
#include "suite/options.h"

namespace conformance {

struct Probed {
  Facts device;          // attributes (support/device.h)
  Facts stack;           // what drives it (support/stack.h)
  std::string provider;  // provider_file()
};

// Opens the device, port and GID of the options. Throws std::runtime_error saying why there is none.
Probed probe(const Options& options);

// Loads the provider library into this process, so that its children need not each load and relocate it. The
// driver is one that has opened the device without a crash. It is not used here: libibverbs makes its first
// call in the child, as in any program. No library, no error: the children load it themselves.
void load_provider(const std::string& file);

// The options name what was found.
void choose(const Probed& found, Options& options);

struct Place {
  std::string device;
  int port, gid_index;
  std::string gid;
};

// Each active port (--all-ports) or the one of the options, each with all of its GIDs (--all-gids) or the
// best one. Throws as probe().
std::vector<Place> places(const Options& options);

}  // namespace conformance
