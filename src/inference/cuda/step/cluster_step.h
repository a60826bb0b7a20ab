// The blocks that do the steps of a walk: one alone, or those of a cluster.
//
// A large automaton's step is bound by the bandwidth of one multiprocessor, so a cluster divides it (Partitions in
// step.h): a block has the cells that its partitions read in its shared memory, and sends an out to the blocks that
// read it.
#pragma once

#include "inference/cuda/cluster.h"
#include "inference/cuda/step/step.h"

namespace regccrf::cuda {

// The largest of a block's numbers in the step before: every warp stores its own, and reads all of them after the
// barrier. Two buffers, by the parity of n: buffer n is written again in step n + 2, after the barrier of n + 1, and by
// that all have read it. Bits: unsigned, or signed numbers.
template <class Bits>
class Peak {
 public:
  static constexpr int kBytes = 2 * 32 * sizeof(Bits);
  // Before the first barrier. `least`: for warps that are not there.
  __device__ Peak(Bits* room, Bits least, std::uint32_t thread)
      : mine_(room + thread / 32), all_(room + thread % 32), is_first_(thread % 32 == 0) {
    for (std::uint32_t i = thread; i < 64; i += blockDim.x) room[i] = least;
  }
  __device__ void publish(std::int32_t n, Bits mine) {
    const Bits most = reduce_max(mine);
    if (is_first_) mine_[(n & 1) * 32] = most;
  }
  __device__ Bits of_warp(std::int32_t n) const { return all_[(n & 1) * 32]; }
  static __device__ Bits of_all(Bits of_warp) { return reduce_max(of_warp); }

 private:
  Bits *mine_, *all_;
  bool is_first_;
};

// A block that does every step alone: which sequence it has, which outs a thread begins with, where an out is stored,
// and how a step ends.
template <class P>
class SingleBlock {
 public:
  static constexpr bool kAlone = true;
  static constexpr int kBytes = Peak<unsigned>::kBytes;
  // Before the first barrier. `room`: kBytes of shared memory.
  template <class View>
  __device__ SingleBlock(char* room, std::int32_t thread, const View&)
      : peak_(reinterpret_cast<unsigned*>(room), 0, thread), thread_(thread) {}
  __device__ std::int32_t thread() const { return thread_; }
  __device__ std::int64_t sequence() const { return blockIdx.x; }
  __device__ std::int32_t first() const { return static_cast<std::int32_t>(threadIdx.x); }
  __device__ std::int32_t stride() const { return static_cast<std::int32_t>(blockDim.x); }
  __device__ bool leads() const { return thread_ == 0; }
  __device__ void begin() {}
  template <class Place>
  __device__ void put(P* next, const Place& place, P value) const {
    next[place.cell] = value;
  }
  __device__ void end_step(std::int32_t n, unsigned mine) {
    peak_.publish(n, mine);
    __syncthreads();
  }
  // Loads what peak() needs; early, to hide its latency.
  __device__ unsigned load_peak(std::int32_t n) const { return peak_.of_warp(n); }
  __device__ unsigned peak(unsigned of_warp) const { return peak_.of_all(of_warp); }

 private:
  Peak<unsigned> peak_;
  std::int32_t thread_;
};

// The blocks of a cluster. Each has cells for two steps, and a barrier for each of these: it reads one, and all send to
// the other. A block sends its peak when its threads have read all they need in this step, and goes on when it has the
// peaks of all blocks: so no block sends to cells that are still read. Bytes may arrive before a block expects them: a
// phase has one arrival, which is expect() itself, and cannot end before. A block may exit after its last step: all
// that was sent to it has arrived.
template <class P>
class BlockCluster {
 public:
  static constexpr bool kAlone = false;
  static constexpr int kBytes =
      Peak<unsigned>::kBytes + 2 * kPartitions * sizeof(unsigned) + 2 * sizeof(TransactionBarrier);
  template <class View>
  __device__ BlockCluster(char* room, std::int32_t thread, const View& view)
      : peak_(reinterpret_cast<unsigned*>(room), 0, thread),
        peaks_(reinterpret_cast<unsigned*>(room + Peak<unsigned>::kBytes)),
        barriers_(
            reinterpret_cast<TransactionBarrier*>(room + Peak<unsigned>::kBytes + 2 * kPartitions * sizeof(unsigned))),
        barrier_(barriers_),
        rest_(view.partitions.rest),
        thread_(thread),
        cells_(view.partitions.cells),
        blocks_(view.blocks),
        rank_(view.rank),
        own_bits_(view.own_bits) {
    for (std::int32_t k = 0; k < view.own; ++k) bytes_ += view.partitions.copies[rank_ * view.own + k] * sizeof(P);
    bytes_ += blocks_ * sizeof(unsigned);
    if (thread == 0) {
      init_barrier(barriers_);
      init_barrier(barriers_ + 1);
    }
  }
  __device__ std::int32_t thread() const { return thread_; }
  __device__ std::int64_t sequence() const { return static_cast<std::int32_t>(blockIdx.x) / blocks_; }
  __device__ std::int32_t first() const { return rank_ * static_cast<std::int32_t>(blockDim.x) + thread_; }
  __device__ std::int32_t stride() const { return blocks_ * static_cast<std::int32_t>(blockDim.x); }
  __device__ bool leads() const { return rank_ == 0 && thread_ == 0; }
  // Cells are cleared.
  __device__ void begin() { sync_cluster(); }

