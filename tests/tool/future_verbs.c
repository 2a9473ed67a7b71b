/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A libibverbs that is newer than all real ones: with a function in a version that none has, and with an unknown
 * provider ABI (future_verbs.map). future_program.c is linked with it, and finds the installed libibverbs.
 */
int ibv_future(void);
int ibv_future(void) { return 0; }
void verbs_register_driver_99(const void* ops);
void verbs_register_driver_99(const void* ops) { (void)ops; }
