// SPDX-License-Identifier: BSD-2-Clause
#include "wire/connection_passing.h"

#include <algorithm>
#include <array>
#include <span>

#include "fabric/fork_descriptors.h"

namespace verbena::wire {
namespace {

constexpr size_t kPassedSize = kHelloSize + sizeof(Digest);

bool decode_passed(std::span<const uint8_t> bytes, Admitted* admitted) {
  if (bytes.size() != kPassedSize) return false;
  if (decode(bytes.first<kHelloSize>(), &admitted->hello) != Refusal::kNone) return false;
  std::copy_n(bytes.begin() + kHelloSize, sizeof(Digest), admitted->transcript.begin());
  return true;
}

}  // namespace

int pass_connection(const SlotAddress& process, const Admitted& admitted, int connection) {
  std::array<uint8_t, kPassedSize> bytes;
  const auto hello = encode(admitted.hello);
  std::copy(hello.begin(), hello.end(), bytes.begin());
  std::copy(admitted.transcript.begin(), admitted.transcript.end(), bytes.begin() + kHelloSize);
  MessageSocket to;
  return call_service(process, ServiceNumber::kPassedConnection, bytes, &to, {&connection, 1});
}

bool take_passed_connection(ServiceInbox& inbox, Admitted* admitted, int* connection) {
  for (ServiceInbox::Call call; inbox.take(&call);) {
    if (call.passed.fd < 0) continue;
    if (!decode_passed(call.message, admitted)) continue;
    *connection = call.passed.release();
    keep_from_children(*connection);
    return true;
  }
  return false;
}

}  // namespace verbena::wire
