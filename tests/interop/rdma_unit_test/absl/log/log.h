// SPDX-License-Identifier: BSD-2-Clause
//
// Abseil's logging for the suite, by glog: the Abseil that Debian 12 has is older than its logging.
#pragma once

#include <glog/logging.h>

#define LOG_EVERY_N_SEC(severity, seconds) LOG_EVERY_T(severity, seconds)
