// What all operations share: a constraint in device memory, the launch of a kernel, and memory for a call, cut from one
// piece.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "inference/cuda/cluster.h"
#include "inference/cuda/layout/combine.h"
#include "inference/cuda/layout/step.h"
#include "regccrf/cuda.h"
#include "regccrf/error.h"

namespace regccrf::cuda {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // so that the caller's own checks do not find it
  throw Error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(error));
}

inline cudaLaunchAttribute in_clusters_of(unsigned blocks) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  return attribute;
}

struct LaunchShape {
  std::int64_t x, y = 1, z = 1;  // blocks of the grid
  std::int64_t threads;          // of a block
  std::int64_t bytes = 0;        // of its dynamic shared memory
  bool programmatic = false;     // it may begin while the kernel before it on the stream still runs, and has to call
                                 // wait_for_prior_kernel()
  std::int64_t cluster = 1;      // so many blocks along x run together
};

// Launches a kernel of one argument. Sources hold no launch syntax of their own, nor declare dynamic shared memory, so
// that they are plain C++ to the compiler of tests/emulated.
template <class Args>
void launch_kernel(void (*kernel)(Args), const LaunchShape& shape, cudaStream_t stream, std::type_identity_t<Args> args,
                   const char* what) {
  constexpr std::int64_t always_allowed = 24 << 10;  // every kernel may have 48 KB, with what it declares itself
  const auto bytes = static_cast<int>(shape.bytes);
  const auto number = [](std::int64_t x) { return static_cast<unsigned>(x); };
  if (bytes > always_allowed)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), what);
  if (shape.cluster > 8) check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), what);
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(number(shape.x), number(shape.y), number(shape.z));
  config.blockDim = dim3(number(shape.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(bytes);
  config.stream = stream;
  config.attrs = attributes;
  if (shape.programmatic) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) attributes[config.numAttrs++] = in_clusters_of(number(shape.cluster));
  check(cudaLaunchKernelEx(&config, kernel, args), what);
}

// Returns when the kernel before has ended and its writes are visible. Every block of a programmatic kernel calls it,
// also one with nothing to read: the kernel after this one waits for this one only, so order holds along the chain only
// if nobody leaves early. Before it a kernel reads the constraint, the caller's arrays, and what prepare has left.
// Combine, finish and map_states may do the last because forward_backward and product are not programmatic, so that
// prepare has ended before they start.
__device__ inline void wait_for_prior_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may start, if it is programmatic, once all blocks have come here or ended. Orders no memory. All
// blocks of this kernel are running then, so those of the next one cannot keep them from starting.
__device__ inline void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Whether this block is the last of `count` that come here; what the others have written is then there for all to read.
// `blocks_done`: 0 before, and again after. The whole block takes part. A barrier orders the block's writes before the
// fence of its first thread, which is cumulative, and another one its reads after that.
__device__ inline bool is_last_block(std::uint32_t* blocks_done, std::uint32_t count) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(blocks_done, count - 1) == count - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

void check_batch(const char* operation, const Batch& batch);  // Error where it is more than a launch takes

struct DeviceSchedule {
  std::int32_t warps, units;
  const Unit* unit;
  const std::int32_t* warp_begin;
};

// Partitions as kernels take them, with numbers of 16 bits. `cells` 0: there are none. Arrays of four are for clusters
// of 2, 4, 8, 16.
struct alignas(4) NarrowSource {
  std::uint16_t x, y;
};
struct DevicePartitions {
  std::int32_t cells, fan_ins;
  const std::int32_t* copies;
  const DenseGroup* group;
  const NarrowSource *source, *sparse_source;
  const PartitionedOut* outs;
  const std::uint32_t* rest;
  const std::int32_t* number;
  const std::int32_t *fan_in_first, *fan_in_begin;
  const std::uint16_t* fan_in_source;
  const std::uint32_t* fan_in_cell;
  DeviceSchedule schedule[4];
};

