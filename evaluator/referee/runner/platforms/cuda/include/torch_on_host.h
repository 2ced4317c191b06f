// What PyTorch offers to CUDA extensions, for tensors that lie in the host's memory.
#pragma once
#include <torch/extension.h>

#include "runtime.h"
#ifndef PYBIND11_MODULE
#include "bindings.h"
#endif

namespace cuh {

struct Stream {
  operator cudaStream_t() const { return nullptr; }
  cudaStream_t stream() const { return nullptr; }
  void synchronize() const {}
};
struct DeviceGuard {
  template <class... A>
  explicit DeviceGuard(A&&...) {}
  template <class... A>
  void set_device(A&&...) {}
};

}  // namespace cuh

namespace c10::cuda {
using CUDAStream = cuh::Stream;
inline CUDAStream getCurrentCUDAStream(int = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(int = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, int = -1) { return {}; }
using CUDAGuard = cuh::DeviceGuard;
using OptionalCUDAGuard = cuh::DeviceGuard;
inline int current_device() { return 0; }
inline int device_count() { return 1; }
}  // namespace c10::cuda
namespace at::cuda {
using c10::cuda::CUDAStream;
using c10::cuda::CUDAGuard;
using c10::cuda::OptionalCUDAGuard;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromPool;
inline cudaDeviceProp* getCurrentDeviceProperties() { static cudaDeviceProp known; return &known; }
inline cudaDeviceProp* getDeviceProperties(int) { return getCurrentDeviceProperties(); }
template <class A, class B> A ATenCeilDiv(A a, B b) { return (a + b - 1) / b; }
}  // namespace at::cuda

#define C10_CUDA_CHECK(call) TORCH_CHECK((call) == cudaSuccess, "a call of CUDA's runtime failed")
#define AT_CUDA_CHECK(call) C10_CUDA_CHECK(call)
#define CUDA_KERNEL_LOOP(i, n) for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < (n); i += int64_t(blockDim.x) * gridDim.x)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() ((void)0)
// To a candidate's checks its tensors lie on a GPU.
#define is_cuda() is_cpu()
#define kCUDA kCPU
#define CUDA CPU
#define RestrictPtrTraits DefaultPtrTraits
#define __CUDA_ARCH__ 800
#define __CUDACC__ 1
