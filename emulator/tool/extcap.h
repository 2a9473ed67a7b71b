// SPDX-License-Identifier: BSD-2-Clause
//
// What Wireshark asks a program that captures for it (extcap(4)).
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace verbena::tool {

struct Extcap {
  std::string interface = "verbena0";
  bool interfaces = false, dlts = false, config = false, capture = false;
  std::string fifo;     // where the packets go
  std::string version;  // of Wireshark
  std::string filter;   // not used: there are no capture filters

  // Only asks for what is there?
  bool asks() const { return interfaces || dlts || config; }
};

// Adds the options, which --help does not show.
void add_extcap_options(CLI::App& command, Extcap& extcap);

// Prints the answer. Returns the exit status.
int answer_extcap(const Extcap& extcap);

}  // namespace verbena::tool
