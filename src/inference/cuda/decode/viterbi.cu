// Viterbi on a device. Two blocks a sequence walk towards each other, one from each end, and leave every step's scores
// in memory; each does half of the steps. Under a large automaton they are two clusters. The block that comes last
// finds where the two halves of the best path meet, and two of its warps follow it outwards: each finds the next step
// again from the scores of its own state's slots, so no backpointer is ever written.
//
// Small automata go the way of viterbi_integer.cu where the device has clusters; what it is not sure of is done again
// here. All others go this way at once. It is in double, so that no path is lost by rounding.
#include <algorithm>

#include "inference/cuda/decode/candidate.h"
#include "inference/cuda/decode/viterbi.h"
#include "inference/cuda/step/scan.h"
#include "inference/cuda/step/walk.h"

namespace regccrf::cuda {

namespace {

constexpr int kMostThreads = 1024;

struct ViterbiMemory {
  double* saved[2];  // [B, steps, cells] forward and backward, by step
  double* cells;     // scratch where a block has no room
};

std::int32_t steps_of_half(const Batch& batch) { return static_cast<std::int32_t>(batch.length / 2 + 1); }

WalkShape shape_of(const DeviceConstraint::Impl& c, const Batch& batch) {
  return walk_shape<double>(c, {.rows = rows_in_shared<double>(c, steps_of_half(batch)),
                                .zeros = 1,
                                .together = 2 * batch.size,
                                .least_warps = 2});  // two follow the path
}

// Score: of the prepared scores, which float holds exactly where the caller's are no larger.
template <class Score>
struct ViterbiArgs {
  DeviceStep layout[2];
  DeviceTopology topology;
  Batch batch;
  Prepared<Score> scores;
  ViterbiMemory work;
  WalkShape shape;
  std::int32_t steps;  // that a half may have
  Best best;
  const std::int32_t* only;  // [B] 1: to be done; null: every sequence
};

// --- towards the middle

template <class Team>
struct Epilogue {
  const Team& team;
  const double* row;
  double *next, *saved;

