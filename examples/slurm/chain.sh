#!/bin/bash
# One after the other: jobs of this name never run at the same time. Its predecessor is named when it is submitted:
# hal submit -d afterok:ID chain.sh 2
#SBATCH --job-name=chain
#SBATCH --dependency=singleton
#SBATCH --time=10
#SBATCH --output=chain.out --open-mode=append

echo "part $1"
