// Stands in for CUDA's header of that name: as much of it as this project's kernels and their tests use.
#pragma once

#include <math.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "emulator.h"

#define __global__
#define __device__
#define __host__
#define __shared__ thread_local  // static in a function, and a declaration where `extern` stands before it
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__

using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;

struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};

template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  if constexpr (std::is_floating_point_v<std::common_type_t<A, B>>) return fmax(a, b);
  return std::max<std::common_type_t<A, B>>(a, b);
}
template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  if constexpr (std::is_floating_point_v<std::common_type_t<A, B>>) return fmin(a, b);
  return std::min<std::common_type_t<A, B>>(a, b);
}
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T x) {
  *to = x;
}

// --- bits

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __double2hiint(double x) { return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(std::bit_cast<std::uint64_t>(x)); }
inline float __fdividef(float x, float y) { return x / y; }
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(std::uint64_t{static_cast<unsigned>(high)} << 32 | static_cast<unsigned>(low));
}

// --- threads of a block, and lanes of a warp

inline void __syncthreads(emulated::Place place = emulated::Place::current()) { emulated::meet(false, place); }
inline int __syncthreads_count(int x, emulated::Place place = emulated::Place::current()) {
  return emulated::meet(x != 0, place);
}
inline int __syncthreads_or(int x, emulated::Place place = emulated::Place::current()) {
  return emulated::meet(x != 0, place) > 0;
}
inline void __syncwarp(unsigned lanes = 0xffffffffu, emulated::Place place = emulated::Place::current()) {
  emulated::exchange(lanes, {}, 0, place);
}

namespace emulated {

template <class T>
struct Lanes {
  static_assert(sizeof(T) <= sizeof(Brought));
  const Brought* brought;
  Lanes(unsigned lanes, const T& mine, int kind, const Place& place) {
    Brought bytes{};
    std::memcpy(&bytes, &mine, sizeof(T));
    brought = exchange(lanes, bytes, kind, place);
  }
  T operator[](unsigned lane) const {
    T value;
    std::memcpy(&value, &brought[lane % 32], sizeof(T));
    return value;
  }
  template <class Step>
  T fold(Step step) const {
    T result = (*this)[0];
    for (unsigned lane = 1; lane < 32; ++lane) result = step(result, (*this)[lane]);
    return result;
  }
};

}  // namespace emulated

template <class T>
T __shfl_xor_sync(unsigned lanes, T x, int bits, emulated::Place place = emulated::Place::current()) {
  return emulated::Lanes<T>(lanes, x, 100 + bits, place)[threadIdx.x ^ static_cast<unsigned>(bits)];
}
template <class T>
T __shfl_up_sync(unsigned lanes, T x, unsigned by, emulated::Place place = emulated::Place::current()) {
  const unsigned lane = threadIdx.x % 32;
  return emulated::Lanes<T>(lanes, x, 200 + static_cast<int>(by), place)[lane < by ? lane : lane - by];
}
template <class T>
T __shfl_sync(unsigned lanes, T x, int from, emulated::Place place = emulated::Place::current()) {
  return emulated::Lanes<T>(lanes, x, 1, place)[static_cast<unsigned>(from)];
}
template <class T>
T __reduce_max_sync(unsigned lanes, T x, emulated::Place place = emulated::Place::current()) {
  static_assert(std::is_integral_v<T> && sizeof(T) == 4);
  return emulated::Lanes<T>(lanes, x, 2, place).fold([](T a, T b) { return std::max(a, b); });
}
template <class T>
T __reduce_min_sync(unsigned lanes, T x, emulated::Place place = emulated::Place::current()) {
  static_assert(std::is_integral_v<T> && sizeof(T) == 4);
  return emulated::Lanes<T>(lanes, x, 3, place).fold([](T a, T b) { return std::min(a, b); });
}
template <class T>
T __reduce_add_sync(unsigned lanes, T x, emulated::Place place = emulated::Place::current()) {
  static_assert(std::is_integral_v<T> && sizeof(T) == 4);
  return emulated::Lanes<T>(lanes, x, 4, place).fold([](T a, T b) { return static_cast<T>(a + b); });
}
inline int __any_sync(unsigned lanes, int x, emulated::Place place = emulated::Place::current()) {
  return emulated::Lanes<int>(lanes, x != 0, 5, place).fold([](int a, int b) { return a | b; });
}
inline unsigned __ballot_sync(unsigned lanes, int x, emulated::Place place = emulated::Place::current()) {
  const unsigned mine = x ? 1u << threadIdx.x % 32 : 0;
  return emulated::Lanes<unsigned>(lanes, mine, 6, place).fold([](unsigned a, unsigned b) { return a | b; });
}

inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(nearbyintf(x)); }

// Blocks run one after another, so that what one has written is there for the next.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline unsigned atomicInc(unsigned* at, unsigned most) {
  const unsigned before = *at;
  *at = before >= most ? 0 : before + 1;
  return before;
}
inline int atomicAdd(int* at, int x) {
  const int before = *at;
  *at += x;
  return before;
}
inline int atomicMax(int* at, int x) {
  const int before = *at;
  *at = before < x ? x : before;
  return before;
}
inline int atomicCAS(int* at, int expected, int value) {
  const int before = *at;
  if (before == expected) *at = value;
  return before;
}

// --- the runtime

// Work happens when it is asked for, or is kept for later on a stream that captures.
using cudaGraph_t = std::vector<std::function<void()>>*;
using cudaGraphExec_t = cudaGraph_t;
struct EmulatedStream {
  cudaGraph_t captures = nullptr;
};
using cudaStream_t = EmulatedStream*;

namespace emulated {

inline void do_on(cudaStream_t stream, const std::function<void()>& work) {
  if (stream && stream->captures) {
    stream->captures->push_back(work);
  } else {
    work();
  }
}

}  // namespace emulated

enum cudaError_t { cudaSuccess, cudaErrorInvalidValue };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum cudaDeviceAttr {
  cudaDevAttrMaxSharedMemoryPerBlockOptin,
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrComputeCapabilityMajor
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize, cudaFuncAttributeNonPortableClusterSizeAllowed };
enum cudaLaunchAttributeID { cudaLaunchAttributeClusterDimension, cudaLaunchAttributeProgrammaticStreamSerialization };
union cudaLaunchAttributeValue {
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

inline const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "invalid value"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* number) {
  emulated::take_next_device();
  *number = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  const emulated::Device device = emulated::device();
  *value = which == cudaDevAttrMultiProcessorCount      ? device.processors
           : which == cudaDevAttrComputeCapabilityMajor ? (device.most_together > 1 ? 9 : 8)
                                                        : device.shared_bytes;
  return cudaSuccess;
}

template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  *memory = static_cast<T*>(emulated::allocate(bytes));
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
  emulated::release(memory);
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* to, int byte, std::size_t bytes) {
  std::memset(to, byte, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream) {
  emulated::do_on(stream, [=] { std::memset(to, byte, bytes); });
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (bytes) std::memcpy(to, from, bytes);
  return cudaSuccess;
}

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute which, int value) {
  if (which == cudaFuncAttributeNonPortableClusterSizeAllowed) return cudaSuccess;
  return value <= emulated::device().shared_bytes ? cudaSuccess : cudaErrorInvalidValue;
}
template <class Args>
cudaError_t cudaOccupancyMaxActiveClusters(int* count, void (*)(Args), const cudaLaunchConfig_t* how) {
  const auto together = static_cast<int>(how->attrs->val.clusterDim.x);
  *count = together <= emulated::device().most_together ? emulated::device().processors / together : 0;
  return cudaSuccess;
}
template <class Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* how, void (*kernel)(Args), const Args& given) {
  const emulated::Device device = emulated::device();
  unsigned together = 1;
  for (unsigned i = 0; i < how->numAttrs; ++i) {
    if (how->attrs[i].id == cudaLaunchAttributeClusterDimension) together = how->attrs[i].val.clusterDim.x;
  }
  if (how->dynamicSmemBytes > static_cast<std::size_t>(device.shared_bytes) || how->gridDim.x % together != 0 ||
      together > static_cast<unsigned>(device.most_together))
    return cudaErrorInvalidValue;
  const dim3 grid = how->gridDim, block = how->blockDim;
  const std::size_t bytes = how->dynamicSmemBytes;
  emulated::do_on(how->stream, [=] { emulated::run(grid, block.x, bytes, together, [&] { kernel(given); }); });
  return cudaSuccess;
}

enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal };
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->captures = new std::vector<std::function<void()>>;
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->captures;
  stream->captures = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* replay, cudaGraph_t graph, unsigned) {
  *replay = new std::vector<std::function<void()>>(*graph);
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t replay, cudaStream_t) {
  for (const auto& work : *replay) work();
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t replay) {
  delete replay;
  return cudaSuccess;
}
