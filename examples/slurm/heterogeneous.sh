#!/bin/bash
# Refused: a job of two different parts.
#SBATCH --cpus-per-task=4 --mem=4G --time=10
#SBATCH hetjob
#SBATCH --gres=gpu:1 --mem=1G

srun ./driver : ./worker
