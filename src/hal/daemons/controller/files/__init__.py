"""Files of jobs at the controller: bundles that clients ship, and what nodes have collected.

Neither is in the store of rows: both are in HAL_HOME/files of the controller that was given them. All that touches the
disk runs on the lane for files, so that neither the loop nor commits wait for it.
"""
