// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "absl/log/log.h"

#define CHECK_OK(status) CHECK((status).ok())
