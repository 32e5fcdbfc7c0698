#!/bin/bash
# Runs on the first of two nodes; srun, or where there is none hal launch, starts four tasks on both.
#SBATCH --job-name=many
#SBATCH --nodes=2 --ntasks-per-node=2
#SBATCH --time=10
#SBATCH --output=many-%j.out

launch=$(command -v srun || echo hal launch)
echo "on $SLURM_JOB_NUM_NODES nodes, $SLURM_TASKS_PER_NODE tasks"
$launch bash -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS, $SLURM_LOCALID on node $SLURM_NODEID"' | sort
