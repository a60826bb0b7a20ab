// What the CUDA rooms share: a constraint in device memory, and memory for a call cut from one piece.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "inference/sweep.h"
#include "regccrf/cuda.h"
#include "regccrf/error.h"

namespace regccrf::cuda {

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw Error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(error));
}

void check_batch(const char* operation, const Batch& batch);  // Error where it is more than a launch takes

// A Sweep as kernels take it. What a step reads lies in one piece (`hot`), so that a block can copy it on chip; offsets
// are bytes into it. Sources and labels are 16-bit numbers there if `narrow`, else 32-bit.
struct DeviceSweep {
  std::int32_t K, cells, all_cells, extras, thin, first_thin, thin_slots, groups, entries;
  std::int32_t warps[2];  // of the general schedule and the resident one, 0: there is none
  std::int32_t two, narrow;
  const char* hot;
  std::int32_t hot_bytes, group_at, unit_at[2], warp_at[2], label_at, source_at, thin_source_at, extra_begin_at,
      extra_source_at;
  const std::int32_t* entry;       // [entries]
  const std::int32_t* thin_entry;  // [thin_slots, thin]
  const std::uint8_t* begins;      // [cells]
  const std::int32_t* label;       // [cells]
};

struct DeviceJoin {
  std::int32_t dense, sparse, groups, places, slots;  // slots: the groups' places, which come first
  const std::int32_t *label_begin, *cell, *place;
  const Source* first;
  const std::int32_t *begin, *source;
  const Source* node_first;
  const std::int32_t *node_begin, *node_target;
  const SweepGroup* group;
  const std::int32_t* sparse_begin;
  const Source* sparse_pair;
  const std::int32_t *pair_begin, *pair_entry;
};

// The plain topology, for what goes step by step along one path or in wide numbers.
struct DeviceTopology {
  std::int32_t K, Q, arcs, nodes, arrivals, start, empty;  // empty: the empty sequence is legal
  const std::int32_t *node_begin, *node_label, *node_state, *arrival_begin, *arrival_label, *arrival_state;
  const std::int32_t *into_begin, *into_node, *from_begin, *from_arrival;
  const std::uint8_t *accepting, *node_accepts;
  const std::int32_t *arc_begin, *arc_from, *arc_to;  // arcs by label: [K + 1], states
  const std::int32_t *label_begin, *label_node;       // nodes by label: [K + 1], [nodes]
  const std::int32_t* node_cell;                      // → forward cell
};

struct DeviceConstraint::Impl {
  explicit Impl(const Constraint& c) : constraint(c) {}
  ~Impl() { cudaFree(memory); }
  Impl(const Impl&) = delete;

  Constraint constraint;
  void* memory = nullptr;
  DeviceSweep forward{}, backward{};
  DeviceJoin join{};
  DeviceTopology topology{};
  std::int64_t products = 0;
  std::int32_t pairs = 0;  // of the join's sparse bigrams
  int shared_bytes = 0;    // what a block may have
  int processors = 0;
};

// Cuts a call's memory into arrays. With no memory it only adds up sizes, so that *_bytes and the call agree.
class Cutter {
 public:
  explicit Cutter(Memory memory) : memory_(memory) {}
  template <class T>
  T* take(std::size_t count) {
    const std::size_t at = used_;
    used_ += (count * sizeof(T) + 255) / 256 * 256;
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
