# SPDX-License-Identifier: BSD-2-Clause
#
# Writes which suite this is: the commit of its sources, and the hash of its clauses.
#
#   cmake -DSOURCE=... -DTABLE=clause_table.inc -DOUTPUT=revision.inc -P Revision.cmake
#
# The hash is that of the compiled table: a comment in a clauses file does not change it, a word of a promise does. The
# file is written only when it changes, so that a build without a change compiles and links nothing. Sources without a
# git repository have the commit "unknown"; those with changes that are not committed say so.
find_program(GIT git)
set(commit unknown)
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse HEAD
                  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status ERROR_QUIET)
  if(status EQUAL 0)
    set(commit ${head})
    execute_process(COMMAND ${GIT} -C ${SOURCE} --no-optional-locks diff-index --quiet HEAD -- conformance
                    RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(status EQUAL 1)
      string(APPEND commit " with changes")
    endif()
  endif()
endif()
file(SHA256 ${TABLE} hash)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#define CONFORMANCE_COMMIT "@commit@"
#define CONFORMANCE_CLAUSES_SHA256 "@hash@"
]] @ONLY)
