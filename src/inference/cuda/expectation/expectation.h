// What the kernels of an expectation hand to one another (expectation.cu). Memory is cut in the same order by
// *_bytes and by the call.
#pragma once

#include "inference/cuda/step/scan.h"
#include "inference/cuda/step/walk.h"

namespace regccrf::cuda {

// What the pass leaves for those after it. The true alpha at t is what is stored there, times 2^e and exp(m): e is the
// sum of the exponents up to t, m that of the largest scores that prepare has subtracted up to t. Likewise beta, from t
// on.
template <class P>
struct Trellis {
  Prepared<P> scores;
  P* alpha;  // [B, T, forward cells]
  P* beta;   // [B, T, backward cells], or [B, T, outs of the combine]; both with their own position's emissions
  std::int32_t* exponent[2];        // [B, T] of the scale that a step divided out
  std::int64_t* total_exponent[2];  // [B] of all of them
  double* z;                        // [B, T] by the combine
  std::int32_t* trust;              // [B] a Trust
  std::int32_t* leaves;             // [B] where gold leaves the language; -1: nowhere
};

template <class P>
struct ExpectationArgs;

// forward_backward.cu: one block a sequence and direction, or a piece of these, walks the steps, and leaves each step's
// cells in memory.
template <class P>
struct ForwardBackward {
  Pieces pieces;
  WalkShape shape;
  ScanMemory scan;  // in double, with more than one piece
  P* cells;         // where a block has no room for its cells
  bool at_outs;     // beta is left at the combine's outs

  static ForwardBackward allocate(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch,
                                  const Pieces& pieces, bool gold);
  static void run(const DeviceConstraint::Impl& c, const ExpectationArgs<P>& args, cudaStream_t stream);
};

// combine.cu: blocks of some positions each: marginals, and sums for the bigrams. Its first blocks follow gold, which
// needs nothing of the pass.
struct ChunkLayout {
  std::int64_t m, y, inverse, partials, labels, begin, bytes;  // where a block's arrays begin, in bytes
};
struct CombineShape {
  std::int32_t chunk, chunks, threads;  // positions of a block, blocks of a sequence
  std::int64_t blocks;                  // without those that follow gold
  bool on_chip;
  ChunkLayout layout;
};
template <class P>
struct Combine {
  CombineShape shape;
  std::int32_t entries;  // sums of a block (by fours)
  P* sums;               // [B, chunks, entries] times the z of the chunk's first position
  double* inverse;       // [B, chunks] 1 over that
  P* room;               // where a block has no room
  std::int32_t* stamps;  // likewise for gold's states (gold.h)

  static Combine allocate(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted);
  static void run(const DeviceConstraint::Impl& c, const ExpectationArgs<P>& args, cudaStream_t stream);
};

// A call, as its kernels take it.
template <class P>
struct ExpectationArgs {
  DeviceCombine combine;
  DeviceTopology topology;
  Batch batch;
  Expectation wanted;
  Trellis<P> trellis;
  ForwardBackward<P> pass;
  Combine<P> work;
};

}  // namespace regccrf::cuda
