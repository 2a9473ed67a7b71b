// SPDX-License-Identifier: BSD-2-Clause
//
// The program whose precompiled headers the tests share (../cmake/Precompile.cmake).
int main() {}
