#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs fuzz targets side by side, with the processor time that other tests leave: a minute of each costs little more
# than the minute. Shows the output of those that failed; exit status 1: some have.
#
#   together.sh VERBENA FOLDER SECONDS TARGET...       TARGET: path of fuzz_NAME; artifacts and logs go to FOLDER/NAME.*
set -u
verbena=$1 folder=$2 seconds=$3
shift 3

names=""
for target in "$@"; do
  name=$(basename "$target")
  name=${name#fuzz_}
  rm -f "$folder/$name.status"
  names="$names $name"
  (
    timeout -k 5 "$((seconds * 2 + 60))" nice -n 10 "$verbena" run --node "fuzz-$name" -- "$target" \
      -max_total_time="$seconds" -artifact_prefix="$folder/$name." >"$folder/$name.log" 2>&1
    echo "$?" >"$folder/$name.status"
  ) &
done
wait

failed=0
for name in $names; do
  status=$(cat "$folder/$name.status")
  echo "$name: status $status; $(tail -n 1 "$folder/$name.log")"
  if [ "$status" != 0 ]; then
    cat "$folder/$name.log"
    failed=1
  fi
done
exit $failed
