// SPDX-License-Identifier: BSD-2-Clause
#include "check/layer.h"

#include <stdio.h>
#include <stdlib.h>

#include "check/forks.h"
#include "check/model.h"
#include "check/operations.h"
#include "findings/rules.h"
#include "findings/variables.h"

namespace verbena::check {
namespace {

verbena_check_provider attached = {};
rdma_core::ContextOps table;
thread_local std::string* reason = nullptr;  // leaks with its thread: no destructor in a stranger's thread

void note_reason(int, const char* line) {
  if (is_inside()) return;
  const Inside inside;
  if (reason == nullptr) reason = new std::string;
  *reason = line;
}

void replace_operations() {
  table = *attached.operations;
  check_objects(table);
  check_queues(table);
  check_transitions(table);
  check_posting(table);
  check_completions(table);
}

const verbena_check_layer layer = {.operations = &table, .opened = enter_device};

}  // namespace

const rdma_core::ContextOps& below() { return *attached.operations; }
const verbena_check_provider& provider() { return attached; }

namespace {

struct CodeRule {
  std::string_view code;  // of observe/diagnostics.def
  const findings::Rule& rule;
};
constexpr CodeRule kCodeRules[] = {
    {"datagram_qkey", rule("qkey-mismatch")},
    {"datagram_no_room", rule("datagram-no-room")},
    {"datagram_stray", rule("datagram-stray")},
    {"datagram_other_type", rule("datagram-stray")},
};

// Of the queue pair of this process that `said` begins with: where its oldest receive was posted. 0: unknown.
StackId oldest_receive(const std::string& said) {
  unsigned number = 0;
  if (sscanf(said.c_str(), "QP %x", &number) != 1) return 0;
  for (const Object* object : all_objects()) {
    const auto* const qp = dynamic_cast<const QueuePair*>(object);
    if (qp == nullptr || !qp->alive || qp->number_of_qp != number || is_parents(*qp)) continue;
    const auto& queue = qp->srq != nullptr ? qp->srq->receives.requests : qp->receives.requests;
    return queue.empty() ? 0 : queue.front().posted;
  }
  return 0;
}

}  // namespace

void report_reason(const Stack& stack) {
  if (reason == nullptr || reason->empty()) return;
  const Locked locked;
  const std::string said = take_reason();
  const size_t begin = said.rfind(" [");
  if (begin == std::string::npos || said.back() != ']') return;
  const std::string_view code = std::string_view(said).substr(begin + 2, said.size() - begin - 3);
  for (const CodeRule& each : kCodeRules)
    if (each.code == code)
      report(each.rule, said.substr(0, begin),
             {{"posted here", keep_stack(stack)},
              {"the receive was posted here", code == "datagram_no_room" ? oldest_receive(said) : 0}});
}

std::string take_reason() {
  std::string text;
  if (reason != nullptr) text.swap(*reason);
  return text;
}

}  // namespace verbena::check

// Handlers of fork(2) that prepare it run in reverse order: those of the program and of the adapter, which
// take their locks, before the one that takes the model's (pthread_atfork(3)). So it is entered before
// theirs.
__attribute__((constructor)) static void prepare_for_fork() {
  using namespace verbena::check;
  if (getenv(verbena::findings::kFileVariable) == nullptr) return;
  watch_forks();
}

extern "C" __attribute__((visibility("default"))) const verbena_check_layer* verbena_check_attach(
    const verbena_check_provider* provider) {
  using namespace verbena::check;
  if (getenv(verbena::findings::kFileVariable) == nullptr) return nullptr;
  static const bool once = [provider] {
    const Inside inside;
    attached = *provider;
    leave_out_adapter(reinterpret_cast<const void*>(provider->listen));
    replace_operations();
    attached.listen(note_reason);
    return true;
  }();
  return once ? &layer : nullptr;
}
