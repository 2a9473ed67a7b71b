/* SPDX-License-Identifier: BSD-2-Clause */
typedef int verbena_test_preload_is_empty;
