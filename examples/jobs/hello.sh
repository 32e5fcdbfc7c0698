#!/bin/sh
# A script is a job, too: hal submit -c 0.5 hello.sh
echo "hello from $HAL_NODE, job $HAL_JOB_ID"
