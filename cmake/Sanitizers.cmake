# SPDX-License-Identifier: BSD-2-Clause
if(VERBENA_SANITIZE)
  # -g1: reports name functions and lines only; with types and variables a file takes a quarter longer.
  add_compile_options(-fsanitize=${VERBENA_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${VERBENA_SANITIZE})
  if(VERBENA_SANITIZE MATCHES "address")
    # The sanitizer describes each variable in data that a position-independent program relocates at each start: a quarter
    # of what the command costs.
    add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
  endif()
  if(VERBENA_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  if(VERBENA_SANITIZE MATCHES "thread")
    # ThreadSanitizer does not model fences and warns of it. Ours order a store before a load (Dekker); no data
    # are published by a fence alone.
    add_compile_options(-Wno-tsan)
  endif()
endif()
