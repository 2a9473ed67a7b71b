// SPDX-License-Identifier: BSD-2-Clause
#include "tool/extcap.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tool/command.h"

namespace verbena::tool {

void add_extcap_options(CLI::App& command, Extcap& extcap) {
  const auto hide = [](CLI::Option* option) { option->group(""); };
  hide(command.add_flag("--extcap-interfaces", extcap.interfaces));
  hide(command.add_flag("--extcap-dlts", extcap.dlts));
  hide(command.add_flag("--extcap-config", extcap.config));
  hide(command.add_flag("--capture", extcap.capture));
  hide(command.add_option("--extcap-interface", extcap.interface));
  hide(command.add_option("--extcap-version", extcap.version));
  hide(command.add_option("--extcap-capture-filter", extcap.filter));
  hide(command.add_option("--fifo", extcap.fifo));
}

int answer_extcap(const Extcap& extcap) {
  if (extcap.interfaces)
    std::puts(
        "extcap {version=1.0}{display=Verbena}\n"
        "interface {value=verbena0}{display=Verbena RDMA adapter}");
  if (extcap.dlts) std::puts("dlt {number=1}{name=EN10MB}{display=Ethernet}");
  if (extcap.config)
    std::puts(
        "arg {number=0}{call=--snaplen}{display=Bytes of each packet}{tooltip=0: "
        "all}{type=unsigned}{default=0}\n"
        "arg {number=1}{call=--node}{display=Node}{tooltip=as of verbena run "
        "--node}{type=string}{required=false}\n"
        "arg {number=2}{call=--ring}{display=Memory of each process (MiB)}{type=unsigned}{default=16}");
  return printed();
}

}  // namespace verbena::tool
