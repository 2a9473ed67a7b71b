// SPDX-License-Identifier: BSD-2-Clause
#include "check/stack.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

extern "C" {
// Begin and end of this library, from the linker.
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
}

namespace verbena::check {
namespace {

// The adapter's library, below the checker. Written once, before it calls the checker for the first time.
uintptr_t adapter_begin = 0, adapter_end = 0;

bool is_own(uintptr_t address) {
  return (address >= reinterpret_cast<uintptr_t>(__ehdr_start) &&
          address < reinterpret_cast<uintptr_t>(_end)) ||
         (address >= adapter_begin && address < adapter_end);
}

_Unwind_Reason_Code take_frame(_Unwind_Context* context, void* argument) {
  auto* stack = static_cast<Stack*>(argument);
  const uintptr_t address = _Unwind_GetIP(context);
  if (address == 0 || stack->depth == kStackDepth) return _URC_END_OF_STACK;
  if (stack->depth == 0 && is_own(address)) return _URC_NO_REASON;
  stack->frames[stack->depth] = address;
  stack->functions[stack->depth] = _Unwind_GetRegionStart(context);
  stack->ends[stack->depth++] = _Unwind_GetCFA(context);
  return _URC_NO_REASON;
}

struct Hash {
  size_t operator()(const Stack& stack) const {
    uint64_t hash = stack.depth;
    for (unsigned i = 0; i < stack.depth; ++i) hash = (hash ^ stack.frames[i]) * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(hash ^ (hash >> 29));
  }
};

// Never destroyed: the program may call until its very end.
auto& kept() {
  static auto* const stacks = new std::deque<Stack>(1);
  return *stacks;
}
auto& numbers() {
  static auto* const map = new std::unordered_map<Stack, StackId, Hash>;
  return *map;
}

struct Module {
  uintptr_t address;
  uintptr_t base = 0;
  uintptr_t end = 0;
  std::string name = {};
};

int find_module(dl_phdr_info* info, size_t, void* argument) {
  auto* const wanted = static_cast<Module*>(argument);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_LOAD || wanted->address < begin || wanted->address >= begin + segment.p_memsz)
      continue;
    wanted->base = info->dlpi_addr;
    for (int each = 0; each < info->dlpi_phnum; ++each)
      if (const ElfW(Phdr)& part = info->dlpi_phdr[each]; part.p_type == PT_LOAD)
        wanted->end = std::max<uintptr_t>(wanted->end, info->dlpi_addr + part.p_vaddr + part.p_memsz);
    wanted->name = info->dlpi_name;
    return 1;
  }
  return 0;
}

std::string own_program() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
}

}  // namespace

bool Stack::operator==(const Stack& other) const {
  return depth == other.depth && std::equal(frames, frames + depth, other.frames);
}

void leave_out_adapter(const void* function) {
  Module module{reinterpret_cast<uintptr_t>(function)};
  dl_iterate_phdr(find_module, &module);
  adapter_begin = module.base;
  adapter_end = module.end;
}

Stack capture_stack() {
  Stack stack;
  _Unwind_Backtrace(take_frame, &stack);
  return stack;
}

StackId keep_stack(const Stack& stack) {
  const auto [place, is_new] = numbers().try_emplace(stack, static_cast<StackId>(kept().size()));
  if (is_new) kept().push_back(stack);
  return place->second;
}

const Stack& kept_stack(StackId id) { return kept()[id < kept().size() ? id : 0]; }

void append_json(std::string& out, const char* text) {
  out += '"';
  for (; *text != 0; ++text) {
    const auto c = static_cast<unsigned char>(*text);
    if (c == '"' || c == '\\') out += '\\';
    if (c < ' ' || c >= 0x7f) {  // bytes of any encoding: what is not ASCII is shown as such
      char escaped[8];
      snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += static_cast<char>(c);
    }
  }
  out += '"';
}

void append_frames(std::string& out, const Stack& stack) {
  out += '[';
  for (unsigned i = 0; i < stack.depth; ++i) {
    // A return address may be the first one behind a function that does not return.
    Module module{stack.frames[i] - 1};
    dl_iterate_phdr(find_module, &module);
    if (module.name.empty()) module.name = own_program();  // the dynamic linker has no name for it
    Dl_info symbol = {};
    const bool has_symbol =
        dladdr(reinterpret_cast<void*>(module.address), &symbol) != 0 && symbol.dli_sname != nullptr;
    out += i == 0 ? "{\"module\":" : ",{\"module\":";
    append_json(out, module.name.c_str());
    char offset[48];
    snprintf(offset, sizeof offset,
             ",\"offset\":%llu,\"symbol\":", static_cast<unsigned long long>(stack.frames[i] - module.base));
    out += offset;
    append_json(out, has_symbol ? symbol.dli_sname : "");
    out += '}';
  }
  out += ']';
}

}  // namespace verbena::check
