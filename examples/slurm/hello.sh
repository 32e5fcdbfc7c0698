#!/bin/bash
#SBATCH --job-name=hello
#SBATCH --time=5
#SBATCH --output=hello-%j.out

echo "Hello from $SLURM_JOB_NAME, job $SLURM_JOB_ID, on $SLURM_JOB_NODELIST"
