# SPDX-License-Identifier: BSD-2-Clause
#
# verbena_add_test(NAME name COMMAND program [argument...] [NODE own|node] [DEVICES n] [LINK_LAYER layer]
#                  [PROFILE profile] [WORKING_DIRECTORY folder])
#
# add_test() for a program that uses libibverbs or librdmacm: it is run by `verbena run`, and its exit status
# is that of the program. COMMAND may name an executable target, and may have generator expressions.
#
# NODE        own (default): a node that no other test and no other run of this test sees, so that tests may
# run side by
#             side (ctest -j). Any other word: the node of that name, which all tests share that name it.
# DEVICES     how many devices the program sees: verbena0, verbena1, ...
# LINK_LAYER  ethernet or infiniband
# PROFILE     what the devices offer: default, minimal, rxe, or a file
#
# A server and its client are one test: a program or script that starts both.
function(verbena_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;NODE;DEVICES;LINK_LAYER;PROFILE;WORKING_DIRECTORY" "COMMAND")
  if(NOT arg_NAME OR NOT arg_COMMAND)
    message(FATAL_ERROR "verbena_add_test: NAME and COMMAND are needed")
  endif()
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "verbena_add_test(${arg_NAME}): unknown: ${arg_UNPARSED_ARGUMENTS}")
  endif()

  set(command "")
  foreach(word IN LISTS arg_COMMAND)
    if(NOT command AND TARGET "${word}")
      set(word $<TARGET_FILE:${word}>)
    endif()
    string(REPLACE ";" "\\;" word "${word}")  # a semicolon of the user's
    list(APPEND command "${word}")
  endforeach()
  set(options "")
  foreach(option DEVICES LINK_LAYER PROFILE)
    if(DEFINED arg_${option})
      string(TOLOWER "--${option}" word)
      string(REPLACE "_" "-" word "${word}")
      list(APPEND options ${word} "${arg_${option}}")
    endif()
  endforeach()
  set(folder "")
  if(arg_WORKING_DIRECTORY)
    set(folder WORKING_DIRECTORY "${arg_WORKING_DIRECTORY}")
  endif()

  set(verbena $<TARGET_FILE:verbena::verbena>)
  if(NOT arg_NODE OR arg_NODE STREQUAL "own")
    # Of this test of this build (the sum), and of this run (the process).
    string(MD5 sum "${CMAKE_CURRENT_BINARY_DIR} ${arg_NAME}")
    string(SUBSTRING ${sum} 0 12 sum)
    set(run sh -c "node=$1 && shift && exec \"$0\" run --node \"$node.$$\" \"$@\"" ${verbena} t${sum})
  else()
    set(run ${verbena} run --node ${arg_NODE})
  endif()
  add_test(NAME "${arg_NAME}" COMMAND ${run} ${options} -- ${command} ${folder})
endfunction()
