#!/bin/bash
# The same script for both: where there are lines of HAL, those of Slurm are not read.
#SBATCH --nodes=2 --exclusive
#HAL --cpus 2 --walltime 5m --name both
#HAL --stdout both-%j.out

echo "cores: ${HAL_CPUS:-$SLURM_CPUS_ON_NODE}"
