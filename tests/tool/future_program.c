/* SPDX-License-Identifier: BSD-2-Clause */
int ibv_future(void);
int main(void) { return ibv_future(); }
