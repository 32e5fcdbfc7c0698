#!/bin/bash
# Two ranks with two threads each.
#SBATCH --job-name=hybrid
#SBATCH --ntasks=2 --cpus-per-task=2
#SBATCH --time=30
#SBATCH --output=hybrid-%j.out

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
mpirun -np "$SLURM_NTASKS" ./solver
