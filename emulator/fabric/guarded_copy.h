// SPDX-License-Identifier: BSD-2-Clause
//
// Copies to and from memory whose pages may go away meanwhile: a file that this process maps because a peer
// has registered it (mapped_regions.h), and that any process may truncate. The access then raises SIGBUS
// (mmap(2)). A handler of ours ends the copy, and nothing else: any other SIGBUS is the program's, and goes
// to the program's action.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena {

// Does the calling thread block SIGBUS? Then a page that is gone would end the process (the kernel,
// force_sig_info_to_task()).
enum class SigbusMask : uint8_t { kUnknown, kTaken, kBlocked };
__attribute__((tls_model("initial-exec"))) inline constinit thread_local SigbusMask sigbus_mask =
    SigbusMask::kUnknown;

// Installs the handler, once. False: the kernel refuses, and nothing may be copied. Any thread.
bool install_copy_guard();

// May the calling thread use the functions below? After install_copy_guard().
bool look_at_sigbus_mask();
inline bool may_copy_guarded() {
  return sigbus_mask == SigbusMask::kTaken || (sigbus_mask == SigbusMask::kUnknown && look_at_sigbus_mask());
}

// Copies `size` bytes from first to last. Aligned words of up to 8 bytes at the destination are written in
// one piece, and the last word is written last (release). False: a page of either side is gone; some bytes
// may have been copied.
bool copy_guarded(void* to, const void* from, size_t size);

// An atomic operation of the processor on an aligned word. The former value goes to *before. False as above.
bool fetch_add_guarded(uint64_t* word, uint64_t addend, uint64_t* before);
bool compare_and_swap_guarded(uint64_t* word, uint64_t compare, uint64_t swap, uint64_t* before);

}  // namespace verbena
