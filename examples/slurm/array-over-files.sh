#!/bin/bash
# One task for each line of a list of files.
#SBATCH --job-name=files
#SBATCH --array=1-3
#SBATCH --mem-per-cpu=100
#SBATCH --time=10:00
#SBATCH --output=files-%A_%a.out

input=$(sed -n "${SLURM_ARRAY_TASK_ID}p" inputs.txt)
echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT: $input"
