# SPDX-License-Identifier: BSD-2-Clause
#
# Most of a build from nothing goes into reading the same headers again: GoogleTest's for each test, the standard
# library's for each file. With VERBENA_PRECOMPILE they are read once; test.sh asks for it. It is off by default:
# repeated builds are faster with ccache, which precompiled headers get in the way of. Every file still includes what it
# uses, as a build without the option proves.
option(VERBENA_PRECOMPILE "Read common headers once: faster from nothing" OFF)

set(VERBENA_STANDARD_HEADERS <algorithm> <array> <atomic> <cstdint> <cstring> <memory> <mutex> <string> <vector>
                             <infiniband/verbs.h>)
set(VERBENA_TEST_HEADERS <gtest/gtest.h> <chrono> <fstream> <functional> <set> <thread> ${VERBENA_STANDARD_HEADERS})

if(VERBENA_PRECOMPILE)
  add_compile_options(-g1)  # a fifth less than -g
endif()

# Compiles files together that consist mostly of the templates of GoogleTest, CLI11 or the JSON library: eight files
# with command line options take 11 s in one piece instead of 52 s, 40 tests 16 s instead of 90. `BATCH n` files of the
# target at a time; or the files named `TOGETHER` in one piece, or in pieces of `EACH n`, and the others each by itself: a call
# for each piece.
function(verbena_unite target)
  cmake_parse_arguments(arg "" "BATCH;EACH" "TOGETHER" ${ARGN})
  if(NOT VERBENA_PRECOMPILE)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
  target_compile_options(${target} PRIVATE -Wno-shadow)  # of other files of the piece; a build by files checks for it
  if(arg_BATCH)
    set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE ${arg_BATCH})
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(folder ${target} SOURCE_DIR)
  while(arg_TOGETHER)
    set(files ${arg_TOGETHER})
    if(arg_EACH)
      list(SUBLIST arg_TOGETHER 0 ${arg_EACH} files)
    endif()
    list(REMOVE_ITEM arg_TOGETHER ${files})
    list(GET files 0 first)
    cmake_path(ABSOLUTE_PATH first BASE_DIRECTORY ${folder})
    file(RELATIVE_PATH first ${PROJECT_SOURCE_DIR} ${first})
    string(MAKE_C_IDENTIFIER "${first}" piece)
    set_source_files_properties(${files} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${piece})
  endwhile()
endfunction()

# The headers for one target of several files, or `REUSE_FROM` another target with the same compile options.
function(verbena_precompile target)
  if(VERBENA_PRECOMPILE)
    if("${ARGV1}" STREQUAL "REUSE_FROM")
      target_precompile_headers(${target} ${ARGN})
    else()
      target_precompile_headers(${target} PRIVATE ${ARGN})
    endif()
    # gcc 12 does not know that a precompiled <string> is a system header, and warns of its code.
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
endfunction()

# The headers for all programs of a folder with the same compile options, precompiled once for all of them. Programs
# with options of their own precompile for themselves.
function(verbena_precompile_programs folder shared)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(sources ${target} SOURCES)
    get_target_property(options ${target} COMPILE_OPTIONS)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    get_target_property(own ${target} PRECOMPILE_HEADERS)
    if(type STREQUAL "EXECUTABLE" AND sources MATCHES "\\.cc" AND libraries MATCHES "GTest::" AND NOT own
       AND NOT target STREQUAL shared)
      get_directory_property(usual DIRECTORY ${folder} COMPILE_OPTIONS)
      list(REMOVE_ITEM options -Wno-shadow)  # of pieces: warnings need not be those of the precompiled headers
      if(options STREQUAL usual)
        target_precompile_headers(${target} REUSE_FROM ${shared})
      else()
        target_precompile_headers(${target} PRIVATE ${VERBENA_TEST_HEADERS})
      endif()
    endif()
  endforeach()
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder IN LISTS subfolders)
    verbena_precompile_programs(${subfolder} ${shared})
  endforeach()
endfunction()
