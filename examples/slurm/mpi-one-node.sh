#!/bin/bash
# Ranks of MPI on one node.
#SBATCH --job-name=mpi
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --time=0-01:00
#SBATCH --output=mpi-%j.out

module load openmpi
mpirun -np "$SLURM_NTASKS" ./solver
