"""HIP for AMD's GPUs, screened on a machine without one."""
