// SPDX-License-Identifier: BSD-2-Clause
//
// Writes the device files and sysfs entries of the node's devices as plain files, in the kernel's format:
// drivers/infiniband/core/sysfs.c, uverbs_main.c; Documentation/ABI/stable/sysfs-class-infiniband.
//
// Values that a program can also query through verbs (rate, capabilities, versions) are the same in both
// (engine/device/device_attributes.h). A unit test compares them.
//
// Left out, because no true value exists:
// - PCI ids and the link to a PCI folder.
// - The contents of the folder of the netdev below device/net.
#pragma once

#include <string>

#include "fabric/device_table.h"
#include "fabric/hw_counters.h"
#include "fabric/pma_counters.h"

namespace verbena {

// Under `folder`: sys/class/infiniband_verbs/{abi_version,uverbsN/{ibdev,dev,abi_version,device,subsystem}},
// sys/class/infiniband/<name>/{node_type,node_guid,sys_image_guid,fw_ver,hw_rev,hca_type,board_id,node_desc,
// uevent,subsystem,device/{modalias,numa_node,uevent,infiniband/<name>,infiniband_verbs/uverbsN,
// net/<netdev>/{dev_id,dev_port,ifindex}},
// ports/P/{state,phys_state,lid,lid_mask_count,sm_lid,sm_sl,rate,cap_mask,link_layer,gids/N,
// gid_attrs/{types,ndevs}/N,pkeys/N,counters/<name>,hw_counters/{lifespan,<name>}}}, dev/infiniband/uverbsN;
// and of the connection manager sys/class/misc/rdma_cm/{abi_version,dev,uevent,subsystem},
// dev/infiniband/rdma_cm. All links are relative and stay below sys/class. `folder` must exist, the rest must
// not. errno values.
int write_device_tree(const std::string& folder, const DeviceTable& devices);

// Sets the port's state and phys_state to down or up. Readers see the old text or the new one, never a part
// of it. The folders of the device itself do not change. Returns an errno value.
int show_port_state(const std::string& folder, const DeviceDescription& device, uint32_t port, bool down);

// Writes the value of a counter of the port: `name` is hw_counters/<name> (hw_counters.h) or counters/<name>
// (pma_counters.h). Readers see the old text or the new one. The tree begins with zeros. Any process may
// call. Returns an errno value.
int show_counter(const std::string& folder, const DeviceDescription& device, uint32_t port,
                 const std::string& name, uint64_t value);

// True: all of it is there, and this version of Verbena wrote it. (A cleaner of old files may have removed
// some.) A system call per file, some hundred microseconds for a device.
bool device_tree_is_whole(const std::string& folder, const DeviceTable& devices);

}  // namespace verbena
