# SPDX-License-Identifier: BSD-2-Clause
#
# The provider's data path runs through a dozen small files; the linker joins them (link-time optimisation). Only the
# provider's link takes the time for that: the objects contain ordinary code as well, which all other targets link. Such
# a target has to say so (VERBENA_PARTS_LINK): gcc's linker plugin optimises whatever it can, which took minutes for the
# seventy unit tests.
option(VERBENA_WHOLE_PROGRAM "Optimise the provider as a whole: a faster data path, a slower build" ON)
if(VERBENA_WHOLE_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT VERBENA_SANITIZE)
  set(VERBENA_WHOLE_PROGRAM_COMPILE -flto=auto -ffat-lto-objects)
  set(VERBENA_WHOLE_PROGRAM_LINK -flto=auto -O2)
  set(VERBENA_PARTS_LINK -fno-lto)
endif()
