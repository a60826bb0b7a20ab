// Viterbi on a device. Two blocks a sequence walk towards each other, one from each end, in the max-plus semiring, and
// leave every step's scores in memory; each does half of the steps. A second kernel finds where the two halves of the
// best path meet, and two warps follow it outwards: each finds the next step again from the scores of its own state's
// slots, so no backpointer is ever written.
//
// In float, scores are kept relative to the best of the step before; three roundings a step on the path found and on
// the one that might have been better, each at most half a unit in the last place of the largest score seen. Where that
// is below the tolerance the path stands, else the sequence is done again in double. A path's score is summed again in
// double.
#include <algorithm>
#include <limits>

#include "inference/expectation_cuda.h"
#include "inference/prepare_cuda.h"
#include "inference/sweep_cuda.h"

namespace regccrf::cuda {

namespace {

constexpr int kTraceThreads = 512;

template <class P>
struct Work {
  Prepared<P> scores;
  P* kept[2];          // [B, steps, cells] forward and backward, by step
  double* largest;     // [B, 2] the largest score seen, in size
  P* cells;            // scratch where a block has no room
  std::int32_t* redo;  // [B] 1: to be done in double; null: this is double
};

struct Shape {
  int bytes, threads, trace_bytes;
  std::int32_t rows, steps;  // rows of emissions on chip; steps that a half may have
  bool resident, on_chip, cells_on_chip;
};

template <class P>
Shape shape_of(const DeviceConstraint::Impl& c, const Batch& batch) {
  const int p = sizeof(P);
  const auto cells_of = [&](const DeviceSweep& s) { return 2 * room_for(s.all_cells) * p; };
  const auto all_of = [&](const DeviceSweep& s) {
    return cells_of(s) + aligned((s.entries + 8) * std::int64_t{p}) + aligned(std::int64_t{s.thin} * s.thin_slots * p) +
           s.hot_bytes;
  };
  Shape s{};
  s.rows = rows_kept<P>(c.topology.K, batch.length / 2 + 1);
  s.steps = static_cast<std::int32_t>(batch.length / 2 + 1);
  const std::int64_t rows =
      Peak<std::int32_t>::kBytes + aligned((s.rows + 1) * (std::int64_t{c.topology.K} + 1) * p);  // one more, of zeros
  const std::int64_t cells = std::max(cells_of(c.forward), cells_of(c.backward)),
                     all = std::max(all_of(c.forward), all_of(c.backward));
  s.resident = sizeof(P) == 4 && c.forward.narrow && c.forward.kind >= 0 && rows + cells <= c.shared_bytes;
  s.on_chip = !s.resident && c.forward.narrow && rows + all <= c.shared_bytes;
  s.cells_on_chip = s.on_chip || rows + cells <= c.shared_bytes;
  s.bytes = static_cast<int>(rows + (s.on_chip ? all : s.cells_on_chip ? cells : 0));
  s.threads = 32 * std::max(c.forward.warps[s.resident], c.backward.warps[s.resident]);
  if (s.resident) s.trace_bytes = (c.forward.cells + c.backward.cells) * static_cast<int>(sizeof(RowOf));
  return s;
}

template <class P>
struct Args {
  DeviceSweep sweep[2];
  DeviceTopology topology;
  DeviceJoin join;
  Batch batch;
  Work<P> work;
  Shape shape;
  Best best;
  const std::int32_t* only;  // null: every sequence
};

// The position at which the two halves of a sequence meet; the steps from its begin, and from its end.
struct Halves {
  std::int32_t middle, steps[2];
  __device__ explicit Halves(std::int32_t T) : middle((T - 1) / 2), steps{middle, T - 1 - middle} {}
};

// --- towards the middle

// Integers ordered as floats are.
__device__ inline std::int32_t ordered(float x) {
  const std::int32_t bits = __float_as_int(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
__device__ inline float from_ordered(std::int32_t x) { return __int_as_float(x ^ ((x >> 31) & 0x7fffffff)); }

template <class P>
struct Emit {
  const P* row;
  P *next, *kept;
  P shift;
  P &top, &largest;

  __device__ P weight(std::uint32_t label) const { return value_of(row, label); }
  __device__ void store(std::uint32_t cell, P weight, P best) const {
    const P v = (best - shift) + weight;
    put(next, cell, v);
    if (kept) put(kept, cell, v);
    top = max(top, v);
    if constexpr (sizeof(P) == 4) largest = max(largest, v == -P{INFINITY} ? P{0} : abs(v));
  }
};

// Scores are relative in float only: what a step takes off is known to all from the block's peak.
template <class P, bool kBack, class Index, class Steps>
__device__ void walk(const Args<P>& a, const SweepView<Index>& view, const Steps& steps, P* now, P* next, P* room,
                     std::int32_t* peaks) {
  constexpr bool kRelative = sizeof(P) == 4;
  constexpr P none = -P{INFINITY};
  const std::int64_t b = blockIdx.x;
  const std::int32_t T = a.work.scores.length[b], K = view.K, last = Halves(T).steps[kBack];
  P* kept = a.work.kept[kBack] + b * a.shape.steps * view.cells;
  P* zeros = room;  // the step in the middle leaves out its emissions in one of the two directions
  Rows<P, kBack> rows(room + K + 1, a.shape.rows, a.work.scores.emissions + b * a.batch.length * (K + 1), K, T);
  const std::int32_t thread = thread_number();
  Peak<std::int32_t> peak(peaks, ordered(-INFINITY), thread);
  for (std::int32_t c = threadIdx.x; c <= view.cells + view.extras; c += blockDim.x) now[c] = next[c] = none;
  for (std::int32_t k = threadIdx.x; k <= K; k += blockDim.x) zeros[k] = k < K ? P{0} : none;
  rows.stage(0);
  const P* edge = kBack ? a.work.scores.end : a.work.scores.start;
  P top = none, largest = 0;
  const auto row_of = [&](std::int32_t n) { return kBack && n == last ? zeros : rows[n]; };
  const Emit<P> first{row_of(0), now, Steps::kResident ? nullptr : kept, P{0}, top, largest};
  for (std::int32_t o = threadIdx.x; o < view.outs; o += blockDim.x) {
    const std::int32_t label = view.label[o];
    if (label == K) continue;
    first.store(bytes_of<P>(view.stored[o]), first.weight(bytes_of<P>(label)),
                a.sweep[kBack].begins[o] ? edge[label] : none);
  }
  if constexpr (kRelative) peak.leave(0, ordered(static_cast<float>(top)));
  __syncthreads();

  for (std::int32_t n = 1; n <= last; ++n) {
    const auto loaded = steps.load(now);
    const std::int32_t seen = peak.of_a_warp(n - 1);
    if constexpr (Steps::kResident) copy_out(kept, now, view.cells, thread);
    kept += view.cells;
    if (!rows.staged(n)) rows.stage(n);
    if constexpr (!Steps::kResident) {
      if (view.extras) {
        steps.fill_extras(now);
        __syncthreads();
      }
    }
    auto sums = steps.multiply(loaded);
    P shift = 0;
    if constexpr (kRelative) {
      const P before = from_ordered(peak.of_all(seen));
      shift = before == none ? P{0} : before;
    }
    top = none;
    steps.finish(sums, now, Emit<P>{row_of(n), next, Steps::kResident ? nullptr : kept, shift, top, largest});
    if constexpr (kRelative) peak.leave(n, ordered(static_cast<float>(top)));
    __syncthreads();
    P* swap = now;
    now = next;
    next = swap;
  }
  if constexpr (Steps::kResident) copy_out(kept, now, view.cells, thread);
  if constexpr (kRelative) {
    peak.leave(last + 1, __float_as_int(static_cast<float>(largest)));
    __syncthreads();
    const float most = __int_as_float(peak.of_all(peak.of_a_warp(last + 1)));
    if (thread == 0) a.work.largest[2 * b + kBack] = static_cast<double>(most);
  }
}

template <class P, class Index, class Steps>
__device__ void walk_a_way(const Args<P>& a, const SweepView<Index>& view, const Steps& steps, P* cells, P* room,
                           std::int32_t* peaks) {
  P* next = cells + room_for(view.cells + 1 + view.extras);
  if (blockIdx.y) {
    walk<P, true>(a, view, steps, cells, next, room, peaks);
  } else {
    walk<P, false>(a, view, steps, cells, next, room, peaks);
  }
}

template <Keep kKeep, std::int32_t kKind>
constexpr int kThreads = kKeep == Keep::registers ? 32 * kResidentKinds[kKind].warps : 1024;

template <class P, class Index, Keep kKeep, std::int32_t kKind>
__global__ void __launch_bounds__(kThreads<kKeep, kKind>, 1) walk_kernel(const __grid_constant__ Args<P> a) {
  char* shared = shared_memory();
  const std::int64_t b = blockIdx.x;
  if ((a.only && !a.only[b]) || a.work.scores.length[b] == 0) return;
  const int back = blockIdx.y;
  const DeviceSweep& sweep = a.sweep[back];
  char* at = shared;
  const auto take = [&](std::int64_t bytes) {
    char* here = at;
    at += (bytes + 15) / 16 * 16;
    return here;
  };
  auto* peaks = reinterpret_cast<std::int32_t*>(take(Peak<std::int32_t>::kBytes));
  P* rows = reinterpret_cast<P*>(take((a.shape.rows + 1) * (std::int64_t{sweep.K} + 1) * std::int64_t{sizeof(P)}));
  const P *matrix = a.work.scores.matrix[back], *thin = a.work.scores.thin[back];
  if constexpr (kKeep == Keep::registers) {
    const SweepView<Index> view(sweep, sweep.hot, 1);
    constexpr ResidentKind kind = kResidentKinds[kKind];
    const ResidentSteps<MaxPlus<P>, Index, kind.slots, kind.repeats> steps(view, matrix, thin);
    walk_a_way(a, view, steps, reinterpret_cast<P*>(at), rows, peaks);
  } else {
    const std::int64_t most = room_for(max(a.sweep[0].all_cells, a.sweep[1].all_cells));
    P* cells = a.shape.cells_on_chip ? reinterpret_cast<P*>(at) : a.work.cells + (b * 2 + back) * 2 * most;
    with_general_steps<MaxPlus<P>, Index, kKeep>(
        sweep, matrix, thin, at, cells,
        [&](const auto& view, const auto& steps, P* there) { walk_a_way(a, view, steps, there, rows, peaks); });
  }
}

// --- and outwards again

// The block's largest, and of equals the one with the lowest number.
struct Candidate {
  double value;
  std::int32_t number;
  __device__ void take(Candidate other) {
    if (other.value > value || (other.value == value && other.number < number)) *this = other;
  }
};
__device__ Candidate block_best(Candidate mine) {
  __shared__ Candidate best[kTraceThreads / 32];
  const auto warp_best = [&] {
    for (int bit = 16; bit > 0; bit /= 2) {
      mine.take({__shfl_xor_sync(0xffffffffu, mine.value, bit), __shfl_xor_sync(0xffffffffu, mine.number, bit)});
    }
  };
  warp_best();
  if (threadIdx.x % 32 == 0) best[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = best[threadIdx.x % (kTraceThreads / 32)];
  warp_best();
  return mine;
}

// The best of a warp's candidates, and of equals the lowest cell.
__device__ inline std::int32_t warp_best(float value, std::int32_t cell) {
  const bool top = __reduce_max_sync(0xffffffffu, ordered(value)) == ordered(value);
  return __reduce_min_sync(0xffffffffu, top ? cell : 0x7fffffff);
}
__device__ inline std::int32_t warp_best(double value, std::int32_t cell) {
  for (int bit = 16; bit > 0; bit /= 2) {
    const double v = __shfl_xor_sync(0xffffffffu, value, bit);
    const std::int32_t c = __shfl_xor_sync(0xffffffffu, cell, bit);
    if (v > value || (v == value && c < cell)) value = v, cell = c;
  }
  return cell;
}

// The best cell of the step before, `now`, for an out; a number past all cells where there is none. One warp looks at
// the out's slots.
template <class P, class Index>
__device__ std::int32_t predecessor(const SweepView<Index>& view, std::int32_t groups, const P* matrix,
                                    const P* thin_matrix, const P* now, std::int32_t out) {
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
  if (out >= view.first_thin) {
    const std::int32_t i = out - view.first_thin;
    if (lane < view.thin_slots) offer_slot(view.thin_source[lane * view.thin + i], thin_matrix[lane * view.thin + i]);
  } else {
    std::int32_t g = 0;
    while (g + 1 < groups && out >= view.group[g + 1].first_out) ++g;
    const SweepGroup group = view.group[g];
    const std::int32_t state = (out - group.first_out) / group.width, o = out - group.first_out - state * group.width;
    for (std::int32_t i = lane; i < group.slots; i += 32) {
      offer_slot(view.source[group.first_source + state * group.slots + i],
                 matrix[group.first_entry + i * group.width + o]);
    }
  }
  return warp_best(best, from);
}

// From the middle to one end: a warp follows the path from the cell where it is after the last step of that half.
template <class P>
struct Half {
  const DeviceSweep& sweep;
  const P *matrix, *thin, *kept;
  std::int32_t* path;
  std::int32_t steps, direction;

  __device__ Half(const Args<P>& a, int back, std::int32_t T)
      : sweep(a.sweep[back]),
        matrix(a.work.scores.matrix[back]),
        thin(a.work.scores.thin[back]),
        kept(a.work.kept[back] + std::int64_t{blockIdx.x} * a.shape.steps * std::int64_t{sweep.cells}),
        path(a.best.labels + std::int64_t{blockIdx.x} * a.batch.length + (back ? T - 1 : 0)),
        steps(Halves(T).steps[back]),
        direction(back ? -1 : 1) {}
  __device__ void write(std::int32_t n, std::int32_t label) const {
    if (threadIdx.x % 32 == 0) path[direction * n] = label;
  }
};

// By the tables of the general schedule.
template <class P, class Index>
__device__ void follow(const Half<P>& half, std::int32_t cell) {
  const SweepView<Index> view(half.sweep, half.sweep.hot, 0);
  for (std::int32_t n = half.steps; cell < view.cells; --n) {  // past all cells: scores that are no numbers
    const std::int32_t out = view.out_of[cell];
    half.write(n, view.label[out]);
    if (n == 0) return;
    cell =
        predecessor(view, half.sweep.groups, half.matrix, half.thin, half.kept + std::int64_t{n - 1} * view.cells, out);
  }
}

// The same after a resident walk, whose cells lie in rows (sweep.h): a few loads that need not wait for one another.
// `row_of`: on chip.
template <class P, class Index>
__device__ void follow_rows(const Half<P>& half, const RowOf* row_of, std::int32_t cell) {
  const SweepView<Index> view(half.sweep, half.sweep.hot, 0);
  const std::int32_t lane = threadIdx.x % 32;
  const P none = -P{INFINITY};
  std::int32_t group_at = -1;
  SweepGroup group{};
  for (std::int32_t n = half.steps; cell < view.cells; --n) {
    const RowOf at = row_of[cell];
    half.write(n, at.label);
    if (n == 0) return;
    const P* now = half.kept + std::int64_t{n - 1} * view.cells;
    P best = none;
    std::int32_t from = 0x7fffffff;
    const auto offer = [&](P value, std::int32_t source) {
      if (value > best || (value == best && source < from)) best = value, from = source;
    };
    if (at.group == kThinGroup) {
      if (lane < view.thin_slots) {
        const std::int32_t i = lane * view.thin + at.entry;
        const Pair<Index> source = view.thin_source[i];
        const P gain = half.thin[i];
        if (source.x < view.cells) offer(now[source.x] + gain, source.x);
        if (source.y < view.cells) offer(now[source.y] + gain, source.y);
      }
    } else {
      if (at.group != group_at) group = view.group[group_at = at.group];
      const std::int32_t plane = group.states * group.stride;
      for (std::int32_t first = lane; first < group.slots; first += 64) {
        P value[4];
        std::int32_t source[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const std::int32_t i = first + k % 2 * 32;
          const bool there = i < group.slots && k / 2 < group.planes;
          source[k] = at.row + i + k / 2 * plane;
          value[k] = there ? now[source[k]] + half.matrix[at.entry + i * group.width] : none;
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) offer(value[k], source[k]);
      }
    }
    cell = warp_best(best, from);
  }
}

// The cells, forward and backward, that the best path has at the middle; -1: there is no path.
struct Meeting {
  std::int32_t cell[2];
};
template <class P>
__device__ Meeting meet(const Args<P>& a, std::int32_t T) {
  const DeviceJoin& join = a.join;
  const Halves halves(T);
  const auto kept = [&](int back) {
    return a.work.kept[back] +
           (std::int64_t{blockIdx.x} * a.shape.steps + halves.steps[back]) * std::int64_t{a.sweep[back].cells};
  };
  const P *delta = kept(0), *x = kept(1);
  // The best forward cell that flows into an arrival.
  const auto each_cell = [&](std::int32_t k, const JoinArrival& arrival, const auto& act) {
    if (arrival.x < join.forward_cells) act(arrival.x);
    if (arrival.y < join.forward_cells) act(arrival.y);
    for (std::int32_t i = join.arrival_begin ? join.arrival_begin[k] : 0;
         join.arrival_begin && i < join.arrival_begin[k + 1]; ++i)
      act(join.arrival_source[i]);
  };
  Candidate best{-INFINITY, 0x7fffffff};
#pragma unroll 2
  for (std::int32_t k = threadIdx.x; k < 32 * join.rounds; k += kTraceThreads) {
    const JoinArrival arrival = join.arrival[k];
    if (arrival.cell == join.backward_cells) continue;  // padding
    P in = -P{INFINITY};
    each_cell(k, arrival, [&](std::int32_t cell) { in = max(in, delta[cell]); });
    best.take({static_cast<double>(in) + static_cast<double>(x[arrival.cell]), k});
  }
  best = block_best(best);
  if (!(best.value > -INFINITY)) return {{-1, -1}};
  const JoinArrival arrival = join.arrival[best.number];
  std::int32_t from = -1;
  each_cell(best.number, arrival,
            [&](std::int32_t cell) { from = from < 0 || delta[cell] > delta[from] ? cell : from; });
  return {{from, arrival.cell}};
}

template <class P, class Index>
__global__ void __launch_bounds__(kTraceThreads) trace_kernel(const __grid_constant__ Args<P> a) {
  char* shared = shared_memory();
  const std::int64_t b = blockIdx.x;
  if (a.only && !a.only[b]) return;
  const std::int32_t T = a.work.scores.length[b];
  std::int32_t* path = a.best.labels + b * a.batch.length;
  Status& status = a.best.status[b];
  for (std::int64_t t = threadIdx.x; t < a.batch.length; t += kTraceThreads) path[t] = -1;
  if (threadIdx.x == 0) {
    if (a.work.redo) a.work.redo[b] = 0;
    if (*a.work.scores.bad) status.outcome = static_cast<std::int32_t>(Outcome::bad_transition);
  }
  auto* row_of = reinterpret_cast<RowOf*>(shared);
  if (a.shape.resident) {
    for (int way = 0; way < 2; ++way)
      copy_in(shared + way * a.sweep[0].cells * sizeof(RowOf), reinterpret_cast<const char*>(a.sweep[way].row_of),
              a.sweep[way].cells * static_cast<std::int32_t>(sizeof(RowOf)));
  }
  __syncthreads();
  const Meeting meeting = T > 0 ? meet(a, T) : Meeting{{-1, -1}};
  if (meeting.cell[0] < 0) {
    if (threadIdx.x != 0) return;
    const bool empty = T == 0 && a.topology.empty;
    a.best.score[b] = empty ? 0 : -INFINITY;
    if (!empty && status.outcome == 0) status.outcome = static_cast<std::int32_t>(Outcome::impossible);
    return;
  }
  const int back = static_cast<int>(threadIdx.x) / 32;
  if (back < 2) {
    const Half<P> half(a, back, T);
    if (a.shape.resident) {
      follow_rows<P, Index>(half, row_of + back * a.sweep[0].cells, meeting.cell[back]);
    } else {
      follow<P, Index>(half, meeting.cell[back]);
    }
  }
  __syncthreads();
  const std::int64_t* row = a.work.scores.row + b * a.batch.length;
  const double score =
      block_sum<kTraceThreads>(path_score(a.batch, a.topology.K, T, row, [&](std::int32_t t) { return path[t]; }));
  if (threadIdx.x != 0) return;
  a.best.score[b] = score;
  if (!a.work.redo) return;
  const double step = 1.5 * fmax(a.work.largest[2 * b], a.work.largest[2 * b + 1]) *
                      static_cast<double>(std::numeric_limits<float>::epsilon());
  if (2 * step * (T + 1) > 0.5e-5 * fmax(1.0, fabs(score))) a.work.redo[b] = 1;
}

// --- the call

template <class P>
Work<P> cut_work(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, const Shape& s, bool may_redo) {
  const auto B = static_cast<std::size_t>(batch.size), steps = static_cast<std::size_t>(s.steps);
  const auto most = static_cast<std::size_t>(room_for(std::max(c.forward.all_cells, c.backward.all_cells)));
  Work<P> w{};
  w.scores = cut_prepared<P>(cutter, c, batch, true);
  for (int back = 0; back < 2; ++back)
    w.kept[back] = cutter.take<P>(B * steps * static_cast<std::size_t>((back ? c.backward : c.forward).cells));
  w.largest = cutter.take<double>(2 * B);
  w.cells = cutter.take<P>(s.cells_on_chip ? 0 : B * 4 * most);
  w.redo = may_redo ? cutter.take<std::int32_t>(B) : nullptr;
  return w;
}

template <class P, class Index, Keep kKeep, std::int32_t kKind = 0>
void launch(const Args<P>& args, cudaStream_t stream) {
  const auto B = static_cast<unsigned>(args.batch.size);
  launch_kernel(walk_kernel<P, Index, kKeep, kKind>, dim3(B, 2), static_cast<unsigned>(args.shape.threads),
                args.shape.bytes, stream, args, "viterbi");
  launch_kernel(trace_kernel<P, Index>, B, kTraceThreads, args.shape.trace_bytes, stream, args, "viterbi");
}

template <class P>
void run(const DeviceConstraint::Impl& c, const Batch& batch, const Best& best, const Work<P>& work, const Shape& s,
         const std::int32_t* only, cudaStream_t stream) {
  prepare<P>(c, batch, work.scores, Scale::log, true, best.status, nullptr, only, stream);
  const Args<P> args{{c.forward, c.backward}, c.topology, c.join, batch, work, s, best, only};
  if (args.shape.resident) {
    if constexpr (sizeof(P) == 4) {
      if (c.forward.kind == 0) launch<P, std::uint16_t, Keep::registers, 0>(args, stream);
      if (c.forward.kind == 1) launch<P, std::uint16_t, Keep::registers, 1>(args, stream);
      if (c.forward.kind == 2) launch<P, std::uint16_t, Keep::registers, 2>(args, stream);
    }
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
  both.shape_double = shape_of<double>(c, batch);
  both.work_double = cut_work<double>(cutter, c, batch, both.shape_double, false);
  if (batch.type == Type::f64) return both;
  both.shape = shape_of<float>(c, batch);
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
