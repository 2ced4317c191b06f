"""Platform `opencl`: OpenCL C on this host's processor, by PoCL."""
