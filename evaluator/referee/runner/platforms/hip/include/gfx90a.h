// What clang defines where it compiles HIP for gfx90a, and torch for extensions of ROCm.
#pragma once
#define __HIP__ 1
#define __HIPCC__ 1
#define __HIP_DEVICE_COMPILE__ 1
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_PLATFORM_HCC__ 1
#define __AMDGCN__ 1
#define __AMDGPU__ 1
#define __AMD__ 1
#define __gfx90a__ 1
#define __GFX9__ 1
#define __AMDGCN_WAVEFRONT_SIZE 64
#define __AMDGCN_WAVEFRONT_SIZE__ 64
#define USE_ROCM 1
