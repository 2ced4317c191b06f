// HIP on the emulation of CUDA threads: the same functions by HIP's names, wavefronts of 64, and the words by which a
// source sees that it is compiled for gfx90a.
#pragma once
#include "wavefront.h"

#include "vector_operators.h"

using hipError_t = cudaError_t;
using hipStream_t = cudaStream_t;
using hipEvent_t = cudaEvent_t;
using hipMemcpyKind = cudaMemcpyKind;
inline constexpr auto hipSuccess = cudaSuccess;
inline constexpr auto hipErrorInvalidValue = cudaErrorInvalidValue;
inline constexpr auto hipErrorOutOfMemory = cudaErrorMemoryAllocation;
inline constexpr auto hipErrorMemoryAllocation = cudaErrorMemoryAllocation;
inline constexpr auto hipMemcpyHostToHost = cudaMemcpyHostToHost;
inline constexpr auto hipMemcpyHostToDevice = cudaMemcpyHostToDevice;
inline constexpr auto hipMemcpyDeviceToHost = cudaMemcpyDeviceToHost;
inline constexpr auto hipMemcpyDeviceToDevice = cudaMemcpyDeviceToDevice;
inline constexpr auto hipMemcpyDefault = cudaMemcpyDefault;
inline constexpr auto hipFuncAttributeMaxDynamicSharedMemorySize = cudaFuncAttributeMaxDynamicSharedMemorySize;
inline constexpr auto hipFuncAttributePreferredSharedMemoryCarveout = cudaFuncAttributePreferredSharedMemoryCarveout;
inline constexpr auto hipFuncCachePreferNone = cudaFuncCachePreferNone;
inline constexpr auto hipFuncCachePreferShared = cudaFuncCachePreferShared;
inline constexpr auto hipFuncCachePreferL1 = cudaFuncCachePreferL1;
inline constexpr unsigned hipEventDefault = 0, hipEventDisableTiming = 2, hipStreamDefault = 0, hipStreamNonBlocking = 1;

#define hipGetLastError cudaGetLastError
#define hipPeekAtLastError cudaPeekAtLastError
#define hipGetErrorString cudaGetErrorString
#define hipGetErrorName cudaGetErrorName
#define hipDeviceSynchronize cudaDeviceSynchronize
#define hipStreamSynchronize cudaStreamSynchronize
#define hipStreamCreate cudaStreamCreate
#define hipStreamCreateWithFlags cudaStreamCreateWithFlags
#define hipStreamDestroy cudaStreamDestroy
#define hipStreamWaitEvent cudaStreamWaitEvent
#define hipEventCreate cudaEventCreate
#define hipEventCreateWithFlags cudaEventCreateWithFlags
#define hipEventRecord cudaEventRecord
#define hipEventSynchronize cudaEventSynchronize
#define hipEventDestroy cudaEventDestroy
#define hipSetDevice cudaSetDevice
#define hipGetDevice cudaGetDevice
#define hipGetDeviceCount cudaGetDeviceCount
#define hipMalloc cudaMalloc
#define hipMallocAsync cudaMallocAsync
#define hipFree cudaFree
#define hipFreeAsync cudaFreeAsync
#define hipMemcpy cudaMemcpy
#define hipMemcpyAsync cudaMemcpyAsync
#define hipMemset cudaMemset
#define hipMemsetAsync cudaMemsetAsync
#define hipFuncSetCacheConfig cudaFuncSetCacheConfig
#define hipOccupancyMaxActiveBlocksPerMultiprocessor cudaOccupancyMaxActiveBlocksPerMultiprocessor
#define hipOccupancyMaxPotentialBlockSize cudaOccupancyMaxPotentialBlockSize
#define HIP_SYMBOL(name) name
#define hipMemcpyToSymbol(symbol, ...) cudaMemcpyToSymbol(symbol, __VA_ARGS__)
#define hipMemcpyToSymbolAsync(symbol, ...) cudaMemcpyToSymbolAsync(symbol, __VA_ARGS__)

// The device that programs are told of is one die of an MI250X: the emulation says nothing of any device.
struct hipDeviceProp_t {
  char name[256] = "AMD Instinct MI250X";
  char gcnArchName[256] = "gfx90a:sramecc+:xnack-";
  size_t totalGlobalMem = size_t(64) << 30, sharedMemPerBlock = 64 << 10, maxSharedMemoryPerMultiProcessor = 64 << 10;
  int major = 9, minor = 0, cuh_warpSize = cuh::wavefront_size, multiProcessorCount = 110, maxThreadsPerBlock = 1024,
      maxThreadsPerMultiProcessor = 2048, regsPerBlock = 65536, l2CacheSize = 8 << 20;
  int maxGridSize[3] = {0x7fffffff, 65535, 65535}, maxThreadsDim[3] = {1024, 1024, 1024};
};
inline hipError_t hipGetDeviceProperties(hipDeviceProp_t* into, int) { *into = hipDeviceProp_t(); return hipSuccess; }
enum hipDeviceAttribute_t {
  hipDeviceAttributeMaxThreadsPerBlock, hipDeviceAttributeMaxSharedMemoryPerBlock, hipDeviceAttributeWarpSize,
  hipDeviceAttributeMultiprocessorCount, hipDeviceAttributeComputeCapabilityMajor,
  hipDeviceAttributeComputeCapabilityMinor
};
inline hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int) {
  const hipDeviceProp_t known;
  const int values[] = {known.maxThreadsPerBlock, int(known.sharedMemPerBlock), known.cuh_warpSize,
                        known.multiProcessorCount, known.major, known.minor};
  *value = values[attribute];
  return hipSuccess;
}
template <class F>
hipError_t hipFuncSetAttribute(F kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != hipFuncAttributeMaxDynamicSharedMemorySize) return hipSuccess;
  if (value < 0 || size_t(value) > (64u << 10)) return hipErrorInvalidValue;
  cuh::allow_shared(reinterpret_cast<const void*>(kernel), size_t(value));
  return hipSuccess;
}

#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define hipLaunchKernelGGL(kernel, grid, block, bytes, stream, ...) \
  cuh::launch<(kernel)>(cuh::Config(dim3(grid), dim3(block), bytes, stream))(__VA_ARGS__)
#define HIP_DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(cuh::dynamic_shared());

// bfloat16 by HIP's names.
using __hip_bfloat16 = __nv_bfloat16;
using __hip_bfloat162 = __nv_bfloat162;
using hip_bfloat16 = __nv_bfloat16;

#undef __CUDA_ARCH__
#undef __CUDACC__
#undef __CUDACC_RTC__
