// SPDX-License-Identifier: BSD-2-Clause
//
// What the boundary asks the provider for. It loads the provider only for that.
#pragma once

namespace verbena {

// A function that the provider exports (claim.h). nullptr: no provider, or one without it; or this is a vfork
// child.
void* provider_function(const char* name);

// Makes the node again, or mends it, if its device tree is gone: the node may have gone with its last
// process, or a cleaner of old files has been there. Does not ask again after a failure. True: it is back.
bool restore_missing_tree();

}  // namespace verbena
