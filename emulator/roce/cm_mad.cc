// SPDX-License-Identifier: BSD-2-Clause
#include "roce/cm_mad.h"

#include <utility>

namespace verbena::roce {
namespace {

template <size_t... kIndex>
bool decode_message(uint16_t attribute, const uint8_t* from, CmMessage* out, std::index_sequence<kIndex...>) {
  const auto decode_if = [&]<typename Message>(const Message*) {
    if (attribute != Message::kAttribute) return false;
    *out = decode<Message>(from);
    return true;
  };
  return (decode_if(static_cast<const std::variant_alternative_t<kIndex, CmMessage>*>(nullptr)) || ...);
}

}  // namespace

std::optional<CmMad> parse_cm_mad(std::span<const uint8_t> mad) noexcept {
  if (mad.size() != kMadSize) return std::nullopt;
  const auto header = decode<MadHeader>(mad.data());
  if (header.base_version != 1 || header.management_class != kCmClass ||
      header.class_version != kCmClassVersion || header.method != kCmMethod || header.status != 0)
    return std::nullopt;
  CmMad result{header.transaction_id, {}};
  if (!decode_message(header.attribute_id, mad.data() + Layout<MadHeader>::kSize, &result.message,
                      std::make_index_sequence<std::variant_size_v<CmMessage>>()))
    return std::nullopt;
  return result;
}

void write_cm_mad(const CmMad& mad, std::span<uint8_t, kMadSize> out) noexcept {
  std::visit(
      [&]<typename Message>(const Message& message) {
        MadHeader header;
        header.management_class = kCmClass;
        header.class_version = kCmClassVersion;
        header.method = kCmMethod;
        header.transaction_id = mad.transaction_id;
        header.attribute_id = Message::kAttribute;
        encode(header, out.data());
        encode(message, out.data() + Layout<MadHeader>::kSize);
      },
      mad.message);
}

}  // namespace verbena::roce
