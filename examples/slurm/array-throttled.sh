#!/bin/bash
# At most two tasks at once, and only some indices.
#SBATCH -J throttled
#SBATCH -a 1,3,5-9:2%2
#SBATCH -t 5:00
#SBATCH -o throttled-%a.out

echo "seed $((SLURM_ARRAY_TASK_ID * 100)), from $SLURM_ARRAY_TASK_MIN to $SLURM_ARRAY_TASK_MAX"