  __device__ double weight(std::uint32_t label) const { return value_of(row, label); }
  template <class Place>
  __device__ void send(const Place& place, double weight, double best) const {
    const double v = best + weight;
    team.put(next, place, v);
    saved[place.cell] = v;
  }
};

template <bool kBack, class Score, class View, class Steps>
__device__ void walk(const ViterbiArgs<Score>& a, const View& view, const Steps& steps, double* now, double* next,
                     double* room, char* team_memory) {
  using Team = TeamOf<double, View>;
  Team team(team_memory, thread_number(), view);
  const std::int64_t b = team.sequence();
  const std::int32_t T = a.scores.length[b], K = view.K, last = Halves(T).steps[kBack];
  double* saved = a.work.saved[kBack] + b * a.steps * view.cells;
  double* zeros = room;  // the step in the middle leaves out its emissions in one of the two directions
  const auto as_it_is = [](Score score, std::int32_t) { return static_cast<double>(score); };
  EmissionRows<double, kBack, Score, decltype(as_it_is)> rows(
      room + K + 1, a.shape.rows, a.scores.emissions + b * a.batch.length * (K + 1), K, T, as_it_is);
  for (std::int32_t c = threadIdx.x; c < view.step_cells(); c += blockDim.x) now[c] = next[c] = -INFINITY;
  for (std::int32_t k = threadIdx.x; k <= K; k += blockDim.x) zeros[k] = k < K ? 0 : -INFINITY;
  rows.stage(0);
  __syncthreads();
  team.begin();
  const Score* edge = kBack ? a.scores.end : a.scores.start;
  const auto row_of = [&](std::int32_t n) {
    const double* row = rows.next();
    return kBack && n == last ? zeros : row;
  };
  const Epilogue<Team> first{team, row_of(0), now, saved};
  for (std::int32_t o = team.first(); o < view.outs; o += team.stride()) {
    const auto place = view.place(o);
    if (place.label == K) continue;
    first.send(place, first.weight(bytes_of<double>(place.label)),
               a.layout[kBack].begins[place.out] ? static_cast<double>(edge[place.label]) : -INFINITY);
  }
  team.end_step(0, 0);

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
    steps.finish({}, now, Epilogue<Team>{team, row_of(n), next, saved});
    team.end_step(n, 0);
    double* swap = now;
    now = next;
    next = swap;
  }
}

// --- and outwards again

// The best cell of the step before, `now`, for a cell whose slots are these; a number past all cells where there is
// none. One warp looks at the slots.
template <class Score>
__device__ std::int32_t predecessor(const DeviceStep& layout, const Score* matrix, const Score* sparse_matrix,
                                    const double* now, const CellSlots& at) {
  Candidate best{-INFINITY, 0x7fffffff};
  const auto offer = [&](std::int32_t cell, Score gain) {
    if (cell != layout.cells) best.take({now[cell] + static_cast<double>(gain), cell});  // else the zero
  };
  const Source* source = (at.sparse ? layout.sparse_source : layout.source) + at.first_source;
  const Score* gain = (at.sparse ? sparse_matrix : matrix) + at.first_entry;
  for (std::int32_t i = threadIdx.x % 32; i < at.slots; i += 32) {
    const Source from = source[i * at.source_stride];
    const Score g = gain[i * at.entry_stride];
    if (from.x > layout.cells) {
      const std::int32_t fan_in = from.x - layout.cells - 1;
      for (std::int32_t j = layout.fan_in_begin[fan_in]; j < layout.fan_in_begin[fan_in + 1]; ++j)
        offer(layout.fan_in_source[j], g);
    } else {
      offer(from.x, g);
      offer(from.y, g);
    }
  }
  return warp_best(best).number;
}

// From the middle to one end: a warp follows the path from the cell where it is after the last step of that half.
template <class Score>
__device__ void follow(const ViterbiArgs<Score>& a, std::int64_t b, int back, std::int32_t T, std::int32_t cell,
                       std::int32_t* path) {
  const DeviceStep& layout = a.layout[back];
  const double* saved = a.work.saved[back] + b * a.steps * layout.cells;
  for (std::int32_t n = Halves(T).steps[back]; cell < layout.cells; --n) {  // else scores that are no numbers
    const CellSlots at = layout.slots_of[cell];
    if (threadIdx.x % 32 == 0) path[back ? T - 1 - n : n] = at.label;
    if (n == 0) return;
    cell = predecessor(layout, a.scores.matrix[back], a.scores.sparse[back], saved + std::int64_t{n - 1} * layout.cells,
                       at);
  }
}

// The cells, forward and backward, that the best path has at the middle; -1: there is no path.
struct MiddleCells {
  std::int32_t cell[2];
};
template <class Score>
__device__ MiddleCells find_middle(const ViterbiArgs<Score>& a, std::int64_t b, std::int32_t T) {
  const DeviceTopology& top = a.topology;
  const Halves halves(T);
  const auto saved = [&](int back) {
    return a.work.saved[back] + (b * a.steps + halves.steps[back]) * std::int64_t{a.layout[back].cells};
  };
  const double *delta = saved(0), *x = saved(1);
  Candidate best{-INFINITY, 0x7fffffff};
#pragma unroll 2
  for (std::int32_t m = threadIdx.x; m < top.arrivals; m += blockDim.x) {
    double in = -INFINITY;
    for (std::int32_t i = top.into_begin[m]; i < top.into_begin[m + 1]; ++i) in = fmax(in, delta[top.into_cell[i]]);
    best.take({in + x[top.arrival_cell[m]], m});
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
template <class Score>
__device__ void answer(const ViterbiArgs<Score>& a, std::int64_t b, std::int32_t T) {
  const Answer answer(a.best, a.batch, b, T, a.topology.K);
  answer.clear_path(0);
  if (threadIdx.x < 32) answer.write_status(a.scores);
  __syncthreads();
  const MiddleCells middle = T > 0 ? find_middle(a, b, T) : MiddleCells{{-1, -1}};
  if (middle.cell[0] < 0) return answer.no_path(a.topology.empty);
  const int back = static_cast<int>(threadIdx.x) / 32;
  if (back < 2) follow(a, b, back, T, middle.cell[back], answer.path);
  answer.template write_score<kMostThreads>(a.scores.row);
}

template <Storage kStorage>
constexpr int kThreads = kStorage == Storage::cluster ? 32 * kClusterWarps : kMostThreads;

template <class Score, Storage kStorage>
__global__ void __launch_bounds__(kThreads<kStorage>, 1) walk_kernel(const __grid_constant__ ViterbiArgs<Score> a) {
  wait_for_prior_kernel();
  const std::int32_t blocks = kStorage == Storage::cluster ? a.shape.blocks : 1;
  const std::int64_t b = static_cast<std::int32_t>(blockIdx.x) / blocks;
  if (a.only && !a.only[b]) return;
  const std::int32_t T = a.scores.length[b];
  const int back = blockIdx.y;
  if (T > 0) {
    const DeviceStep& layout = a.layout[back];
    const WalkShared<double, kStorage> shared(a.shape.rows + 1, layout.K);
    double* cells = a.shape.cells_on_chip ? reinterpret_cast<double*>(shared.rest)
                                          : a.work.cells + (b * 2 + back) * cells_in_memory(a.layout[0], a.layout[1]);
    with_general_steps<MaxPlus, kStorage>(layout, blocks, a.scores.matrix[back], a.scores.sparse[back],
                                          [&](const auto& view, const auto& steps) {
                                            double* next = cells + padded_cells(view.step_cells());
                                            if (back) {
                                              walk<true>(a, view, steps, cells, next, shared.rows, shared.team_memory);
                                            } else {
                                              walk<false>(a, view, steps, cells, next, shared.rows, shared.team_memory);
                                            }
                                          });
  }
  if (is_last_block(a.scores.blocks_done + b, static_cast<std::uint32_t>(2 * blocks))) answer(a, b, T);
}

// --- the call

// What is done again finds its memory where the first attempt had its own.
template <class Score>
struct ViterbiPlan {
  Prepared<Score> scores;
  bool in_integers;
  std::int32_t* redo;  // [B] if in integers
  IntegerMemory integers;
  ViterbiMemory work;
  std::size_t bytes;
};
template <class Score>
ViterbiPlan<Score> plan_of(Memory memory, const DeviceConstraint::Impl& c, const Batch& batch) {
  Arena arena(memory);
  ViterbiPlan<Score> plan{};
  plan.scores = allocate_prepared<Score>(arena, c, batch, true);
  plan.in_integers = sizeof(Score) == 4 && integer_fits(c, batch);
  if (plan.in_integers) plan.redo = arena.allocate<std::int32_t>(batch.size);
  Arena again = arena;
  if (plan.in_integers) plan.integers = allocate_integer(arena, c, batch);
  for (int back = 0; back < 2; ++back)
    plan.work.saved[back] =
        again.allocate<double>(batch.size * steps_of_half(batch) * std::int64_t{(back ? c.backward : c.forward).cells});
  plan.work.cells = again.allocate<double>(
      shape_of(c, batch).cells_on_chip ? 0 : 2 * batch.size * cells_in_memory(c.forward, c.backward));
  plan.bytes = std::max(arena.used(), again.used());
  return plan;
}

template <class Score>
void run(const DeviceConstraint::Impl& c, const Batch& batch, const Best& best, Memory memory, cudaStream_t stream) {
  const ViterbiPlan<Score> plan = plan_of<Score>(memory, c, batch);
  prepare(c, batch, plan.scores, Scale::log, nullptr, stream);
  if constexpr (sizeof(Score) == 4) {
    if (plan.in_integers) run_integer(c, batch, best, plan.scores, plan.integers, plan.redo, stream);
  }
  const WalkShape s = shape_of(c, batch);
  const ViterbiArgs<Score> args{{c.forward, c.backward}, c.topology, batch,    plan.scores, plan.work, s,
                                steps_of_half(batch),    best,       plan.redo};
  const bool in_cluster = s.storage == Storage::cluster;
  launch_kernel(in_cluster ? walk_kernel<Score, Storage::cluster> : walk_kernel<Score, Storage::memory>,
                {.x = batch.size * s.blocks,
                 .y = 2,
                 .threads = s.threads,
                 .bytes = s.bytes,
                 .programmatic = c.programmatic,
                 .cluster = s.blocks},
                stream, args, "viterbi");
}

bool in_double(const Batch& batch) { return batch.type() == Type::f64 || batch.emissions.type == Type::f64; }

}  // namespace

std::size_t viterbi_bytes(const DeviceConstraint& constraint, const Batch& batch) {
  const DeviceConstraint::Impl& c = constraint.impl();
  const Pieces pieces = choose_pieces(constraint, batch, viterbi_costs(c.topology.nodes));
  if (pieces.count > 1) return viterbi_bytes(constraint, batch, pieces);
  return in_double(batch) ? plan_of<double>(Memory{}, c, batch).bytes : plan_of<float>(Memory{}, c, batch).bytes;
}

void viterbi(const DeviceConstraint& constraint, const Batch& batch, const Best& best, Memory memory, void* stream) {
  check_batch("viterbi", batch);
  if (batch.size == 0) return;
  const DeviceConstraint::Impl& c = constraint.impl();
  const Pieces pieces = choose_pieces(constraint, batch, viterbi_costs(c.topology.nodes));
  if (pieces.count > 1) return viterbi(constraint, batch, best, pieces, memory, stream);
  const auto s = static_cast<cudaStream_t>(stream);
  in_double(batch) ? run<double>(c, batch, best, memory, s) : run<float>(c, batch, best, memory, s);
}

}  // namespace regccrf::cuda
