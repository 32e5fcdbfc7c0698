#!/bin/bash
#PBS -N pbs
#PBS -l select=1:ncpus=2:mem=500mb
#PBS -l walltime=00:10:00
#PBS -J 1-2
#PBS -j oe -o /dev/null

cd "$PBS_O_WORKDIR"
echo "$PBS_JOBNAME $PBS_ARRAY_INDEX with $NCPUS cores" > "pbs-$PBS_ARRAY_INDEX.out"
