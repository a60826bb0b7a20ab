// Viterbi on a device. Two blocks a sequence walk towards each other, one from each end, and leave every step's scores
// in memory; each does half of the steps. Under a large automaton they are two clusters. The block that comes last
// finds where the two halves of the best path meet, and two of its warps follow it outwards: each finds the next step
// again from the scores of its own state's slots, so no backpointer is ever written.
//
// Small automata go the way of viterbi_integer.cu where the device has clusters; all others that of this file, in
// float. Scores are then kept relative to the best of the step before; three roundings a step on the path found and on
// the one that might have been better, each at most half a unit in the last place of the largest number seen. Where
// that is below the tolerance the path stands; else, and where the other way says so, the sequence is done again in
// double. A path's score is summed again in double.
#include <algorithm>
#include <limits>

#include "inference/cuda/decode/candidate.h"
#include "inference/cuda/decode/viterbi.h"
#include "inference/cuda/step/scan.h"
#include "inference/cuda/step/walk.h"

namespace regccrf::cuda {

namespace {

constexpr int kMostThreads = 1024;

// P: of the walk. Score: of the prepared scores, which float holds exactly where the caller's are no larger.
template <class P>
struct ViterbiMemory {
  P* saved[2];      // [B, steps, cells] forward and backward, by step
  double* largest;  // [B, 2, blocks] the largest number seen, in size
  P* cells;         // scratch where a block has no room
};

std::int32_t steps_of_half(const Batch& batch) { return static_cast<std::int32_t>(batch.length / 2 + 1); }

template <class P>
WalkShape shape_of(const DeviceConstraint::Impl& c, const Batch& batch) {
  return walk_shape<P, std::int32_t>(c, {.rows = rows_in_shared<P>(c, steps_of_half(batch)),
                                         .zeros = 1,
                                         .together = 2 * batch.size,
                                         .least_warps = 2});  // two follow the path
}

template <class P, class Score>
struct ViterbiArgs {
  DeviceStep layout[2];
  DeviceTopology topology;
  Batch batch;
  Prepared<Score> scores;
  ViterbiMemory<P> work;
  WalkShape shape;
  std::int32_t steps;  // that a half may have
  Best best;
  const std::int32_t* only;  // [B] 1: to be done; null: every sequence
  std::int32_t* redo;        // [B] 1: to be done in double; null: this is double
};

// --- towards the middle

template <class P, class Team>
struct Emit {
  const Team& team;
  const P* row;
  P *next, *saved;
  P shift;
  P &top, &largest;

