// SPDX-License-Identifier: BSD-2-Clause
//
// The folder of a slot, <node>/slots/<slot>.<generation>: the FIFOs and the socket of the slot's process. Each
// folder on the way from the node's on is opened by itself, without following a symbolic link, and must be
// this user's alone (private_folder.h). `name` is that of slot_name(). Any thread. No function is a
// cancellation point.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/descriptor.h"

namespace verbena {

struct SlotAddress;

// The folder's name within `slots`.
std::string slot_name(uint32_t slot, uint32_t generation);  // "12.3"
std::string slot_folder(const std::string& node, uint32_t slot, uint32_t generation);

// Opens it for openat(2) and its kind (O_PATH); needs two descriptors. EPERM: not this user's alone; ENOENT:
// it is gone; EMFILE; or another errno of openat(2).
int open_slot_folder(const std::string& node, const std::string& name, Descriptor* folder);
int open_slot_folder(const SlotAddress& address, Descriptor* folder);

// Makes it, and what is missing of the folders around it: a cleaner of old files may have removed them. EEXIST,
// EPERM, ENOENT: not even the folder around the node is there; or another errno.
int make_slot_folder(const std::string& node, const std::string& name);

// Removes the FIFOs and sockets in it, which is all that a slot folder has, and the folder. What this code did
// not make stays, and so does the folder around it.
void remove_slot_folder(const std::string& node, const std::string& name);

}  // namespace verbena
