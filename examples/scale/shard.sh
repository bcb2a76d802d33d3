#!/bin/sh
# Runs one shard of a run: that of the job it is started in. A job that is started again resumes its shard.
#
#   shard.sh FOLDER SOURCE [OPTION ...]      into FOLDER/shard-I, which all jobs may share
#
# AWS Batch and Slurm say how many there are; elsewhere set SHARDS. By hand: SHARD=0 SHARDS=3 sh shard.sh ...
set -eu
index=${AWS_BATCH_JOB_ARRAY_INDEX:-${SLURM_ARRAY_TASK_ID:-${JOB_COMPLETION_INDEX:-${SHARD:?set SHARD, from 0}}}}
count=${AWS_BATCH_JOB_ARRAY_SIZE:-${SLURM_ARRAY_TASK_COUNT:-${SHARDS:?set SHARDS, how many there are}}}
folder=$1/shard-$index
shift
exec sh "$(dirname "$0")/run-or-resume.sh" "$folder" "$@" --shard "$index/$count"
