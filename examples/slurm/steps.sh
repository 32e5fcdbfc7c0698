#!/bin/bash
# Steps by srun: HAL says that the script calls it, and where there is no srun, the job fails.
#SBATCH --job-name=steps
#SBATCH --ntasks=2
#SBATCH --time=5
#SBATCH --output=steps-%j.out

srun --ntasks=1 hostname
