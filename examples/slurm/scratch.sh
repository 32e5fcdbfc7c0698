#!/bin/bash
# Works in a directory of its own, and brings the result home.
#SBATCH --job-name=scratch
#SBATCH --array=0-1
#SBATCH --time=00:05:00
#SBATCH --output=/dev/null

scratch=${TMPDIR:-/tmp}/scratch-$USER-$SLURM_JOB_ID
mkdir "$scratch" && trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
echo "from ${scratch##*-}" > result
cp result "$SLURM_SUBMIT_DIR/scratch-$SLURM_ARRAY_TASK_ID.result"
