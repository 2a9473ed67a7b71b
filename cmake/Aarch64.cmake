# SPDX-License-Identifier: BSD-2-Clause
#
# Toolchain file: for 64-bit ARM on another Debian or Ubuntu machine. docs/TESTING.md has the commands.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# A root of packaging/arm64-root: its headers and libraries instead of the machine's.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES VERBENA_ROOT)
if(VERBENA_ROOT)
  set(CMAKE_SYSROOT ${VERBENA_ROOT})
  set(CMAKE_FIND_ROOT_PATH ${VERBENA_ROOT})
  set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
  set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
  set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
  set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
endif()
# The clause compiler, manual pages from --help, and the unit tests' programs run in the build.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
if(VERBENA_ROOT)
  list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -L ${VERBENA_ROOT})
endif()
