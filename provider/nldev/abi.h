// SPDX-License-Identifier: BSD-2-Clause
//
// What <rdma/rdma_netlink.h> of kernels after 5.13 adds. The numbers never change.
#pragma once

#include <rdma/rdma_netlink.h>

#include <cstdint>

namespace verbena::nldev {

enum NewerCommand : uint32_t {
  kResSrqGet = RDMA_NLDEV_CMD_RES_CTX_GET + 1,
  kStatGetStatus,
  kResSrqGetRaw,
  kNewDev,
  kDelDev,
  kMonitor,  // sent by the kernel only
  kFrmrPoolsGet,
  kFrmrPoolsSet,
  kCommands,
};

enum NewerAttribute : uint16_t {
  kResSrq = RDMA_NLDEV_ATTR_RES_CTX_ENTRY + 1,
  kResSrqEntry,
  kResSrqn,
  kMinRange,
  kMaxRange,
  kSysCopyOnFork,
  kStatHwcounterIndex,
  kStatHwcounterDynamic,
  kSysPrivilegedQkeyMode,
  kDriverDetails,
  kResSubtype,
  kDevType,
  kParentName,
  kNameAssignType,
  kEventType,
  kSysMonitorMode,
  kStatOpcounterEnabled,
  kFrmrPools,
  kAttributes = kFrmrPools,  // those that are known here
};

}  // namespace verbena::nldev
