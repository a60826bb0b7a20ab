// Viterbi on a device: one block a sequence. The way forward is a sweep in the max-plus semiring that leaves for every cell
// the cell before it; the way back reads these, a few steps at a time on chip.
//
// In float, scores are kept relative to the best of the step before; three roundings a step on the path found and on the one
// that might have been better, each at most half a unit in the last place of the largest score seen. Where that is below the
// tolerance the path stands, else a second kernel does the sequence in double. A path's score is summed again in double.
#include <cuda_pipeline.h>

#include <algorithm>
#include <limits>

#include "inference/prepare_cuda.h"
#include "inference/sweep_cuda.h"

namespace regccrf::cuda {

namespace {

constexpr int kThreads = 1024;

template <class P>
struct Work {
  Prepared<P> scores;
  void* before;         // [B, T, cells] the cell before each, in the sweep's index type
  P* cells;             // scratch where a block has no room
  std::int32_t* extra;  // [B, extras] likewise: which cell gave an extra its value
  std::int32_t* redo;   // [B] 1: to be done in double
};

struct Shape {
  int bytes;
  bool on_chip, cells_on_chip;
};

int aligned(std::int64_t bytes) { return static_cast<int>((bytes + 15) / 16 * 16); }

template <class P>
Shape shape_of(const DeviceConstraint::Impl& c) {
  const DeviceSweep& f = c.forward;
  const int p = sizeof(P);
  const std::int64_t rows = 16 + aligned(2 * (f.K + 1) * std::int64_t{p});
  const std::int64_t cells = aligned(2 * std::int64_t{f.all_cells} * p) + aligned(4 * std::int64_t{f.extras});
  const std::int64_t all = cells + aligned((f.entries + 8) * std::int64_t{p}) + aligned(std::int64_t{f.thin} * f.thin_slots * p) + f.hot_bytes;
  Shape s{};
  s.on_chip = f.narrow && rows + all <= c.shared_bytes;
  s.cells_on_chip = s.on_chip || rows + cells <= c.shared_bytes;
  s.bytes = static_cast<int>(rows + (s.on_chip ? all : s.cells_on_chip ? cells : 0));
  // Room for some steps of the way back.
  const std::int64_t row = std::int64_t{f.cells} * (f.narrow ? 2 : 4);
  s.bytes = static_cast<int>(std::max<std::int64_t>(s.bytes, std::min<std::int64_t>(64 * row + 16, c.shared_bytes)));
  return s;
}

template <class P>
struct Args {
  DeviceSweep sweep;
  DeviceTopology topology;
  Batch batch;
  Work<P> work;
  Shape shape;
  Best best;
  const std::int32_t* only;  // null: every sequence
};

// Integers ordered as floats are.
__device__ inline std::int32_t ordered(float x) {
  const std::int32_t bits = __float_as_int(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
__device__ inline float from_ordered(std::int32_t x) { return __int_as_float(x ^ ((x >> 31) & 0x7fffffff)); }

template <class P>
__device__ void prefetch_row(P* to, const P* from, std::int32_t count) {
  for (std::int32_t k = threadIdx.x; k < count; k += blockDim.x) __pipeline_memcpy_async(to + k, from + k, sizeof(P));
  __pipeline_commit();
}

template <class Index, class P>
__device__ void fill_extras(const SweepView<Index>& view, P* now, std::int32_t* from) {
  for (std::int32_t i = threadIdx.x; i < view.extras; i += blockDim.x) {
    P best = -P{INFINITY};
    std::int32_t cell = 0;
    for (std::int32_t j = view.extra_begin[i]; j < view.extra_begin[i + 1]; ++j) {
      const std::int32_t c = view.extra_source[j];
      if (now[c] > best) best = now[c], cell = c;
    }
    now[view.cells + 1 + i] = best;
    from[i] = cell;
  }
}

// The block's largest, and of equals the one with the lowest number.
struct Candidate {
  double value;
  std::int32_t number;
  __device__ void take(Candidate other) {
    if (other.value > value || (other.value == value && other.number < number)) *this = other;
  }
};
__device__ Candidate block_best(Candidate mine) {
  __shared__ Candidate best[32];
  const auto warp_best = [&] {
    for (int bit = 16; bit > 0; bit /= 2) {
      mine.take({__shfl_xor_sync(0xffffffffu, mine.value, bit), __shfl_xor_sync(0xffffffffu, mine.number, bit)});
    }
  };
  warp_best();
  __syncthreads();
  if (threadIdx.x < 32) best[threadIdx.x] = {-INFINITY, 0x7fffffff};
  __syncthreads();
  if (threadIdx.x % 32 == 0) best[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = best[threadIdx.x % 32];
  warp_best();
  return mine;
}

// Forward; the cell in which the best path ends, -1 where there is none. `largest`: the largest score seen, in size.
template <class P, class Index>
__device__ std::int32_t walk(const Args<P>& a, const SweepView<Index>& view, const P* matrix, const P* thin, P* now, P* next,
                             std::int32_t* extra, P* rows, std::int32_t* peak, P& largest) {
  constexpr bool kRelative = sizeof(P) == 4;
  const std::int64_t b = blockIdx.x, T_all = a.batch.length;
  const std::int32_t T = a.work.scores.length[b], K = a.sweep.K, cells = view.cells;
  const P* emissions = a.work.scores.emissions + b * T_all * (K + 1);
  Index* before = static_cast<Index*>(a.work.before) + b * T_all * cells;
  const P none = -P{INFINITY};
  const auto note = [&](P v) {
    if (kRelative && v != none) largest = max(largest, abs(v));
  };
  const auto share_peak = [&](P top, std::int32_t slot) {
    if constexpr (kRelative) {
      const std::int32_t word = __reduce_max_sync(0xffffffffu, ordered(top));
      if (threadIdx.x % 32 == 0) atomicMax(&peak[slot], word);
    }
  };

  prefetch_row(rows, emissions, K + 1);
  for (std::int32_t c = threadIdx.x; c <= cells + view.extras; c += blockDim.x) now[c] = next[c] = none;
  if (threadIdx.x < 3) peak[threadIdx.x] = ordered(-INFINITY);
  __pipeline_wait_prior(0);
  __syncthreads();
  P top = none;
  for (std::int32_t c = threadIdx.x; c < cells; c += blockDim.x) {
    const std::int32_t label = view.label[c];
    if (!a.sweep.begins[c] || label >= K) continue;
    const P v = a.work.scores.start[label] + rows[label];
    now[c] = v;
    top = max(top, v);
    note(v);
  }
  share_peak(top, 0);
  if (T > 1) prefetch_row(rows + K + 1, emissions + K + 1, K + 1);
  __pipeline_wait_prior(0);
  __syncthreads();

  for (std::int32_t t = 1; t < T; ++t) {
    const P* row = rows + (t % 2) * (K + 1);
    if (t + 1 < T) prefetch_row(rows + ((t + 1) % 2) * (K + 1), emissions + std::int64_t{t + 1} * (K + 1), K + 1);
    if (view.extras) {
      fill_extras(view, now, extra);
      __syncthreads();
    }
    P shift = 0;
    if constexpr (kRelative) {
      const P last = from_ordered(peak[(t - 1) % 3]);
      shift = last == none ? P{0} : last;
    }
    Index* out = before + std::int64_t{t} * cells;
    top = none;
    using Best = typename MaxPlus<P>::Accumulator;
    sweep_step<MaxPlus<P>>(view, matrix, thin, now, [&](std::int32_t cell, Best best, const Pair<Index>* sources, std::int32_t stride) {
      const P v = (best.value - shift) + row[view.label[cell]];
      const Pair<Index> from = sources[best.source / 2 * stride];
      std::int32_t source = best.source % 2 ? from.y : from.x;
      if (source > cells) source = extra[source - cells - 1];
      next[cell] = v;
      out[cell] = static_cast<Index>(source);
      top = max(top, v);
      note(v);
    });
    share_peak(top, t % 3);
    if (threadIdx.x == 0) peak[(t + 1) % 3] = ordered(-INFINITY);
    __pipeline_wait_prior(0);
    __syncthreads();
    P* swap = now;
    now = next;
    next = swap;
  }

  Candidate best{-INFINITY, 0x7fffffff};
  for (std::int32_t n = threadIdx.x; n < a.topology.nodes; n += blockDim.x) {
    if (!a.topology.node_accepts[n]) continue;
    best.take({static_cast<double>(now[a.topology.node_cell[n]] + a.work.scores.end[a.topology.node_label[n]]), n});
  }
  best = block_best(best);
  return best.value == -INFINITY ? -1 : a.topology.node_cell[best.number];
}

// Back from the last cell, `stage` steps at a time on chip. The path's cells go to `path`, [T].
template <class Index>
__device__ void trace(const Index* before, std::int32_t cells, std::int32_t T, std::int32_t cell, std::int32_t stage, Index* staged,
                      std::int32_t* path) {
  for (std::int32_t last = T - 1; last > 0; last -= max(stage, 1)) {
    const std::int32_t first = max(last - max(stage, 1) + 1, 1);
    const Index* from = before + std::int64_t{first} * cells;
    const std::int64_t count = std::int64_t{last - first + 1} * cells;
    __syncthreads();
    if (stage > 0) {
      for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) staged[i] = from[i];
    }
    __syncthreads();
    if (threadIdx.x != 0) continue;
    const Index* rows = stage > 0 ? staged : from;
    for (std::int32_t t = last; t >= first; --t) {
      path[t] = cell;
      cell = rows[std::int64_t{t - first} * cells + cell];
    }
  }
  if (threadIdx.x == 0) path[0] = cell;
  __syncthreads();
}

template <class P, class Index, bool kOnChip>
__global__ void __launch_bounds__(kThreads, 1) viterbi_kernel(const __grid_constant__ Args<P> a) {
  extern __shared__ __align__(16) char shared[];
  const std::int64_t b = blockIdx.x;
  if (a.only && !a.only[b]) return;
  const DeviceSweep& sweep = a.sweep;
  const std::int32_t K = sweep.K, T = a.work.scores.length[b];
  std::int32_t* path = a.best.labels + b * a.batch.length;
  Status& status = a.best.status[b];
  for (std::int64_t t = threadIdx.x; t < a.batch.length; t += blockDim.x) path[t] = -1;
  if (threadIdx.x == 0 && a.work.redo) a.work.redo[b] = 0;
  if (*a.work.scores.bad && threadIdx.x == 0) status.outcome = static_cast<std::int32_t>(Outcome::bad_transition);
  if (T == 0) {
    if (threadIdx.x == 0) {
      a.best.score[b] = a.topology.empty ? 0 : -INFINITY;
      if (!a.topology.empty) status.outcome = static_cast<std::int32_t>(Outcome::impossible);
    }
    return;
  }

  char* at = shared;
  const auto take = [&](std::int64_t bytes) {
    char* here = at;
    at += (bytes + 15) / 16 * 16;
    return here;
  };
  std::int32_t* peak = reinterpret_cast<std::int32_t*>(take(16));
  P* rows = reinterpret_cast<P*>(take(2 * (K + 1) * sizeof(P)));
  P largest = 0;
  std::int32_t last;
  if constexpr (kOnChip) {
    P* cells = reinterpret_cast<P*>(take(2 * std::int64_t{sweep.all_cells} * sizeof(P)));
    std::int32_t* extra = reinterpret_cast<std::int32_t*>(take(4 * std::int64_t{sweep.extras}));
    P* matrix = reinterpret_cast<P*>(take((sweep.entries + 8) * sizeof(P)));
    P* thin = reinterpret_cast<P*>(take(sweep.thin * sweep.thin_slots * sizeof(P)));
    char* hot = take(sweep.hot_bytes);
    copy_in(hot, sweep.hot, sweep.hot_bytes);
    for (std::int32_t i = threadIdx.x; i < sweep.entries + 8; i += blockDim.x) matrix[i] = a.work.scores.matrix[0][i];
    for (std::int32_t i = threadIdx.x; i < sweep.thin * sweep.thin_slots; i += blockDim.x) thin[i] = a.work.scores.thin[0][i];
    __syncthreads();
    last = walk(a, SweepView<Index>(sweep, hot), matrix, thin, cells, cells + sweep.all_cells, extra, rows, peak, largest);
  } else {
    P* cells = a.shape.cells_on_chip ? reinterpret_cast<P*>(take(2 * std::int64_t{sweep.all_cells} * sizeof(P)))
                                     : a.work.cells + b * 2 * sweep.all_cells;
    std::int32_t* extra = a.shape.cells_on_chip ? reinterpret_cast<std::int32_t*>(take(4 * std::int64_t{sweep.extras}))
                                                : a.work.extra + b * sweep.extras;
    last = walk(a, SweepView<Index>(sweep, sweep.hot), a.work.scores.matrix[0], a.work.scores.thin[0], cells, cells + sweep.all_cells,
                extra, rows, peak, largest);
  }
  const double most = block_best({static_cast<double>(largest), 0}).value;
  if (last < 0) {
    if (threadIdx.x == 0) {
      a.best.score[b] = -INFINITY;
      if (status.outcome == 0) status.outcome = static_cast<std::int32_t>(Outcome::impossible);
    }
    return;
  }
  __syncthreads();
  const auto stage = static_cast<std::int32_t>(a.shape.bytes / (std::int64_t{sweep.cells} * sizeof(Index)));
  trace(static_cast<const Index*>(a.work.before) + b * a.batch.length * sweep.cells, sweep.cells, T, last, stage,
        reinterpret_cast<Index*>(shared), path);
  for (std::int32_t t = threadIdx.x; t < T; t += blockDim.x) path[t] = sweep.label[path[t]];
  __syncthreads();
  const std::int64_t* row = a.work.scores.row + b * a.batch.length;
  const double score = block_sum<kThreads>(path_score(a.batch, K, T, row, [&](std::int32_t t) { return path[t]; }));
  if (threadIdx.x != 0) return;
  a.best.score[b] = score;
  const double step = 1.5 * most * static_cast<double>(std::numeric_limits<float>::epsilon());
  if (a.work.redo && 2 * step * T > 0.5e-5 * fmax(1.0, fabs(score))) a.work.redo[b] = 1;
}

template <class P>
Work<P> cut_work(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, const Shape& s, void* before, bool may_redo) {
  const auto B = static_cast<std::size_t>(batch.size);
  Work<P> w{};
  w.scores = cut_prepared<P>(cutter, c, batch, false);
  w.before = before;
  w.cells = cutter.take<P>(s.cells_on_chip ? 0 : B * 2 * static_cast<std::size_t>(c.forward.all_cells));
  w.extra = cutter.take<std::int32_t>(s.cells_on_chip ? 0 : B * static_cast<std::size_t>(c.forward.extras));
  w.redo = may_redo ? cutter.take<std::int32_t>(B) : nullptr;
  return w;
}

void* cut_before(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch) {
  const auto cells = static_cast<std::size_t>(batch.size * batch.length) * static_cast<std::size_t>(c.forward.cells);
  return c.forward.narrow ? static_cast<void*>(cutter.take<std::uint16_t>(cells)) : cutter.take<std::int32_t>(cells);
}

template <class P, class Index, bool kOnChip>
void launch(const Args<P>& args, cudaStream_t stream) {
  auto* kernel = viterbi_kernel<P, Index, kOnChip>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, args.shape.bytes), "shared memory");
  kernel<<<static_cast<unsigned>(args.batch.size), kThreads, static_cast<std::size_t>(args.shape.bytes), stream>>>(args);
  check(cudaGetLastError(), "viterbi");
}

template <class P>
void run(const DeviceConstraint::Impl& c, const Batch& batch, const Best& best, const Work<P>& work, const Shape& s,
         const std::int32_t* only, cudaStream_t stream) {
  prepare<P>(c, batch, work.scores, Scale::log, false, best.status, only, stream);
  const Args<P> args{c.forward, c.topology, batch, work, s, best, only};
  if (s.on_chip) {
    launch<P, std::uint16_t, true>(args, stream);
  } else if (c.forward.narrow) {
    launch<P, std::uint16_t, false>(args, stream);
  } else {
    launch<P, std::int32_t, false>(args, stream);
  }
}

struct Both {
  Shape shape, shape_double;
  Work<float> work;
  Work<double> work_double;
};
Both cut_both(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch) {
  Both both{};
  void* before = cut_before(cutter, c, batch);
  both.shape_double = shape_of<double>(c);
  both.work_double = cut_work<double>(cutter, c, batch, both.shape_double, before, false);
  if (batch.type == Type::f64) return both;
  both.shape = shape_of<float>(c);
  both.work = cut_work<float>(cutter, c, batch, both.shape, before, true);
  return both;
}

}  // namespace

std::size_t viterbi_bytes(const DeviceConstraint& constraint, const Batch& batch) {
  Cutter cutter(Memory{});
  cut_both(cutter, constraint.impl(), batch);
  return cutter.used();
}

void viterbi(const DeviceConstraint& constraint, const Batch& batch, const Best& best, Memory memory, void* stream) {
  check_batch("viterbi", batch);
  if (batch.size == 0) return;
  Cutter cutter(memory);
  const DeviceConstraint::Impl& c = constraint.impl();
  const Both both = cut_both(cutter, c, batch);
  const auto s = static_cast<cudaStream_t>(stream);
  if (batch.type == Type::f64) return run<double>(c, batch, best, both.work_double, both.shape_double, nullptr, s);
  run<float>(c, batch, best, both.work, both.shape, nullptr, s);
  run<double>(c, batch, best, both.work_double, both.shape_double, both.work.redo, s);
}

}  // namespace regccrf::cuda
