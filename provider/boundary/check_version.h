/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The version of the functions of libverbena-check.so that stand behind hooks of calls (real.h): neither
 * calls of the program nor dlsym(3) find them there, and the preload does by this name.
 */
#ifndef VERBENA_PROVIDER_BOUNDARY_CHECK_VERSION_H
#define VERBENA_PROVIDER_BOUNDARY_CHECK_VERSION_H

#define VERBENA_CHECK_VERSION "VERBENA_CHECK"

#endif
