// In place of torch's header of this name: what extensions that bring kernels need of it. All of torch's is 2 s of templates
// in each build, precompiled or not, its operators as functions most of it. A source that needs more than tensors with
// their methods, and new tensors, is compiled with torch's own (`building.build_extension`).
#pragma once
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>

#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/full_like_ops.h>
#include <ATen/ops/full_ops.h>
#include <ATen/ops/ones_like_ops.h>
#include <ATen/ops/ones_ops.h>
#include <ATen/ops/zeros_like_ops.h>
#include <ATen/ops/zeros_ops.h>

namespace at {

// Options as operators take them.
#define CUH_OPTIONS(options)                                                                                       \
  c10::optTypeMetaToScalarType(options.dtype_opt()), options.layout_opt(), options.device_opt(), options.pinned_memory_opt()
#define CUH_FORMAT(options, format) c10::impl::check_tensor_options_and_extract_memory_format(options, format)
using CuhFormat = std::optional<MemoryFormat>;

inline Tensor empty(IntArrayRef size, TensorOptions options = {}, CuhFormat format = std::nullopt) {
  return _ops::empty_memory_format::call(
      c10::fromIntArrayRefSlow(size), CUH_OPTIONS(options), CUH_FORMAT(options, format));
}
inline Tensor zeros(IntArrayRef size, TensorOptions options = {}) {
  return _ops::zeros::call(c10::fromIntArrayRefSlow(size), CUH_OPTIONS(options));
}
inline Tensor ones(IntArrayRef size, TensorOptions options = {}) {
  return _ops::ones::call(c10::fromIntArrayRefSlow(size), CUH_OPTIONS(options));
}
inline Tensor full(IntArrayRef size, const Scalar& value, TensorOptions options = {}) {
  return _ops::full::call(c10::fromIntArrayRefSlow(size), value, CUH_OPTIONS(options));
}
inline Tensor empty_like(const Tensor& like, TensorOptions options = {}, CuhFormat format = std::nullopt) {
  return _ops::empty_like::call(like, CUH_OPTIONS(options), CUH_FORMAT(options, format));
}
inline Tensor zeros_like(const Tensor& like, TensorOptions options = {}, CuhFormat format = std::nullopt) {
  return _ops::zeros_like::call(like, CUH_OPTIONS(options), CUH_FORMAT(options, format));
}
inline Tensor ones_like(const Tensor& like, TensorOptions options = {}, CuhFormat format = std::nullopt) {
  return _ops::ones_like::call(like, CUH_OPTIONS(options), CUH_FORMAT(options, format));
}
inline Tensor full_like(const Tensor& like, const Scalar& value, TensorOptions options = {},
                        CuhFormat format = std::nullopt) {
  return _ops::full_like::call(like, value, CUH_OPTIONS(options), CUH_FORMAT(options, format));
}

}  // namespace at

namespace torch {

using namespace at;  // as torch/types.h has it
using std::nullopt;
using std::optional;
using Dtype = at::ScalarType;
constexpr auto kUInt8 = at::kByte, kU8 = at::kByte;
constexpr auto kInt8 = at::kChar, kI8 = at::kChar;
constexpr auto kInt16 = at::kShort, kI16 = at::kShort;
constexpr auto kInt32 = at::kInt, kI32 = at::kInt;
constexpr auto kInt64 = at::kLong, kI64 = at::kLong;
constexpr auto kFloat16 = at::kHalf, kF16 = at::kHalf;
constexpr auto kFloat32 = at::kFloat, kF32 = at::kFloat;
constexpr auto kFloat64 = at::kDouble, kF64 = at::kDouble;

}  // namespace torch
