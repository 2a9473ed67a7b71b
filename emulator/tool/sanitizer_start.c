/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Preloaded into stock programs behind ThreadSanitizer's runtime, in builds with that sanitizer. The runtime
 * initializes itself when the first instrumented object starts, but its interceptors are active before that.
 * A program without any instrumented object (a shell) would crash in them.
 */
void __tsan_init(void);

__attribute__((constructor)) static void start(void) { __tsan_init(); }
