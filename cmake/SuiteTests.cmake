# SPDX-License-Identifier: BSD-2-Clause
#
# verbena_discover_tests(TARGET PREFIX [SECONDS n] [LABEL label] [ENVIRONMENT variable=value]): ctest tests of a GoogleTest program,
# by default of 60 s at most. If the target has a CROSSCOMPILING_EMULATOR, they run under that.
#
# The start of a program takes longer than most tests, above all with the address sanitizer, and so does that of `verbena run`.
# In a build from nothing (VERBENA_PRECOMPILE) there is a ctest test "PREFIX<suite>.*" for each suite instead of one for each of
# its tests (gtest_discover_tests()); not with the thread sanitizer, which runs single tests. A suite fails if one of its tests
# fails. ctest does not tell a skipped one apart; test.sh lists these.
if(CMAKE_SCRIPT_MODE_FILE)  # after each build: PROGRAM EMULATOR PREFIX PROPERTIES OUT
  execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "(^|\n)[^ \n]+[.]" suites "${listed}")
  set(command)
  foreach(argument IN LISTS EMULATOR PROGRAM)
    string(APPEND command " [=[${argument}]=]")
  endforeach()
  set(tests)
  foreach(suite IN LISTS suites)
    string(STRIP "${suite}" suite)
    string(APPEND tests "add_test([=[${PREFIX}${suite}*]=]${command} [=[--gtest_filter=${suite}*]=])\n"
                        "set_tests_properties([=[${PREFIX}${suite}*]=] PROPERTIES ${PROPERTIES})\n")
  endforeach()
  if(NOT tests)
    message(FATAL_ERROR "${PROGRAM} lists no tests")
  endif()
  file(WRITE ${OUT} "${tests}")
  return()
endif()

set(verbena_suite_script ${CMAKE_CURRENT_LIST_FILE})
function(verbena_discover_tests target prefix)
  cmake_parse_arguments(arg "" "SECONDS;LABEL;ENVIRONMENT" "" ${ARGN})
  set(seconds 60)
  if(arg_SECONDS)
    set(seconds ${arg_SECONDS})
  endif()
  set(properties)
  if(arg_LABEL)
    list(APPEND properties LABELS ${arg_LABEL})
  endif()
  if(arg_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT ${arg_ENVIRONMENT})
  endif()
  if(NOT VERBENA_PRECOMPILE OR VERBENA_SANITIZE MATCHES "thread")
    # Of a program that needs the product the tests are listed when it is there. Others start after each build: sanitised ones on
    # a busy machine need more than the default 5 s.
    get_target_property(emulator ${target} CROSSCOMPILING_EMULATOR)
    set(mode POST_BUILD)
    if(emulator)
      set(mode PRE_TEST)
    endif()
    gtest_discover_tests(${target} TEST_PREFIX ${prefix} NO_PRETTY_VALUES DISCOVERY_MODE ${mode} DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT ${seconds} ${properties})
    return()
  endif()
  math(EXPR seconds "10 * ${seconds}")
  set(tests ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites_include.cmake)
  list(JOIN properties " " properties)
  add_custom_command(TARGET ${target} POST_BUILD BYPRODUCTS ${tests} VERBATIM
                     COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${target}> -D PREFIX=${prefix} -D OUT=${tests}
                             -D "EMULATOR=$<TARGET_GENEX_EVAL:${target},$<TARGET_PROPERTY:${target},CROSSCOMPILING_EMULATOR>>"
                             -D "PROPERTIES=TIMEOUT ${seconds} ${properties}" -P ${verbena_suite_script})
  file(WRITE ${include} "if(EXISTS [=[${tests}]=])\n  include([=[${tests}]=])\nendif()\n")  # a preset may not build it
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()
