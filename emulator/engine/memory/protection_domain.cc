// SPDX-License-Identifier: BSD-2-Clause
//
// Protection domains (ibv_alloc_pd(3), ibv_import_pd(3)).
#include <errno.h>
#include <stdio.h>

#include <mutex>
#include <new>
#include <string>

#include "adapter/listed.h"
#include "emulator.h"
#include "engine/objects/context.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/srq.h"
#include "observe/log.h"

namespace verbena {
namespace {

// "2 memory regions (lkey 0x201, 0x402)", and so on for each kind that has some.
class Remaining {
 public:
  void add(const char* format, uint32_t number) {
    if (count_++ >= kNamed) return;
    char name[24];
    snprintf(name, sizeof name, format, number);
    names_ += names_.empty() ? name : std::string(", ") + name;
  }
  uint32_t count() const { return count_; }
  void append_to(std::string& text, const char* one, const char* several) const {
    if (count_ == 0) return;
    text += text.empty() ? "" : ", ";
    text += std::to_string(count_) + " " + (count_ == 1 ? one : several);
    if (!names_.empty()) text += " (" + names_ + (count_ > kNamed ? ", ...)" : ")");
  }

 private:
  static constexpr uint32_t kNamed = 8;
  uint32_t count_ = 0;
  std::string names_;
};

// The objects of the domain. Address handles have no number, and are what is left of `users`.
std::string describe_users(Process& process, const Pd& pd, uint32_t users) {
  Remaining mrs, mws, qps, srqs;
  {
    std::lock_guard lock(process.serving_mutex());
    process.for_each_qp([&](const Qp& qp) {
      if (qp.pd != nullptr && qp.pd->handle == pd.handle) qps.add("0x%06x", qp.shared->qpn);
    });
    const uint32_t limit = process.srq_indices().ever_taken();
    for (uint32_t i = 0; i < limit; ++i)
      if (const Srq* const srq = process.srq(i);
          srq != nullptr && is_of_program(*srq) && srq->pd_handle == pd.handle)
        srqs.add("%u", i);
  }
  {
    MemoryObjects& objects = process.memory_objects();
    std::lock_guard lock(objects.mutex);
    for (const auto& [handle, mr] : objects.mrs)
      if (mr->pd_users == pd.count) mrs.add("lkey 0x%x", mr->lkey);
    for (const auto& [handle, mw] : objects.mws)
      if (mw->pd_users == pd.count) mws.add("rkey 0x%x", mw->rkey);
  }
  std::string text;
  mrs.append_to(text, "memory region", "memory regions");
  mws.append_to(text, "memory window", "memory windows");
  qps.append_to(text, "queue pair", "queue pairs");
  srqs.append_to(text, "SRQ", "SRQs");
  const uint32_t named = mrs.count() + mws.count() + qps.count() + srqs.count();
  if (users > named) {
    text += text.empty() ? "" : ", ";
    text += std::to_string(users - named) + (users - named == 1 ? " address handle" : " address handles");
  }
  return text;
}

}  // namespace

int alloc_pd(Context* context, Pd** out) {
  Process& process = *context->process;
  if (int error = usable(*context); error != 0) return error;
  if (take_quota(*context, Counted::kPds, "ibv_alloc_pd") != 0) return ENOMEM;
  static std::atomic<uint32_t> next_handle{1};
  auto* pd = new (std::nothrow) Pd;
  if (pd == nullptr) {
    give_quota(*context, Counted::kPds);
    return ENOMEM;
  }
  pd->context = context;
  pd->handle = next_handle.fetch_add(1, std::memory_order_relaxed);
  MemoryObjects& objects = process.memory_objects();
  const uint32_t listed =
      list_object(process.view(), ListedKind::kDomain, pd->handle, context->number, context->device_index);
  std::lock_guard lock(objects.mutex);
  objects.domains.emplace(pd->handle, MemoryObjects::Domain{context->file, pd->count, listed});
  *out = pd;
  return 0;
}

void log_busy_pd(const Pd* pd, uint32_t parent_domains) {
  if (!logs(LogLevel::kWarn)) return;
  const uint32_t users = pd->users.load(std::memory_order_acquire);
  try {
    std::string text = pd->context->process->dead() ? "" : describe_users(*pd->context->process, *pd, users);
    if (parent_domains != 0)
      text += (text.empty() ? "" : ", ") + std::to_string(parent_domains) +
              (parent_domains == 1 ? " parent domain" : " parent domains");
    VERBENA_WARN(object_in_use, "ibv_dealloc_pd: PD %u: still has %s", pd->handle, text.c_str());
  } catch (const std::bad_alloc&) {
    VERBENA_WARN(object_in_use, "ibv_dealloc_pd: PD %u: %u objects still belong to it", pd->handle, users);
  }
}

int dealloc_pd(Pd* pd) {
  Process& process = *pd->context->process;
  if (!process.dead()) {
    MemoryObjects& objects = process.memory_objects();
    std::unique_lock lock(objects.mutex);
    if (pd->users.load(std::memory_order_acquire) != 0) {
      lock.unlock();
      log_busy_pd(pd, 0);
      return EBUSY;
    }
    // Another context that shares the domain may have been first (in the kernel: no such object).
    const auto found = objects.domains.find(pd->handle);
    if (found == objects.domains.end()) return ENOENT;
    unlist_object(process.view(), found->second.listed);
    objects.domains.erase(found);
    give_quota(*pd->context, Counted::kPds);
  } else if (pd->users.load(std::memory_order_acquire) != 0) {
    return 0;  // objects that are destroyed later still use it
  }
  delete pd;
  return 0;
}

uint32_t pd_handle(const Pd* pd) { return pd->handle; }
bool is_of(const Pd* pd, const Context* context) { return pd->context->file == context->file; }

int import_pd(Context* context, uint32_t handle, Pd** out) {
  Process& process = *context->process;
  if (int error = usable(*context); error != 0) return error;
  MemoryObjects& objects = process.memory_objects();
  std::lock_guard lock(objects.mutex);
  const auto found = objects.domains.find(handle);
  if (found == objects.domains.end() || found->second.file != context->file) {
    VERBENA_WARN(unknown_handle,
                 "ibv_import_pd: handle %u: the context's command descriptor knows no such protection domain",
                 handle);
    return ENOENT;
  }
  auto* pd = new (std::nothrow) Pd{context, handle, found->second.count};
  if (pd == nullptr) return ENOMEM;
  *out = pd;
  return 0;
}

void unimport_pd(Pd* pd) { delete pd; }

}  // namespace verbena
