// SPDX-License-Identifier: BSD-2-Clause
//
// Parts of operations that other operations use, under the service's lock.
#pragma once

#include "cm/addresses.h"

namespace verbena::cm {

struct Id;

int bind_locked(Id& id, const Address& address);  // identifier.cc

}  // namespace verbena::cm
