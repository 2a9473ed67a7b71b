// SPDX-License-Identifier: BSD-2-Clause
#include <algorithm>
#include <cstring>

#include "observe/log.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {
namespace {

// The rate of a lane in 100 Mb/s, and the number of lanes (Linux 6.1 drivers/infiniband/core/sysfs.c,
// rate_show(); include/rdma/ib_verbs.h, ib_width_enum_to_int()).
uint64_t lane_rate(uint8_t speed) {
  switch (speed) {
    case 2:  // DDR
      return 50;
    case 4:  // QDR
    case 8:  // FDR10
      return 100;
    case 16:  // FDR
      return 140;
    case 32:  // EDR
      return 250;
    case 64:  // HDR
      return 500;
    case 128:  // NDR
      return 1000;
    default:  // SDR
      return 25;
  }
}
uint64_t lanes(uint8_t width) {
  switch (width) {
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 1;
  }
}

}  // namespace

// `attr` may be shorter than our structure (ibv_query_device(3) passes the old one, older programs a shorter
// new one) or longer (newer programs). Every byte of it is written. The rules for `input` and the smallest
// size are those of libibverbs/cmd_device.c, ibv_cmd_query_device_any.
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t attr_size) {
  if (input != nullptr && input->comp_mask != 0) {
    VERBENA_WARN(query_attributes, "ibv_query_device_ex: %s: input's comp_mask 0x%x: no bit is defined",
                 context->device->name, input->comp_mask);
    return answer(EINVAL);
  }
  if (attr_size < sizeof(ibv_device_attr)) {
    VERBENA_WARN(query_attributes, "ibv_query_device_ex: %s: %zu bytes for the attributes: %zu are the least",
                 context->device->name, attr_size, sizeof(ibv_device_attr));
    return answer(EINVAL);
  }

  ibv_device_attr_ex whole = {};
  if (const int error = verbena::query_device(to_context(context)->emulated, &whole); error != 0)
    return answer(error);
  const size_t known = std::min(attr_size, sizeof(whole));
  memcpy(attr, &whole, known);
  memset(reinterpret_cast<char*>(attr) + known, 0, attr_size - known);
  return 0;
}

// rdma-core before 33 has this operation for ibv_query_device(3). Newer ones use query_device_ex.
int query_device(ibv_context* context, ibv_device_attr* attr) {
  ibv_device_attr_ex whole = {};
  const int error = query_device_ex(context, nullptr, &whole, sizeof(whole));
  if (error == 0) *attr = whole.orig_attr;
  return error;
}

// As mlx5 (providers/mlx5/verbs.c, mlx5_query_rt_values): the clock is reported in its own units, all of them
// in tv_nsec.
int query_rt_values(ibv_context* context, ibv_values_ex* values) {
  if ((values->comp_mask & ~static_cast<uint32_t>(IBV_VALUES_MASK_RAW_CLOCK)) != 0) {
    VERBENA_WARN(query_attributes,
                 "ibv_query_rt_values_ex: %s: comp_mask 0x%x: there is IBV_VALUES_MASK_RAW_CLOCK only",
                 context->device->name, values->comp_mask);
    return answer(EINVAL);
  }
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0) return 0;
  values->raw_clock.tv_sec = 0;
  values->raw_clock.tv_nsec = static_cast<long>(device_clock(to_context(context)->emulated));
  return 0;
}

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr) {
  return answer(verbena::query_port(to_context(context)->emulated, port, attr));
}

// In units of 100 Mb/s (ibv_query_port_speed of <infiniband/verbs.h>).
int query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) {
  ibv_port_attr attr;
  if (port > UINT8_MAX) {
    VERBENA_WARN(port_number, "ibv_query_port_speed: %s: port %u: a device has at most 255",
                 context->device->name, port);
    return answer(EINVAL);
  }
  const int error = verbena::query_port(to_context(context)->emulated, static_cast<uint8_t>(port), &attr);
  if (error != 0) return answer(error);
  *speed = lane_rate(attr.active_speed) * lanes(attr.active_width);
  return 0;
}

}  // namespace verbena::verbs