  __device__ P weight(std::uint32_t label) const { return value_of(row, label); }
  template <class Place>
  __device__ void send(const Place& place, P weight, P best) const {
    const P relative = best - shift, v = relative + weight;
    team.put(next, place, v);
    saved[place.cell] = v;
    top = max(top, v);
    if constexpr (sizeof(P) == 4) {
      if (v != -P{INFINITY}) largest = max(max(largest, abs(v)), max(abs(best), abs(relative)));
    }
  }
};

// Scores are relative in float only: what a step subtracts is known to all from the team's peak.
template <bool kBack, class P, class Score, class View, class Steps>
__device__ void walk(const ViterbiArgs<P, Score>& a, const View& view, const Steps& steps, P* now, P* next, P* room,
                     char* team_memory) {
  using Team = typename View::template Team<P, std::int32_t>;
  constexpr bool kRelative = sizeof(P) == 4;
  constexpr P none = -P{INFINITY};
  Team team(team_memory, ordered(-INFINITY), thread_number(), view);
  const std::int64_t b = team.sequence();
  const std::int32_t T = a.scores.length[b], K = view.K, last = Halves(T).steps[kBack];
  P* saved = a.work.saved[kBack] + b * a.steps * view.cells;
  P* zeros = room;  // the step in the middle leaves out its emissions in one of the two directions
  const auto as_it_is = [](Score score, std::int32_t) { return static_cast<P>(score); };
  EmissionRows<P, kBack, Score, decltype(as_it_is)> rows(
      room + K + 1, a.shape.rows, a.scores.emissions + b * a.batch.length * (K + 1), K, T, as_it_is);
  for (std::int32_t c = threadIdx.x; c < view.step_cells(); c += blockDim.x) now[c] = next[c] = none;
  for (std::int32_t k = threadIdx.x; k <= K; k += blockDim.x) zeros[k] = k < K ? P{0} : none;
  rows.stage(0);
  __syncthreads();
  team.begin();
  const Score* edge = kBack ? a.scores.end : a.scores.start;
  P top = none, largest = 0;
  const auto row_of = [&](std::int32_t n) {
    const P* row = rows.next();
    return kBack && n == last ? zeros : row;
  };
  const auto end_step = [&](std::int32_t n) { team.end_step(n, kRelative ? ordered(static_cast<float>(top)) : 0); };
  const Emit<P, Team> first{team, row_of(0), now, saved, P{0}, top, largest};
  for (std::int32_t o = team.first(); o < view.outs; o += team.stride()) {
    const auto place = view.place(o);
    if (place.label == K) continue;
    first.send(place, first.weight(bytes_of<P>(place.label)),
               a.layout[kBack].begins[place.out] ? static_cast<P>(edge[place.label]) : none);
  }
  end_step(0);

  for (std::int32_t n = 1; n <= last; ++n) {
    saved += view.cells;
    if (!rows.staged(n)) {
      rows.stage(n);
      __syncthreads();
    }
    if (view.fan_ins) {
      steps.sum_fan_ins(now);
      __syncthreads();
    }
    P shift = 0;
    if constexpr (kRelative) {
      const P before = from_ordered(team.peak(team.load_peak(n - 1)));
      shift = before == none ? P{0} : before;
    }
    top = none;
    steps.finish({}, now, Emit<P, Team>{team, row_of(n), next, saved, shift, top, largest});
    end_step(n);
    P* swap = now;
    now = next;
    next = swap;
  }
  if constexpr (kRelative) {
    const float most = __int_as_float(team.of_block(last + 1, __float_as_int(static_cast<float>(largest))));
    if (team.thread() == 0) a.work.largest[(2 * b + kBack) * a.shape.blocks + team.rank()] = static_cast<double>(most);
  }
}

// --- and outwards again

// The best of a warp's candidates, and of equals the lowest cell.
__device__ inline std::int32_t warp_best(float value, std::int32_t cell) {
  const bool top = reduce_max(ordered(value)) == ordered(value);
  return reduce_min(top ? cell : 0x7fffffff);
}
__device__ inline std::int32_t warp_best(double value, std::int32_t cell) {
  return warp_best(Candidate{value, cell}).number;
}

// The best cell of the step before, `now`, for an out; a number past all cells where there is none. One warp looks at
// the out's slots.
template <class P, class Score>
__device__ std::int32_t predecessor(const DeviceStep& layout, const Score* matrix, const Score* sparse_matrix,
                                    const P* now, std::int32_t out) {
  const std::int32_t lane = threadIdx.x % 32;
  P best = -P{INFINITY};
  std::int32_t from = 0x7fffffff;
  const auto offer = [&](std::int32_t source, Score gain) {
    if (source == layout.cells) return;  // the zero
    const P v = now[source] + static_cast<P>(gain);
    if (v > best || (v == best && source < from)) best = v, from = source;
  };
  const auto offer_slot = [&](const Source& sources, Score gain) {
    if (sources.x > layout.cells) {
      const std::int32_t fan_in = sources.x - layout.cells - 1;
      for (std::int32_t j = layout.fan_in_begin[fan_in]; j < layout.fan_in_begin[fan_in + 1]; ++j)
        offer(layout.fan_in_source[j], gain);
      return;
    }
    offer(sources.x, gain);
    offer(sources.y, gain);
  };
  if (out >= layout.first_sparse) {
    const std::int32_t i = out - layout.first_sparse;
    if (lane < layout.sparse_slots)
      offer_slot(layout.sparse_source[lane * layout.sparse + i], sparse_matrix[lane * layout.sparse + i]);
  } else {
    std::int32_t g = 0;
    while (g + 1 < layout.groups && out >= layout.group[g + 1].first_out) ++g;
    const DenseGroup group = layout.group[g];
    const std::int32_t state = (out - group.first_out) / group.width, o = out - group.first_out - state * group.width;
    for (std::int32_t i = lane; i < group.slots; i += 32) {
      offer_slot(layout.source[group.first_source + state * group.slots + i],
                 matrix[group.first_entry + i * group.width + o]);
    }
  }
  return warp_best(best, from);
}

// From the middle to one end: a warp follows the path from the cell where it is after the last step of that half.
template <class P, class Score>
__device__ void follow(const ViterbiArgs<P, Score>& a, std::int64_t b, int back, std::int32_t T, std::int32_t cell,
                       std::int32_t* path) {
  const DeviceStep& layout = a.layout[back];
  const P* saved = a.work.saved[back] + b * a.steps * layout.cells;
  for (std::int32_t n = Halves(T).steps[back]; cell < layout.cells;
       --n) {  // past all cells: scores that are no numbers
    const std::int32_t out = layout.out_of[cell];
    if (threadIdx.x % 32 == 0) path[back ? T - 1 - n : n] = layout.label[out];
    if (n == 0) return;
    cell = predecessor(layout, a.scores.matrix[back], a.scores.sparse[back], saved + std::int64_t{n - 1} * layout.cells,
                       out);
  }
}

template <class P, class Score>
__device__ MiddleCells find_middle(const ViterbiArgs<P, Score>& a, std::int64_t b, std::int32_t T) {
  const DeviceTopology& top = a.topology;
  const Halves halves(T);
  const auto saved = [&](int back) {
    return a.work.saved[back] + (b * a.steps + halves.steps[back]) * std::int64_t{a.layout[back].cells};
  };
  const P *delta = saved(0), *x = saved(1);
  Candidate best{-INFINITY, 0x7fffffff};
#pragma unroll 2
  for (std::int32_t m = threadIdx.x; m < top.arrivals; m += blockDim.x) {
    P in = -P{INFINITY};
    for (std::int32_t i = top.into_begin[m]; i < top.into_begin[m + 1]; ++i) in = max(in, delta[top.into_cell[i]]);
    best.take({static_cast<double>(in) + static_cast<double>(x[top.arrival_cell[m]]), m});
  }
  best = block_best<kMostThreads>(best);
  if (!(best.value > -INFINITY)) return {{-1, -1}};
  std::int32_t from = -1;
  for (std::int32_t i = top.into_begin[best.number]; i < top.into_begin[best.number + 1]; ++i) {
    const std::int32_t cell = top.into_cell[i];
    from = from < 0 || delta[cell] > delta[from] ? cell : from;
  }
  return {{from, top.arrival_cell[best.number]}};
}

// Both halves of a sequence are there: its answer.
template <class P, class Score>
__device__ void answer(const ViterbiArgs<P, Score>& a, std::int64_t b, std::int32_t T) {
  const Answer answer(a.best, a.batch, b, T, a.topology.K);
  answer.clear_path(0);
  if (threadIdx.x < 32) answer.write_status(a.scores);
  if (threadIdx.x == 0 && a.redo) a.redo[b] = 0;
  __syncthreads();
  const MiddleCells middle = T > 0 ? find_middle(a, b, T) : MiddleCells{{-1, -1}};
  if (middle.cell[0] < 0) return answer.no_path(a.topology.empty);
  const int back = static_cast<int>(threadIdx.x) / 32;
  if (back < 2) follow(a, b, back, T, middle.cell[back], answer.path);
  const double score = answer.score<kMostThreads>(a.scores.row);
  if (threadIdx.x != 0 || !a.redo) return;
  double largest = 0;
  for (std::int32_t n = 0; n < 2 * a.shape.blocks; ++n)
    largest = fmax(largest, a.work.largest[2 * b * a.shape.blocks + n]);
  const double step = 1.5 * largest * static_cast<double>(std::numeric_limits<float>::epsilon());
  if (2 * step * (T + 1) > kTolerance * fmax(1.0, fabs(score))) a.redo[b] = 1;
}

template <Storage kStorage>
constexpr int kThreads = kStorage == Storage::cluster ? 32 * kClusterWarps : kMostThreads;

template <class P, class Score, Storage kStorage>
__global__ void __launch_bounds__(kThreads<kStorage>, 1) walk_kernel(const __grid_constant__ ViterbiArgs<P, Score> a) {
  wait_for_prior_kernel();
  const std::int32_t blocks = kStorage == Storage::cluster ? a.shape.blocks : 1;
  const std::int64_t b = static_cast<std::int32_t>(blockIdx.x) / blocks;
  if (a.only && !a.only[b]) return;
  const std::int32_t T = a.scores.length[b];
  const int back = blockIdx.y;
  if (T > 0) {
    const DeviceStep& layout = a.layout[back];
    const WalkShared<P, std::int32_t, kStorage> shared(a.shape.rows + 1, layout.K);
    P* cells = a.shape.cells_on_chip ? reinterpret_cast<P*>(shared.rest)
                                     : a.work.cells + (b * 2 + back) * cells_in_memory(a.layout[0], a.layout[1]);
    with_general_steps<MaxPlus<P>, kStorage>(
        layout, blocks, a.scores.matrix[back], a.scores.sparse[back], [&](const auto& view, const auto& steps) {
          P* next = cells + padded_cells(view.step_cells());
          if (back) {
            walk<true>(a, view, steps, cells, next, shared.rows, shared.team_memory);
          } else {
            walk<false>(a, view, steps, cells, next, shared.rows, shared.team_memory);
          }
        });
  }
  if (!is_last_block(a.scores.blocks_done + b, static_cast<std::uint32_t>(2 * blocks))) return;
  answer(a, b, T);
}

// --- the call

template <class P>
ViterbiMemory<P> allocate_memory(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch) {
  const WalkShape s = shape_of<P>(c, batch);
  const std::int64_t B = batch.size, steps = steps_of_half(batch);
  ViterbiMemory<P> w{};
  for (int back = 0; back < 2; ++back)
    w.saved[back] = arena.allocate<P>(B * steps * std::int64_t{(back ? c.backward : c.forward).cells});
  w.largest = arena.allocate<double>(2 * B * std::int64_t{s.blocks});
  w.cells = arena.allocate<P>(s.cells_on_chip ? 0 : 2 * B * cells_in_memory(c.forward, c.backward));
  return w;
}

template <class P, class Score>
void run(const DeviceConstraint::Impl& c, const Batch& batch, const Best& best, const Prepared<Score>& scores,
         const ViterbiMemory<P>& work, const std::int32_t* only, std::int32_t* redo, cudaStream_t stream) {
  const WalkShape s = shape_of<P>(c, batch);
  const ViterbiArgs<P, Score> args{{c.forward, c.backward}, c.topology, batch, scores, work, s,
                                   steps_of_half(batch),    best,       only,  redo};
  const LaunchShape launch{.x = batch.size * s.blocks,
                           .y = 2,
                           .threads = s.threads,
                           .bytes = s.bytes,
                           .programmatic = c.programmatic,
                           .cluster = s.blocks};
  const bool in_cluster = s.storage == Storage::cluster;
  launch_kernel(in_cluster ? walk_kernel<P, Score, Storage::cluster> : walk_kernel<P, Score, Storage::memory>, launch,
                stream, args, "viterbi");
}

// What is done again finds its memory where the first attempt had its own.
struct ViterbiPlan {
  bool in_double, in_registers;
  Prepared<double> scores_double;
  Prepared<float> scores;
  std::int32_t* redo;
  IntegerMemory integer_memory;
  ViterbiMemory<float> work;
  ViterbiMemory<double> work_double;
  std::size_t bytes;
};
ViterbiPlan plan_of(Memory memory, const DeviceConstraint::Impl& c, const Batch& batch) {
  Arena arena(memory);
  ViterbiPlan plan{};
  plan.in_double = batch.type() == Type::f64 || batch.emissions.type == Type::f64;
  if (plan.in_double) {
    plan.scores_double = allocate_prepared<double>(arena, c, batch, true);
  } else {
    plan.scores = allocate_prepared<float>(arena, c, batch, true);
    plan.redo = arena.allocate<std::int32_t>(batch.size);
  }
  Arena again = arena;
  plan.work_double = allocate_memory<double>(again, c, batch);
  plan.in_registers = !plan.in_double && integer_fits(c, batch);
  if (plan.in_registers) {
    plan.integer_memory = allocate_integer(arena, c, batch);
  } else if (!plan.in_double) {
    plan.work = allocate_memory<float>(arena, c, batch);
  }
  plan.bytes = std::max(arena.used(), again.used());
  return plan;
}

}  // namespace

std::size_t viterbi_bytes(const DeviceConstraint& constraint, const Batch& batch) {
  const Pieces pieces = choose_pieces(constraint, batch, viterbi_costs(constraint.impl().topology.nodes));
  if (pieces.count > 1) return viterbi_bytes(constraint, batch, pieces);
  return plan_of(Memory{}, constraint.impl(), batch).bytes;
}

void viterbi(const DeviceConstraint& constraint, const Batch& batch, const Best& best, Memory memory, void* stream) {
  check_batch("viterbi", batch);
  if (batch.size == 0) return;
  const Pieces pieces = choose_pieces(constraint, batch, viterbi_costs(constraint.impl().topology.nodes));
  if (pieces.count > 1) return viterbi(constraint, batch, best, pieces, memory, stream);
  const DeviceConstraint::Impl& c = constraint.impl();
  const ViterbiPlan plan = plan_of(memory, c, batch);
  const auto s = static_cast<cudaStream_t>(stream);
  if (plan.in_double) {
    prepare(c, batch, plan.scores_double, Scale::log, nullptr, s);
    return run(c, batch, best, plan.scores_double, plan.work_double, nullptr, nullptr, s);
  }
  prepare(c, batch, plan.scores, Scale::log, nullptr, s);
  if (plan.in_registers) {
    run_integer(c, batch, best, plan.scores, plan.integer_memory, plan.redo, s);
  } else {
    run(c, batch, best, plan.scores, plan.work, nullptr, plan.redo, s);
  }
  run(c, batch, best, plan.scores, plan.work_double, plan.redo, nullptr, s);
}

}  // namespace regccrf::cuda
