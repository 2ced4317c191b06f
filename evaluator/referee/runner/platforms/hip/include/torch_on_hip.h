// What PyTorch offers to HIP extensions, for tensors that lie in the host's memory. It is read behind torch_on_host.h.
#pragma once
#include <hip/hip_runtime.h>

namespace c10::hip {
using HIPStream = cuh::Stream;
inline HIPStream getCurrentHIPStream(int = -1) { return {}; }
inline HIPStream getDefaultHIPStream(int = -1) { return {}; }
inline HIPStream getCurrentHIPStreamMasqueradingAsCUDA(int = -1) { return {}; }
using HIPGuard = cuh::DeviceGuard;
using OptionalHIPGuard = cuh::DeviceGuard;
using HIPGuardMasqueradingAsCUDA = cuh::DeviceGuard;
using OptionalHIPGuardMasqueradingAsCUDA = cuh::DeviceGuard;
inline int current_device() { return 0; }
inline int device_count() { return 1; }
}  // namespace c10::hip
namespace at::hip {
using namespace c10::hip;
}  // namespace at::hip
namespace at::cuda {
inline hipDeviceProp_t* cuh_properties() { static hipDeviceProp_t known; return &known; }
inline int warp_size() { return cuh::wavefront_size; }
}  // namespace at::cuda
namespace at::hip {
using at::cuda::cuh_properties;
using at::cuda::warp_size;
}  // namespace at::hip

#define getCurrentDeviceProperties cuh_properties
#define C10_HIP_CHECK(call) TORCH_CHECK((call) == hipSuccess, "a call of HIP's runtime failed")
#define AT_HIP_CHECK(call) C10_HIP_CHECK(call)
#define C10_HIP_KERNEL_LAUNCH_CHECK() ((void)0)
#define HIP_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP(i, n)
#define kHIP kCPU
#define HIP CPU
#include "gfx90a.h"
