// The part of CUDA's runtime library that programs call on the host. Memory of the device is memory of the host.
#pragma once
#include "device.h"
#include "launch.h"

namespace cuh {

// Memory that kernels may be given: a record holds what is in it.
void know_memory(const void* place, size_t bytes);
void forget_memory(const void* place);
// A variable of the device is set; a record holds that, too.
void set_variable(const char* name, void* symbol, const void* from, size_t bytes, size_t offset);

}  // namespace cuh

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2 };
using cudaError = cudaError_t;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxSharedMemoryPerBlock = 8, cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16, cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum { cudaEventDefault, cudaEventDisableTiming = 2, cudaStreamNonBlocking = 1 };

// The device that programs are told of is an A100: the emulation says nothing of any device.
struct cudaDeviceProp {
  char name[256] = "NVIDIA A100-SXM4-80GB";
  size_t totalGlobalMem = size_t(80) << 30, sharedMemPerBlock = 48 << 10, sharedMemPerBlockOptin = 163 << 10,
         sharedMemPerMultiprocessor = 164 << 10;
  int major = 8, minor = 0, warpSize = 32, multiProcessorCount = 108, maxThreadsPerBlock = 1024,
      maxThreadsPerMultiProcessor = 2048, regsPerBlock = 65536, regsPerMultiprocessor = 65536, l2CacheSize = 40 << 20;
  int maxGridSize[3] = {0x7fffffff, 65535, 65535}, maxThreadsDim[3] = {1024, 1024, 64};
};

inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t error) { return error ? "an error" : "no error"; }
inline const char* cudaGetErrorName(cudaError_t error) { return error ? "cudaErrorUnknown" : "cudaSuccess"; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamCreate(cudaStream_t* s) { *s = nullptr; return cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { *s = nullptr; return cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* e) { *e = nullptr; return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { *e = nullptr; return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* into, int) { *into = cudaDeviceProp(); return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const cudaDeviceProp known;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = known.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(known.sharedMemPerBlock); break;
    case cudaDevAttrWarpSize: *value = known.warpSize; break;
    case cudaDevAttrMultiProcessorCount: *value = known.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = known.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = known.minor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(known.sharedMemPerBlockOptin); break;
    default: return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}
template <class T>
cudaError_t cudaMalloc(T** place, size_t bytes) {
  *place = static_cast<T*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  if (!*place) return cudaErrorMemoryAllocation;
  std::memset(static_cast<void*>(*place), 0xff, bytes);
  cuh::know_memory(*place, bytes);
  return cudaSuccess;
}
template <class T>
cudaError_t cudaMallocAsync(T** place, size_t bytes, cudaStream_t) { return cudaMalloc(place, bytes); }
inline cudaError_t cudaFree(void* place) {
  cuh::forget_memory(place);
  std::free(place);
  return cudaSuccess;
}
inline cudaError_t cudaFreeAsync(void* place, cudaStream_t) { return cudaFree(place); }
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind = cudaMemcpyDefault) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind = cudaMemcpyDefault,
                                   cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, bytes);
}
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) { std::memset(to, value, bytes); return cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr) {
  return cudaMemset(to, value, bytes);
}
namespace cuh {
inline cudaError_t copy_symbol(const char* name, void* symbol, const void* from, size_t bytes, size_t offset = 0,
                               int = 0, cudaStream_t = nullptr) {
  set_variable(name, symbol, from, bytes, offset);
  return cudaSuccess;
}
}  // namespace cuh
#define cudaMemcpyToSymbol(symbol, ...) cuh::copy_symbol(#symbol, (void*)&(symbol), __VA_ARGS__)
#define cudaMemcpyToSymbolAsync(symbol, ...) cuh::copy_symbol(#symbol, (void*)&(symbol), __VA_ARGS__)

template <class F>
cudaError_t cudaFuncSetAttribute(F* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (size_t(value) > cuh::largest_shared_bytes) return cudaErrorInvalidValue;
    cuh::allow_shared(reinterpret_cast<const void*>(kernel), size_t(value));
  }
  return cudaSuccess;
}
template <class F>
cudaError_t cudaFuncSetCacheConfig(F*, cudaFuncCache) { return cudaSuccess; }
template <class F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F*, int threads, size_t) {
  *blocks = std::max(1, 2048 / std::max(1, threads));
  return cudaSuccess;
}
template <class F>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F*, size_t = 0, int = 0) {
  *grid = 216;
  *block = 256;
  return cudaSuccess;
}
