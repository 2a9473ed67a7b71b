/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Preloaded, it makes the installed libibverbs look like a newer one: newer_libibverbs.map gives this symbol a
 * version that only those have.
 */
int verbena_test_of_a_newer_libibverbs(void);
int verbena_test_of_a_newer_libibverbs(void) { return 0; }
