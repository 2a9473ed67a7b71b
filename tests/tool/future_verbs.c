/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A libibverbs with a function in a version that no real one has (future_verbs.map). future_program.c is linked with
 * it, and finds the installed libibverbs.
 */
int ibv_future(void);
int ibv_future(void) { return 0; }
