// In place of torch's header of this name, which takes twice as long to compile: what extensions that bring kernels
// need of it. An image has the same precompiled (kernelwright/torch_for_kernels.h).
#pragma once
#include <torch/types.h>

#include <ATen/ATen.h>
