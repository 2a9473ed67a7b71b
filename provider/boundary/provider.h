// SPDX-License-Identifier: BSD-2-Clause
//
// The functions of the provider that the boundary calls. The boundary loads the provider for this purpose
// only.
#pragma once

namespace verbena {

// A function that the provider exports (claim.h). nullptr: there is no provider, the provider lacks the
// function, or this is a vfork child.
void* provider_function(const char* name);

// If the device tree of the node is gone, creates or repairs the node. The node may have been removed with
// its last process, or a cleaner of old files may have deleted the tree. After a failure, later calls do
// nothing. True: the tree is back.
bool restore_missing_tree();

// `path` is in the node's tree, and about to be opened. If it is a counter of a port, its file gets the
// present value. Preserves errno.
void refresh_counter(const char* path);

}  // namespace verbena
