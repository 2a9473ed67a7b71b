// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/device_table.h"
