// Viterbi on a device: one block a sequence. The way forward is a sweep in the max-plus semiring that leaves every
// step's scores in memory. The way back follows one path, so one warp finds each predecessor again from the scores of
// its own state's slots, some steps at a time on chip; no backpointer is ever written.
//
// In float, scores are kept relative to the best of the step before; three roundings a step on the path found and on
// the one that might have been better, each at most half a unit in the last place of the largest score seen. Where that
// is below the tolerance the path stands, else a second kernel does the sequence in double. A path's score is summed
// again in double.
#include <algorithm>
#include <limits>

#include "inference/prepare_cuda.h"
#include "inference/sweep_cuda.h"

namespace regccrf::cuda {

namespace {

template <class P>
struct Work {
  Prepared<P> scores;
  P* kept;             // [B, T, cells]
  P* cells;            // scratch where a block has no room
  std::int32_t* redo;  // [B] 1: to be done in double
};

struct Shape {
  int bytes, stage;  // stage: steps of the way back that there is room for
  bool on_chip, cells_on_chip;
};

template <class P>
Shape shape_of(const DeviceConstraint::Impl& c) {
  const DeviceSweep& f = c.forward;
  const int p = sizeof(P);
  const std::int64_t rows = 16 + aligned(kRowsAhead * (f.K + 1) * std::int64_t{p});
  const std::int64_t cells = aligned(2 * std::int64_t{f.all_cells} * p);
  const std::int64_t all = cells + aligned((f.entries + 8) * std::int64_t{p}) +
                           aligned(std::int64_t{f.thin} * f.thin_slots * p) + f.hot_bytes;
  Shape s{};
  s.on_chip = f.narrow && rows + all <= c.shared_bytes;
  s.cells_on_chip = s.on_chip || rows + cells <= c.shared_bytes;
  s.bytes = static_cast<int>(rows + (s.on_chip ? all : s.cells_on_chip ? cells : 0));
  // Room for some steps of the way back.
  s.stage = static_cast<int>(std::min<std::int64_t>(32, (c.shared_bytes - s.bytes) / (std::int64_t{f.cells} * p)));
  s.bytes += s.stage * f.cells * p;
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

template <class Index, class P>
__device__ void fill_extras(const SweepView<Index>& view, P* now) {
  for (std::int32_t i = threadIdx.x; i < view.extras; i += blockDim.x) {
    P best = -P{INFINITY};
    for (std::int32_t j = view.extra_begin[i]; j < view.extra_begin[i + 1]; ++j)
      best = max(best, now[view.extra_source[j]]);
    now[view.cells + 1 + i] = best;
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
template <class P, class Index, class Steps>
__device__ std::int32_t walk(const Args<P>& a, const SweepView<Index>& view, const Steps& steps, P* now, P* next,
                             P* ring, std::int32_t* peak, P& largest) {
  constexpr bool kRelative = sizeof(P) == 4;
  const std::int64_t b = blockIdx.x, T_all = a.batch.length;
  const std::int32_t T = a.work.scores.length[b], K = a.sweep.K, cells = view.cells;
  P* kept = a.work.kept + b * T_all * cells;
  const P none = -P{INFINITY};
  Rows<P> rows(ring, a.work.scores.emissions + b * T_all * (K + 1), K, T, false);
  P top = none;
  const auto take = [&](std::uint32_t cell, P v, P* to) {
    put(to, cell, v);
    put(kept, cell, v);
    top = max(top, v);
    if (kRelative && v != none) largest = max(largest, abs(v));
  };
  const auto share_peak = [&](std::int32_t slot) {
    if constexpr (kRelative) {
      const std::int32_t word = __reduce_max_sync(0xffffffffu, ordered(top));
      if (threadIdx.x % 32 == 0) atomicMax(&peak[slot], word);
    }
    top = none;
  };

  rows.begin();
  for (std::int32_t c = threadIdx.x; c <= cells + view.extras; c += blockDim.x) now[c] = next[c] = none;
  if (threadIdx.x < 3) peak[threadIdx.x] = ordered(-INFINITY);
  __pipeline_wait_prior(0);
  __syncthreads();
  for (std::int32_t c = threadIdx.x; c < cells; c += blockDim.x) {
    const std::int32_t label = view.label[c];
    take(bytes_of<P>(c), a.sweep.begins[c] && label < K ? a.work.scores.start[label] + rows[0][label] : none, now);
  }
  share_peak(0);
  __syncthreads();

  for (std::int32_t t = 1; t < T; ++t) {
    kept += cells;
    rows.ask(t + kRowsAhead - 2);
    const P* row = rows[t];
    if (view.extras) {
      fill_extras(view, now);
      __syncthreads();
    }
    P shift = 0;
    if constexpr (kRelative) {
      const P last = from_ordered(peak[(t - 1) % 3]);
      shift = last == none ? P{0} : last;
    }
    steps(now, [&](std::uint32_t cell, std::uint32_t label, P best) {
      take(cell, (best - shift) + value_of(row, label), next);
    });
    share_peak(t % 3);
    if (threadIdx.x == 0) peak[(t + 1) % 3] = ordered(-INFINITY);
    Rows<P>::wait();
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

// The best cell of the step before, `now`, for the path to be in `cell`: one warp looks at the cell's slots.
template <class P, class Index>
__device__ std::int32_t predecessor(const SweepView<Index>& view, std::int32_t groups, const P* matrix,
                                    const P* thin_matrix, const P* now, std::int32_t cell) {
  const std::int32_t lane = threadIdx.x % 32;
  P best = -P{INFINITY};
  std::int32_t from = 0x7fffffff;
  const auto offer = [&](std::int32_t source, P gain) {
    if (source == view.cells) return;  // the zero
    const P v = now[source] + gain;
    if (v > best || (v == best && source < from)) best = v, from = source;
  };
  const auto offer_slot = [&](const Pair<Index>& sources, P gain) {
    if (sources.x > view.cells) {
      const std::int32_t extra = sources.x - view.cells - 1;
      for (std::int32_t j = view.extra_begin[extra]; j < view.extra_begin[extra + 1]; ++j)
        offer(view.extra_source[j], gain);
      return;
    }
    offer(sources.x, gain);
    offer(sources.y, gain);
  };
  if (cell >= view.first_thin) {
    const std::int32_t i = cell - view.first_thin;
    if (lane < view.thin_slots) offer_slot(view.thin_source[lane * view.thin + i], thin_matrix[lane * view.thin + i]);
  } else {
    std::int32_t g = 0;
    while (g + 1 < groups && cell >= view.group[g + 1].first_cell) ++g;
    const SweepGroup group = view.group[g];
    const std::int32_t o = (cell - group.first_cell) / group.states, state = cell - group.first_cell - o * group.states;
    for (std::int32_t i = lane; i < group.slots; i += 32) {
      offer_slot(view.source[group.first_source + state * group.slots + i],
                 matrix[group.first_entry + i * group.width + o]);
    }
  }
  if constexpr (sizeof(P) == 4) {
    const bool top = __reduce_max_sync(0xffffffffu, ordered(best)) == ordered(best);
    return __reduce_min_sync(0xffffffffu, top ? from : 0x7fffffff);
  } else {
    for (int bit = 16; bit > 0; bit /= 2) {
      const P v = __shfl_xor_sync(0xffffffffu, best, bit);
      const std::int32_t source = __shfl_xor_sync(0xffffffffu, from, bit);
      if (v > best || (v == best && source < from)) best = v, from = source;
    }
    return from;
  }
}

// Back from the last cell. The path's cells go to `path`, [T].
template <class P, class Index>
__device__ void trace(const Args<P>& a, const SweepView<Index>& view, const P* matrix, const P* thin_matrix,
                      std::int32_t cell, P* staged, std::int32_t* path) {
  const std::int64_t b = blockIdx.x;
  const std::int32_t T = a.work.scores.length[b], cells = view.cells, stage = max(a.shape.stage, 1);
  if (threadIdx.x == 0) path[T - 1] = cell;
  for (std::int32_t end = T - 1; end > 0; end -= stage) {  // steps begin … end - 1
    const std::int32_t begin = max(end - stage, 0);
    const P* from = a.work.kept + (b * a.batch.length + begin) * cells;
    __syncthreads();
    if (a.shape.stage > 0) {
      const std::int64_t quads = std::int64_t{end - begin} * cells / 4;
      for (std::int64_t i = threadIdx.x; i < quads; i += blockDim.x) {
        P four[4];
        load4(from + 4 * i, four);
        for (int k = 0; k < 4; ++k) staged[4 * i + k] = four[k];
      }
    }
    __syncthreads();
    if (threadIdx.x >= 32) continue;
    const P* rows = a.shape.stage > 0 ? staged : from;
    for (std::int32_t t = end - 1; t >= begin; --t) {
      cell = predecessor(view, a.sweep.groups, matrix, thin_matrix, rows + std::int64_t{t - begin} * cells, cell);
      if (threadIdx.x == 0) path[t] = cell;
    }
  }
  __syncthreads();
}

// Forward, back, and what the caller gets.
template <int kThreads, class P, class Index, class Steps>
__device__ void both_ways(const Args<P>& a, const SweepView<Index>& view, const Steps& steps, const P* matrix,
                          const P* thin, P* cells, P* ring, std::int32_t* peak, P* staged) {
  const std::int64_t b = blockIdx.x;
  const std::int32_t T = a.work.scores.length[b];
  std::int32_t* path = a.best.labels + b * a.batch.length;
  Status& status = a.best.status[b];
  P largest = 0;
  const std::int32_t last = walk(a, view, steps, cells, cells + a.sweep.all_cells, ring, peak, largest);
  const double most = block_best({static_cast<double>(largest), 0}).value;
  if (last < 0) {
    if (threadIdx.x == 0) {
      a.best.score[b] = -INFINITY;
      if (status.outcome == 0) status.outcome = static_cast<std::int32_t>(Outcome::impossible);
    }
    return;
  }
  trace(a, view, matrix, thin, last, staged, path);
  for (std::int32_t t = threadIdx.x; t < T; t += blockDim.x) path[t] = view.label[path[t]];
  __syncthreads();
  const std::int64_t* row = a.work.scores.row + b * a.batch.length;
  const double score =
      block_sum<kThreads>(path_score(a.batch, a.sweep.K, T, row, [&](std::int32_t t) { return path[t]; }));
  if (threadIdx.x != 0) return;
  a.best.score[b] = score;
  const double step = 1.5 * most * static_cast<double>(std::numeric_limits<float>::epsilon());
  if (a.work.redo && 2 * step * T > 0.5e-5 * fmax(1.0, fabs(score))) a.work.redo[b] = 1;
}

template <Keep kKeep>
constexpr int kThreads = kKeep == Keep::registers ? 32 * kResidentWarps : 1024;

template <class P, class Index, Keep kKeep>
__global__ void __launch_bounds__(kThreads<kKeep>, 1) viterbi_kernel(const __grid_constant__ Args<P> a) {
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
  P* rows = reinterpret_cast<P*>(take(kRowsAhead * (K + 1) * sizeof(P)));
  if constexpr (kKeep != Keep::memory) {
    P* cells = reinterpret_cast<P*>(take(2 * std::int64_t{sweep.all_cells} * sizeof(P)));
    P* matrix = reinterpret_cast<P*>(take((sweep.entries + 8) * sizeof(P)));
    P* thin = reinterpret_cast<P*>(take(sweep.thin * sweep.thin_slots * sizeof(P)));
    char* hot = take(sweep.hot_bytes);
    copy_in(hot, sweep.hot, sweep.hot_bytes);
    for (std::int32_t i = threadIdx.x; i < sweep.entries + 8; i += blockDim.x) matrix[i] = a.work.scores.matrix[0][i];
    for (std::int32_t i = threadIdx.x; i < sweep.thin * sweep.thin_slots; i += blockDim.x)
      thin[i] = a.work.scores.thin[0][i];
    __syncthreads();
    const SweepView<Index> view(sweep, hot, kKeep == Keep::registers);
    if constexpr (kKeep == Keep::registers) {
      both_ways<kThreads<kKeep>>(a, view, ResidentSteps<MaxPlus<P>, Index>(view, matrix, thin), matrix, thin, cells,
                                 rows, peak, reinterpret_cast<P*>(at));
    } else {
      both_ways<kThreads<kKeep>>(a, view, GeneralSteps<MaxPlus<P>, Index>{view, matrix, thin}, matrix, thin, cells,
                                 rows, peak, reinterpret_cast<P*>(at));
    }
  } else {
    P* cells = a.shape.cells_on_chip ? reinterpret_cast<P*>(take(2 * std::int64_t{sweep.all_cells} * sizeof(P)))
                                     : a.work.cells + b * 2 * sweep.all_cells;
    const P *matrix = a.work.scores.matrix[0], *thin = a.work.scores.thin[0];
    const SweepView<Index> view(sweep, sweep.hot, 0);
    both_ways<kThreads<kKeep>>(a, view, GeneralSteps<MaxPlus<P>, Index>{view, matrix, thin}, matrix, thin, cells, rows,
                               peak, reinterpret_cast<P*>(at));
  }
}

template <class P>
Work<P> cut_work(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, const Shape& s, bool may_redo) {
  const auto B = static_cast<std::size_t>(batch.size);
  Work<P> w{};
  w.scores = cut_prepared<P>(cutter, c, batch, false);
  w.kept =
      cutter.take<P>(static_cast<std::size_t>(batch.size * batch.length) * static_cast<std::size_t>(c.forward.cells));
  w.cells = cutter.take<P>(s.cells_on_chip ? 0 : B * 2 * static_cast<std::size_t>(c.forward.all_cells));
  w.redo = may_redo ? cutter.take<std::int32_t>(B) : nullptr;
  return w;
}

template <class P, class Index, Keep kKeep>
void launch(const Args<P>& args, cudaStream_t stream) {
  auto* kernel = viterbi_kernel<P, Index, kKeep>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, args.shape.bytes), "shared memory");
  kernel<<<static_cast<unsigned>(args.batch.size), kThreads<kKeep>, static_cast<std::size_t>(args.shape.bytes),
           stream>>>(args);
  check(cudaGetLastError(), "viterbi");
}

template <class P>
void run(const DeviceConstraint::Impl& c, const Batch& batch, const Best& best, const Work<P>& work, const Shape& s,
         const std::int32_t* only, cudaStream_t stream) {
  prepare<P>(c, batch, work.scores, Scale::log, false, best.status, nullptr, only, stream);
  const Args<P> args{c.forward, c.topology, batch, work, s, best, only};
  if (s.on_chip && sizeof(P) == 4 && c.forward.warps[1] > 0) {
    if constexpr (std::is_same_v<P, float>) launch<P, std::uint16_t, Keep::registers>(args, stream);
  } else if (s.on_chip) {
    launch<P, std::uint16_t, Keep::chip>(args, stream);
  } else if (c.forward.narrow) {
    launch<P, std::uint16_t, Keep::memory>(args, stream);
  } else {
    launch<P, std::int32_t, Keep::memory>(args, stream);
  }
}

struct Both {
  Shape shape, shape_double;
  Work<float> work;
  Work<double> work_double;
};
Both cut_both(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch) {
  Both both{};
  both.shape_double = shape_of<double>(c);
  both.work_double = cut_work<double>(cutter, c, batch, both.shape_double, false);
  if (batch.type == Type::f64) return both;
  both.shape = shape_of<float>(c);
  both.work = cut_work<float>(cutter, c, batch, both.shape, true);
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
