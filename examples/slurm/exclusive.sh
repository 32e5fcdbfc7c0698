#!/bin/bash
# Whole nodes: all cores and memory of each, shared with nobody.
#SBATCH --job-name=benchmark
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=30
#SBATCH --output=exclusive-%j.out

echo "all $SLURM_CPUS_ON_NODE cores of $SLURMD_NODENAME"