  __device__ void put(P* next, const PartitionedOut& to, P value) const {
    if (to.x != kNoCell) deliver(next, to.x, value);
    if (to.y != kNoCell) deliver(next, to.y, value);
    if (to.rest < 0) return;
    for (std::int32_t i = to.rest; rest_[i] != kNoCell; ++i) deliver(next, rest_[i], value);
  }

  __device__ void end_step(std::int32_t n, unsigned mine) {
    peak_.publish(n, mine);
    __syncthreads();
    if (thread_ < 32) {
      const unsigned most = peak_.of_all(peak_.of_warp(n));
      if (thread_ < blocks_)
        send(peaks_ + n % 2 * kPartitions + rank_, static_cast<std::uint32_t>(thread_), most, barrier_);
      if (thread_ == 0) expect(barrier_, bytes_);
    }
    wait_for(barrier_, static_cast<std::uint32_t>(n / 2));
    barrier_ = barriers_ + (n + 1) % 2;
  }
  __device__ unsigned load_peak(std::int32_t n) const {
    return peaks_[n % 2 * kPartitions + (thread_ & (blocks_ - 1))];
  }
  __device__ unsigned peak(unsigned of_warp) const { return peak_.of_all(of_warp); }

 private:
  __device__ void deliver(P* next, std::uint32_t to, P value) const {
    const std::uint32_t partition = to >> 16;
    const std::uint32_t here = partition & ((1u << own_bits_) - 1);
    send(next + here * cells_ + (to & 0xffff), partition >> own_bits_, value, barrier_);
  }

  Peak<unsigned> peak_;
  unsigned* peaks_;                          // [2, kPartitions] of the blocks, in a step
  TransactionBarrier *barriers_, *barrier_;  // [2], and the one of this step
  const std::uint32_t* rest_;
  std::int32_t thread_, cells_, blocks_, rank_, own_bits_;  // a block has 2^own_bits_ partitions
  std::uint32_t bytes_ = 0;                                 // that come to the block in a step
};

template <class P, class View>
using TeamOf = std::conditional_t<std::is_same_v<View, ClusterView>, BlockCluster<P>, SingleBlock<P>>;

// Shared memory for the cells of a block of a cluster, and its warps.
template <class P>
std::int64_t partition_bytes(const DeviceConstraint::Impl& c, std::int32_t blocks) {
  const std::int64_t room = std::max(c.forward.partitions.cells, c.backward.partitions.cells);
  return 2 * room * (kPartitions / blocks) * static_cast<int>(sizeof(P));
}
inline std::int32_t warps_together(const DeviceConstraint::Impl& c, std::int32_t blocks) {
  const std::int32_t kind = log2_of(blocks) - 1;
  return std::max(c.forward.partitions.schedule[kind].warps, c.backward.partitions.schedule[kind].warps);
}

// How many blocks do a step together, for `walks` walks with `room` bytes of shared memory for cells: the fastest by a
// model of an H200, microseconds a step times waves of blocks.
template <class P>
std::int32_t blocks_together(const DeviceConstraint::Impl& c, std::int64_t walks, std::int64_t room) {
  if (c.forward.partitions.cells == 0 || c.backward.partitions.cells == 0) return 1;
  const auto cost = static_cast<double>(std::max(c.forward.cost, c.backward.cost));
  const auto rounds = [&](int power) { return static_cast<double>(ceil_div(walks, c.clusters[power])); };
  double least = 0.85 * rounds(0) * cost * 0.0014;
  std::int32_t best = 1;
  for (int power = 1; power < 5 && c.clusters[power] > 0; ++power) {
    const std::int32_t blocks = 1 << power;
    const double time = rounds(power) * (1 + 0.0016 * cost / blocks);
    if (time >= least || partition_bytes<P>(c, blocks) > room) continue;
    least = time;
    best = blocks;
  }
  return best;
}

}  // namespace regccrf::cuda
