// SPDX-License-Identifier: BSD-2-Clause
//
// Writes the device files and sysfs entries of the node's devices as plain files, in the shape that the
// kernel gives them: drivers/infiniband/core/sysfs.c, uverbs_main.c;
// Documentation/ABI/stable/sysfs-class-infiniband.
//
// What a program may also ask through verbs (rate, capabilities, versions) is the same in both
// (engine/device/device_attributes.h); a unit test compares them.
//
// Left out, as nothing true could stand there: the ports' counters and hw_counters (files do not count; the
// kernel leaves them out as well for adapters without a performance agent, and `verbena status` has the
// numbers), PCI ids and the link to a PCI folder, what the netdev below device/net has in its own folder.
#pragma once

#include <string>

#include "fabric/device_table.h"

namespace verbena {

// Under `folder`: sys/class/infiniband_verbs/{abi_version,uverbsN/{ibdev,dev,abi_version,device,subsystem}},
// sys/class/infiniband/<name>/{node_type,node_guid,sys_image_guid,fw_ver,hw_rev,hca_type,board_id,node_desc,
// uevent,subsystem,device/{modalias,numa_node,uevent,infiniband/<name>,infiniband_verbs/uverbsN,
// net/<netdev>/{dev_id,dev_port,ifindex}},
// ports/1/{state,phys_state,lid,lid_mask_count,sm_lid,sm_sl,rate,cap_mask,link_layer,gids/N,
// gid_attrs/{types,ndevs}/N,pkeys/0}}, dev/infiniband/uverbsN; and of the connection manager
// sys/class/misc/rdma_cm/{abi_version,dev,uevent,subsystem}, dev/infiniband/rdma_cm. All links are relative and stay below
// sys/class. `folder` must exist, the rest must not. errno values.
int write_device_tree(const std::string& folder, const DeviceTable& devices);

// Lets the port's state and phys_state say that it is down, or up. Readers see the old text or the new one,
// never half of it; the folders of the device itself stay untouched. errno values.
int show_port_state(const std::string& folder, const DeviceDescription& device, bool down);

// The part of `folder` that programs cannot do without is there (a cleaner of old files may have been at
// work), and this version of Verbena wrote it. Cheap: a handful of system calls per device.
bool device_tree_is_whole(const std::string& folder, const DeviceTable& devices);

}  // namespace verbena
