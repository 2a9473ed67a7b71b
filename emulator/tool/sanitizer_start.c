/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Preloaded behind ThreadSanitizer's runtime into stock programs: the runtime sets itself up when the first
 * instrumented object starts, but its interceptors are at work before that, and a program without any
 * instrumented object (a shell) crashes in them. Only in builds with that sanitizer.
 */
void __tsan_init(void);

__attribute__((constructor)) static void start(void) { __tsan_init(); }
