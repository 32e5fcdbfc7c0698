#!/bin/bash
# Modules of the site, and the submitter's environment.
#SBATCH --job-name=modules
#SBATCH --export=ALL,MODEL=large
#SBATCH --time=5
#SBATCH --output=modules-%j.out

module purge
module load gcc/12 openmpi
echo "model $MODEL of $PROJECT"
