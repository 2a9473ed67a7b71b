// SPDX-License-Identifier: BSD-2-Clause
//
// Writes the device files and sysfs entries of the node's devices as plain files, in the shape that the
// kernel gives them: drivers/infiniband/core/sysfs.c, uverbs_main.c; Documentation/ABI/stable/sysfs-class-infiniband.
#pragma once

#include <string>

#include "fabric/device_table.h"

namespace verbena {

// Under `folder`: sys/class/infiniband_verbs/{abi_version,uverbsN/{ibdev,dev,abi_version,device/…}},
// sys/class/infiniband/<name>/{node_type,node_guid,sys_image_guid,fw_ver,hw_rev,hca_type,board_id,node_desc,
// device/…,ports/1/{state,phys_state,lid,lid_mask_count,sm_lid,sm_sl,rate,cap_mask,link_layer,gids/N,
// gid_attrs/{types,ndevs}/N,pkeys/0,counters/…,hw_counters/…}}, dev/infiniband/uverbsN. errno values.
int write_device_tree(const std::string& folder, const DeviceTable& devices);

}  // namespace verbena
