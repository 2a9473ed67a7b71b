# SPDX-License-Identifier: BSD-2-Clause
#
# verbena_suite_tests(TARGET PREFIX SECONDS LABEL): a ctest test "PREFIX<suite>.*" for each suite of a GoogleTest program, instead
# of one for each of its tests (gtest_discover_tests()). Of a large program with a sanitizer the start takes longer than most tests.
#
# A suite fails if one of its tests fails; one that is skipped is not told apart from those that pass.
if(CMAKE_SCRIPT_MODE_FILE)  # after each build: PROGRAM PREFIX SECONDS LABEL OUT
  execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "(^|\n)[^ \n]+[.]" suites "${listed}")
  set(tests)
  foreach(suite IN LISTS suites)
    string(STRIP "${suite}" suite)
    string(APPEND tests "add_test([=[${PREFIX}${suite}*]=] [=[${PROGRAM}]=] [=[--gtest_filter=${suite}*]=])\n"
                        "set_tests_properties([=[${PREFIX}${suite}*]=] PROPERTIES TIMEOUT ${SECONDS} LABELS ${LABEL})\n")
  endforeach()
  if(NOT tests)
    message(FATAL_ERROR "${PROGRAM} lists no tests")
  endif()
  file(WRITE ${OUT} "${tests}")
  return()
endif()

set(verbena_suite_script ${CMAKE_CURRENT_LIST_FILE})
function(verbena_suite_tests target prefix seconds label)
  set(tests ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites_include.cmake)
  add_custom_command(TARGET ${target} POST_BUILD BYPRODUCTS ${tests} VERBATIM
                     COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${target}> -D PREFIX=${prefix} -D SECONDS=${seconds}
                             -D LABEL=${label} -D OUT=${tests} -P ${verbena_suite_script})
  file(WRITE ${include} "if(EXISTS [=[${tests}]=])\n  include([=[${tests}]=])\nendif()\n")  # a preset may not build it
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()
