#!/bin/bash
# A GPU of one model; nodes have the label gpu=a100.
#SBATCH --job-name=model
#SBATCH --gpus=a100:2
#SBATCH --cpus-per-gpu=2
#SBATCH --mem-per-gpu=512M
#SBATCH --time=60
#SBATCH --output=model-%j.out

echo "gpus: $SLURM_GPUS_ON_NODE, cores: $SLURM_CPUS_ON_NODE, memory: $SLURM_MEM_PER_GPU MiB each"
