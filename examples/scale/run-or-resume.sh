#!/bin/sh
# Runs a suite; where a run was begun in FOLDER, what is missing of it. For jobs that a system starts again.
#
#   run-or-resume.sh FOLDER SOURCE [OPTION ...]
set -eu
folder=${1:?name a folder for the run}
shift
for manifest in "$folder"/*/manifest.json; do
    [ ! -e "$manifest" ] || exec bakeoff run "$@" --resume latest --output "$folder"
done
exec bakeoff run "$@" --output "$folder"
