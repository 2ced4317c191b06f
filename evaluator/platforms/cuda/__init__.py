"""Platform `cuda`: kernels for a GPU, screened on the host."""
