#!/bin/bash
# Saves its state before the limit, and continues from it when it is run again.
#SBATCH --job-name=checkpoint
#SBATCH --signal=B:USR1@30
#SBATCH --requeue
#SBATCH --time=00:30:31
#SBATCH --open-mode=append
#SBATCH --output=checkpoint.out

save() { echo "saved" > state; }
trap save USR1
if [ -e state ]; then echo "continues, restart ${SLURM_RESTART_COUNT:-0}"; else echo "begins"; fi
save
