// SPDX-License-Identifier: BSD-2-Clause
//
// A test double of the emulator: it records the calls and returns what it was told to, so that the provider's
// translation can be tested without an adapter, a node or the preload.
#pragma once

#include "emulator.h"

namespace verbena {

struct FakeEmulator {
  int error = 0;  // what every function that can fail returns

  int contexts = 0;  // alive
  bool objects_left = false;  // when one is closed
  int objects = 0;   // alive, of every other kind
  char device[64] = {};
  int async_fd = -1;
  int channel_fd = -1;

  uint64_t clock = 0;
  uint64_t iova = 0;
  uint8_t active_speed = 0;
  uint8_t active_width = 0;
  int access = 0;
  int cq_channel_fd = 0;
  uint64_t user_handle = 0;
  ibv_qp_attr modify_attr = {};
  int modify_mask = 0;
  ibv_qp_init_attr query_init = {};
  int rereg_flags = 0;
  Pd* rereg_pd = nullptr;
  int unimported = 0;
  const ibv_send_wr* sent = nullptr;
  ibv_send_wr sent_copy = {};  // of the first
  const ibv_recv_wr* received = nullptr;
  bool solicited_only = false;
  const ibv_gid* gid = nullptr;  // of the group
  uint16_t lid = 0;
  const ibv_flow_attr* flow = nullptr;
  uint32_t counter_index = 0;
  bool table_is_whole = false;
  uint32_t srq_limit = 0;
  bool qp_has_srq = false;
  bool blocks_own_multicast = false;
  bool srq_is_xrc = false;
  int xrcd_fd = 0;
  int xrcd_flags = 0;
  uint32_t opened_qpn = 0;
  uint64_t closed_handle = 0;

  uint32_t comp_events = 0;   // what destroy_cq reports
  uint32_t async_events = 0;  // what destroy_cq, destroy_qp and destroy_srq report
};

extern FakeEmulator fake;

}  // namespace verbena
