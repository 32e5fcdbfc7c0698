#!/bin/bash
#SBATCH --job-name=constraints
#SBATCH --constraint=ssd&avx512
#SBATCH --exclude=old[01-03]
#SBATCH --nice=10
#SBATCH --begin=now+0hour
#SBATCH --comment="needs the fast disks"
#SBATCH --time=5
#SBATCH --output=constraints-%j.out

echo "on $SLURMD_NODENAME"
