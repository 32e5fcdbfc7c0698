#!/bin/bash
#SBATCH --job-name=output
#SBATCH --chdir=logs
#SBATCH --output=%x-%u-%4j.out
#SBATCH --error=%x.err
#SBATCH --time=5

echo "out"
echo "err" >&2
