#!/bin/bash
# Training on one GPU.
#SBATCH --job-name=train
#SBATCH --partition=gpu
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=2
#SBATCH --mem=1G
#SBATCH --time=1-00:00:00
#SBATCH --output=train-%j.log
#SBATCH --error=train-%j.err

echo "gpus: $SLURM_GPUS_ON_NODE in $SLURM_JOB_PARTITION"
echo "epoch 1" >&2
