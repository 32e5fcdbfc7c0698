#!/bin/bash
# Refused where there is no srun: write hal launch instead.
#SBATCH --job-name=mpi
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=01:00:00

srun ./solver
