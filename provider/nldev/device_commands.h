// SPDX-License-Identifier: BSD-2-Clause
//
// Devices, ports, character devices, and the settings of the whole subsystem.
#pragma once

#include "nldev/commands.h"

namespace verbena::nldev {

int get_device(const Request& request, Writer* out);
int dump_devices(const Request& request, Dump* out);
int get_port(const Request& request, Writer* out);
int dump_ports(const Request& request, Dump* out);

// "uverbs" only. EOPNOTSUPP: any other, as from a kernel without the module that has it. For "rdma_cm",
// librdmacm then goes by sysfs: with an answer from here it would look for another file with the same device
// number for five seconds whenever the device file cannot be opened (util/open_cdev.c).
int get_character_device(const Request& request, Writer* out);

int get_system(const Request& request, Writer* out);

}  // namespace verbena::nldev
