#!/bin/bash
# Nothing of the submitter's environment.
#SBATCH --job-name=clean
#SBATCH --export=NONE
#SBATCH --time=5
#SBATCH --output=clean-%j.out

echo "project: ${PROJECT:-none}, submitted in $SLURM_SUBMIT_DIR"
