// What extensions that bring kernels need of torch: tensors and operators. torch/extension.h brings pybind11 besides, of
// which each build compiles some hundred functions again, precompiled or not.
#include <torch/types.h>

#include <ATen/ATen.h>
