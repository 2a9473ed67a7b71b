// SPDX-License-Identifier: BSD-2-Clause
//
// Management datagrams: 256 bytes, sent to QP 1 with a well-known Q_Key. The header is that of every class;
// the messages of the connection manager follow it (cm_messages.h).
//
// Sources: InfiniBand Architecture Specification vol. 1, 13.4.2; the kernel's include/rdma/ib_mad.h.
#pragma once

#include "roce/field.h"

namespace verbena::roce {

inline constexpr uint32_t kManagementQpn = 1;
inline constexpr uint32_t kManagementQkey = 0x80010000;
inline constexpr size_t kMadSize = 256;

struct MadHeader {
  uint8_t base_version = 1;
  uint8_t management_class = 0;
  uint8_t class_version = 0;
  uint8_t method = 0;
  uint16_t status = 0;
  uint16_t class_specific = 0;
  uint64_t transaction_id = 0;
  uint16_t attribute_id = 0;
  uint32_t attribute_modifier = 0;

  bool operator==(const MadHeader&) const = default;
};
template <>
struct Layout<MadHeader> {
  static constexpr size_t kSize = 24;
  static constexpr auto kFields = std::tuple{Field<&MadHeader::base_version>{0, 8},
                                             Field<&MadHeader::management_class>{8, 8},
                                             Field<&MadHeader::class_version>{16, 8},
                                             Field<&MadHeader::method>{24, 8},
                                             Field<&MadHeader::status>{32, 16},
                                             Field<&MadHeader::class_specific>{48, 16},
                                             Field<&MadHeader::transaction_id>{64, 64},
                                             Field<&MadHeader::attribute_id>{128, 16},
                                             Field<&MadHeader::attribute_modifier>{160, 32}};
};
static_assert(is_sound_layout<MadHeader>());

}  // namespace verbena::roce
