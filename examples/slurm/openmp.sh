#!/bin/bash
# One program with threads.
#SBATCH --job-name=openmp
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --hint=nomultithread
#SBATCH --mem=500M
#SBATCH --time=00:10:00
#SBATCH -o openmp-%j.out

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export OMP_PLACES=cores
echo "threads: $OMP_NUM_THREADS"