// A StepLayout as kernels take it.
struct DeviceStep : StepSizes {
  std::int32_t groups, gains, tensor_units;
  std::int32_t entries, first_sparse_entry;  // of `entry`, and where those of sparse outs begin
  DeviceSchedule general, in_registers;
  const DenseGroup* group;
  const TensorUnit* tensor;
  const std::int32_t *label, *stored;    // [outs]
  const CellSlots* slots_of;             // [cells]
  const Source *source, *sparse_source;  // of the groups' slots; [sparse_slots, sparse]
  const std::int32_t *fan_in_begin, *fan_in_source;
  const std::int32_t* entry;       // [entries] of the groups, some more that a tile may read, [sparse_slots, sparse]
  const std::int32_t* gain_entry;  // [gains] if in registers
  const std::uint8_t* begins;      // [outs]
  const RowOf* row_of;             // [cells] if in registers, and a multiple of 16 bytes
  std::int32_t idle;               // if in registers: cells where no out is stored, and the zero
  const std::uint16_t* idle_cell;  // [idle]
  DevicePartitions partitions;
};

struct DeviceRounds {
  std::int32_t rounds, height;
  const Source* pair;
  const std::int32_t *key, *begin;
};

// A CombineLayout as kernels take it.
struct DeviceCombine {
  std::int32_t K, outs, dense_outs, forward_cells, backward_cells;
  std::int32_t all_out, warp_tiles, places, copied, dense;
  const std::int32_t* place;
  const Source* out;
  const Source* quad;  // null: there are none
  const WarpTile* tile;
  const std::int32_t *pair_begin, *pair_entry, *end_begin, *end_cell;
  DeviceRounds nodes, arrivals, sparse;
};

// Where beta of a first position has what the start state leads to, and by which label.
struct Starts {
  std::int32_t count;
  const std::int32_t *place, *label;
};

// The plain topology, for what goes step by step along one path or in wide numbers.
struct DeviceTopology {
  std::int32_t K, Q, arcs, nodes, arrivals, start, empty;  // empty: the empty sequence is legal
  const std::int32_t *node_begin, *node_label, *node_state, *arrival_begin, *arrival_label, *arrival_state;
  const std::int32_t *into_begin, *into_node, *from_begin, *from_arrival;
  const std::uint8_t *accepting, *node_accepts;
  const std::int32_t *arc_begin, *arc_from, *arc_to;  // arcs by label: [K + 1], states
  const std::int32_t *node_cell, *arrival_cell;       // → forward cell, backward cell
  const std::int32_t *into_cell, *from_cell;          // the cells of into_node, of from_arrival
  const std::int32_t* node_out;                       // → forward out
  Starts starts[2];                                   // at backward cells, and at the combine's outs
  const std::int32_t *label_begin, *label_node;       // nodes by label: [K + 1], [nodes]
  DeviceRounds bigrams;                               // by bigram, x: arrival, y: node, of the same state
};

constexpr int kDeclared = 2048;  // bytes on chip, at most, that a kernel declares itself if it may have all the others

struct DeviceConstraint::Impl {
  explicit Impl(const Constraint& c) : constraint(c) {}
  ~Impl() { cudaFree(memory); }
  Impl(const Impl&) = delete;

  Constraint constraint;
  void* memory = nullptr;
  DeviceStep forward{}, backward{};
  DeviceCombine combine{};
  DeviceTopology topology{};
  int shared_bytes = 0;  // what a block may have, beside kDeclared
  int processors = 0;
  bool programmatic = false;  // the device lets kernels begin early
  int clusters[5] = {};       // how many of 1, 2, 4, 8, 16 blocks, each with a processor to itself, run at a time
};

// Cuts a call's memory into arrays. With no memory it only adds up sizes, so that *_bytes and the call agree.
class Arena {
 public:
  explicit Arena(Memory memory) : memory_(memory) {}
  template <class T>
  T* allocate(std::int64_t count) {
    const std::size_t at = used_;
    used_ += round_up(static_cast<std::size_t>(count) * sizeof(T), std::size_t{256});
    if (!memory_.bytes) return nullptr;
    if (used_ > memory_.size) {
      throw Error("[cuda] the workspace has " + std::to_string(memory_.size) + " bytes, and more than " +
                  std::to_string(used_) + " are needed");
    }
    return reinterpret_cast<T*>(static_cast<char*>(memory_.bytes) + at);
  }
  std::size_t used() const { return used_; }

 private:
  Memory memory_;
  std::size_t used_ = 0;
};

}  // namespace regccrf::cuda
