// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/local_requests.h"

#include <errno.h>

#include <algorithm>

#include "engine/objects/qp.h"
#include "engine/objects/send_request.h"
#include "engine/qp_state/error_flow.h"
#include "engine/responder/invalidation.h"
#include "engine/rules/window_rules.h"
#include "fabric/hazards.h"
#include "observe/log.h"

namespace verbena {
namespace {

// A BIND_MW, in the fields of SendRequest.
struct BindRequest {
  uint32_t rkey;  // the window's next
  uint32_t lkey;  // of the region
  Binding binding;

  void put_into(SendRequest* request) const {
    request->rkey = rkey;
    request->remote_address = binding.address;
    request->compare_add = binding.length;
    request->swap = uint64_t{lkey} << 32 | binding.access;
  }
  static BindRequest of(const SendRequest& request) {
    return {request.rkey,
            static_cast<uint32_t>(request.swap >> 32),
            {request.remote_address, request.compare_add, static_cast<uint32_t>(request.swap)}};
  }
};

Response refuse(const Qp& qp, const char* what, uint32_t rkey, const char* why) {
  VERBENA_WARN(bind_refused, "QP 0x%06x: %s, rkey 0x%x: %s", qp.shared->qpn, what, rkey, why);
  return {Answer::kLocal, VendorError::bind_refused};
}

// The region that has this lkey now. Under MemoryObjects::mutex.
Mr* find_region(Process& process, uint32_t lkey) {
  const MemoryKey key = MemoryKey::unpack(lkey);
  const auto found = process.memory_objects().mrs.find(key.index);
  if (found == process.memory_objects().mrs.end() || found->second->lkey != lkey) return nullptr;
  const SharedMr* entry = process.view().mr(key.index);
  return entry->valid.load(std::memory_order_acquire) == (kKeyValid | key.tag) ? found->second : nullptr;
}

void forget_region(Mw& window) {
  if (window.region != nullptr) std::erase(window.region->windows, &window);
  window.region = nullptr;
}

bool hazards_are_released(const Qp& qp, uint32_t from_slot) {
  return hazards_released(qp.process->directory(), qp.process->membership().slot(), from_slot,
                          kHazardPatience);
}

Response bind(Qp& qp, const BindRequest& request) {
  Process& process = *qp.process;
  MemoryObjects& objects = process.memory_objects();
  const uint32_t index = MemoryKey::unpack(request.rkey).index;
  // Two passes at most: the first one ends the last binding and waits for its users.
  for (bool settled = false;;) {
    std::unique_lock lock(objects.mutex);
    const auto found = objects.mws.find(index);
    if (found == objects.mws.end() || !MemoryKey::unpack(request.rkey).remote)
      return refuse(qp, "BIND_MW", request.rkey, "there is no such window");
    Mw& window = *found->second;
    SharedMr& entry = *find_window(process.view(), window.rkey);
    Mr* region = request.binding.length != 0 ? find_region(process, request.lkey) : nullptr;
    const WindowState state{window.kind, window.pd, entry.valid.load(std::memory_order_acquire) != 0,
                            qp.pd->handle};
    if (const char* why =
            check_binding(state, region != nullptr ? &region->region : nullptr, request.binding);
        why != nullptr)
      return refuse(qp, "BIND_MW", request.rkey, why);
    if (window.kind == KeyKind::kWindow1 && window.was_bound && !settled) {
      entry.valid.store(0, std::memory_order_release);
      forget_region(window);
      lock.unlock();
      if (!hazards_are_released(qp, kAnySlot)) return {Answer::kBusy};
      settled = true;
      continue;
    }
    forget_region(window);
    window.was_bound = false;
    if (region == nullptr) return {Answer::kAck};
    process.memory().bind_window(
        process.segment(), request.rkey, bound_region(state, region->region, request.binding),
        window.kind == KeyKind::kWindow2 ? qp.shared->qpn : 0, MemoryKey::unpack(region->lkey).index);
    window.region = region;
    window.was_bound = true;
    region->windows.push_back(&window);
    return {Answer::kAck};
  }
}

Response invalidate(Qp& qp, const SendRequest& request) {
  SharedMr* window = find_window(qp.process->view(), request.rkey);
  // A second call, after a slow user: the window is not bound any more.
  if (qp.waiting != Waiting::kAtomicLock) {
    const VendorError error = check_invalidation(window, request.rkey, qp.pd->handle, qp.shared->qpn);
    if (error != VendorError::none)
      return refuse(qp, "LOCAL_INV", request.rkey, find_vendor_error(static_cast<uint32_t>(error))->text);
    if (!unbind_window(*window, request.rkey))
      return refuse(qp, "LOCAL_INV", request.rkey, "the window is not bound any more");
  }
  return hazards_are_released(qp, qp.shared->dest_slot) ? Response{Answer::kAck} : Response{Answer::kBusy};
}

}  // namespace

void read_memory_wr(const ibv_send_wr& wr, SendRequest* request) {
  switch (wr.opcode) {
    case IBV_WR_BIND_MW: {
      const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
      // The window must be the one that the WR names. Only the tag of the new key is the program's choice.
      const uint32_t rkey = (wr.bind_mw.mw->rkey & ~0xffu) | (wr.bind_mw.rkey & 0xffu);
      BindRequest{
          rkey, info.mr != nullptr ? info.mr->lkey : 0, {info.addr, info.length, info.mw_access_flags}}
          .put_into(request);
      break;
    }
    case IBV_WR_LOCAL_INV:
      request->rkey = wr.invalidate_rkey;
      break;
    case IBV_WR_SEND_WITH_INV:
      request->immediate = wr.invalidate_rkey;
      break;
    default:
      return;
  }
  if (is_local(wr.opcode)) {
    request->sge_count = 0;
    request->length = 0;
    request->is_inline = false;
  }
}

Response carry_out_locally(Qp& qp, const SendRequest& request) {
  return request.opcode == IBV_WR_BIND_MW ? bind(qp, BindRequest::of(request)) : invalidate(qp, request);
}

}  // namespace verbena
