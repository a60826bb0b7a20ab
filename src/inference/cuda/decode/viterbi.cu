// Viterbi on a device. Two blocks a sequence go towards each other, one from each end, and leave every step's scores in
// memory; each does half of the steps. Under a large automaton they are two clusters; under a small one the transitions
// that a thread needs stay in its registers. The block that comes last finds where the two halves of the best path
// meet, and two of its warps follow it outwards: each finds the next step again from the scores of its own state's
// slots, so no backpointer is ever written.
//
// Scores are floats, kept relative to the best of the step before; there are three roundings a step on the path found
// and on the one that might have been better, each at most half a unit in the last place of the largest number seen.
// Where that is below the tolerance the path stands; else the sequence is done again in double. A path's score is
// summed again in double.
#include <algorithm>
#include <limits>

#include "inference/cuda/expectation/expectation.h"
#include "inference/cuda/step/cluster_step.h"
#include "inference/cuda/step/register_step.h"
#include "inference/cuda/step/scan.h"

namespace regccrf::cuda {

namespace {

constexpr int kMostThreads = 1024;

// How far the score of a path that is found may lie below the best, relative to it: half of what float32 promises.
constexpr double kTolerance = 0.5e-5;

// Integers ordered as floats are.
__device__ std::int32_t ordered(float x) {
  const std::int32_t bits = __float_as_int(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
__device__ float from_ordered(std::int32_t x) { return __int_as_float(x ^ ((x >> 31) & 0x7fffffff)); }

// The steps of a sequence of T positions, not 0, from its begin to the position where the halves meet, and from its
// end.
__device__ std::int32_t half_steps(std::int32_t T, int back) { return back ? T - 1 - (T - 1) / 2 : (T - 1) / 2; }

// P: of the walk. Score: of the prepared scores, which float holds exactly where the caller's are no larger.
template <class P>
struct Work {
  P* kept[2];       // [B, steps, cells] forward and backward, by step
  double* largest;  // [B, 2, blocks] the largest number seen, in size
  P* cells;         // scratch where a block has no room
};

struct Shape {
  int bytes, threads;
  std::int32_t rows, steps;  // rows of emissions on chip; steps that a half may have
  std::int32_t blocks;       // that do a step together
  bool in_registers, on_chip, cells_on_chip;
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
  const std::int64_t zeros_too = aligned((s.rows + 1) * (std::int64_t{c.topology.K} + 1) * p),
                     rows = Alone<P, std::int32_t>::kBytes + zeros_too,
                     together = aligned(Together<P, std::int32_t>::kBytes) + zeros_too;
  check_rows(c, rows);
  const std::int64_t cells = std::max(cells_of(c.forward), cells_of(c.backward)),
                     all = std::max(all_of(c.forward), all_of(c.backward));
  s.in_registers = sizeof(P) == 4 && c.forward.narrow && c.forward.kind >= 0 && rows + cells <= c.shared_bytes;
  s.on_chip = !s.in_registers && c.forward.narrow && rows + all <= c.shared_bytes;
  s.blocks = s.in_registers ? 1 : blocks_together<P>(c, 2 * batch.size, c.shared_bytes - together, s.on_chip);
  if (s.blocks > 1) {
    s.bytes = static_cast<int>(together + shares_bytes<P>(c, s.blocks));
    s.threads = 32 * std::max(warps_together(c, s.blocks), 2);  // two follow the path
    s.cells_on_chip = true;
    return s;
  }
  s.cells_on_chip = s.on_chip || rows + cells <= c.shared_bytes;
  s.bytes = static_cast<int>(rows + (s.on_chip ? all : s.cells_on_chip ? cells : 0));
  s.threads = 32 * std::max({c.forward.warps[s.in_registers], c.backward.warps[s.in_registers], 2});
  return s;
}

template <class P, class Score>
struct Args {
  DeviceSweep sweep[2];
  DeviceTopology topology;
  DeviceJoin join;
  Batch batch;
  Prepared<Score> scores;
  Work<P> work;
  Shape shape;
  Best best;
  const std::int32_t* only;  // [B] 1: to be done; null: every sequence
  std::int32_t* redo;        // [B] 1: to be done in double; null: this is double
};

// --- towards the middle

// What becomes of an out in a step. kCopied: whole steps are copied to memory later.
template <class P, class Team, bool kCopied>
struct Emit {
  const Team& team;
  const P* row;
  P *next, *kept;
  P shift;
  P &top, &largest;

  __device__ P weight(std::uint32_t label) const { return value_of(row, label); }
  // Of a step in registers.
  __device__ void store(std::uint32_t cell, P weight, P best) const { put(next, cell, scored(weight, best)); }
  template <class Place>
  __device__ void send(const Place& place, P weight, P best) const {
    const P v = scored(weight, best);
    team.put(next, place, v);
    if constexpr (!kCopied) kept[place.cell] = v;
  }

 private:
  __device__ P scored(P weight, P best) const {
    const P relative = best - shift, v = relative + weight;
    top = max(top, v);
    if constexpr (sizeof(P) == 4) {
      if (v != -P{INFINITY}) largest = max(max(largest, abs(v)), max(abs(best), abs(relative)));
    }
    return v;
  }
};

// The steps of one half. Scores are relative in float only: what a step takes off is known to all from the team's peak.
template <bool kBack, class P, class Score, class View, class Steps>
class HalfPass {
 public:
  using Team = typename View::template Team<P, std::int32_t>;

  // `cells`: of two steps; `room`: for emissions; `meeting`: for what the team needs to meet.
  __device__ HalfPass(const Args<P, Score>& a, const View& view, const Steps& steps, P* cells, P* room, char* meeting)
      : a_(a),
        view_(view),
        steps_(steps),
        team_(meeting, ordered(-INFINITY), thread_number(), view),
        b_(team_.sequence()),
        last_(half_steps(a.scores.length[b_], kBack)),
        zeros_(room),
        rows_(room + view.K + 1, a.shape.rows, a.scores.emissions + b_ * a.batch.length * (view.K + 1), view.K,
              a.scores.length[b_]),
        now_(cells),
        next_(cells + room_for(view.room())),
        kept_(a.work.kept[kBack] + b_ * a.shape.steps * view.cells) {}

  __device__ void run() {
    begin();
    for (std::int32_t n = 1; n <= last_; ++n) step(n);
    if constexpr (Steps::kResident) copy_out(kept_, now_, view_.cells, team_.thread());
    if constexpr (!kRelative) return;
    const float most = __int_as_float(team_.of_block(last_ + 1, __float_as_int(static_cast<float>(largest_))));
    if (team_.thread() == 0)
      a_.work.largest[(2 * b_ + kBack) * a_.shape.blocks + team_.rank()] = static_cast<double>(most);
  }

 private:
  static constexpr bool kRelative = sizeof(P) == 4;
  static constexpr P kNone = -P{INFINITY};
  using EmitHere = Emit<P, Team, Steps::kResident>;

  __device__ EmitHere emit_to(std::int32_t n, P* cells, P shift) {
    // The step in the middle leaves out its emissions in one of the two directions.
    return {team_, kBack && n == last_ ? zeros_ : rows_[n], cells, kept_, shift, top_, largest_};
  }
  __device__ void meet(std::int32_t n) { team_.meet(n, kRelative ? ordered(static_cast<float>(top_)) : 0); }

  __device__ void begin() {
    for (std::int32_t c = threadIdx.x; c < view_.room(); c += blockDim.x) now_[c] = next_[c] = kNone;
    for (std::int32_t k = threadIdx.x; k <= view_.K; k += blockDim.x) zeros_[k] = k < view_.K ? P{0} : kNone;
    rows_.stage(0);
    team_.begin();
    const Score* edge = kBack ? a_.scores.end : a_.scores.start;
    const EmitHere emit = emit_to(0, now_, P{0});
    for (std::int32_t o = team_.first(); o < view_.outs; o += team_.stride()) {
      const auto place = view_.place(o);
      if (place.label == view_.K) continue;
      emit.send(place, emit.weight(bytes_of<P>(place.label)),
                a_.sweep[kBack].begins[place.out] ? static_cast<P>(edge[place.label]) : kNone);
    }
    meet(0);
  }

  __device__ void step(std::int32_t n) {
    const auto loaded = steps_.load(now_);
    const std::int32_t seen = kRelative ? team_.look(n - 1) : 0;
    if constexpr (Steps::kResident) copy_out(kept_, now_, view_.cells, team_.thread());
    kept_ += view_.cells;
    if (!rows_.staged(n)) rows_.stage(n);
    if constexpr (!Steps::kResident) {
      if (view_.extras) {
        steps_.fill_extras(now_);
        __syncthreads();
      }
    }
    auto sums = steps_.multiply(loaded);
    P shift = 0;
    if constexpr (kRelative) {
      const P before = from_ordered(team_.peak(seen));
      shift = before == kNone ? P{0} : before;
    }
    top_ = kNone;
    steps_.finish(sums, now_, emit_to(n, next_, shift));
    meet(n);
    P* swap = now_;
    now_ = next_;
    next_ = swap;
  }

  const Args<P, Score>& a_;
  const View& view_;
  const Steps& steps_;
  Team team_;
  const std::int64_t b_;
  const std::int32_t last_;
  P* zeros_;
  Rows<P, kBack, Score> rows_;
  P *now_, *next_, *kept_;
  P top_ = kNone, largest_ = 0;
};

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
  __shared__ Candidate best[kMostThreads / 32];
  const auto warp_best = [&] {
    for (int bit = 16; bit > 0; bit /= 2) {
      mine.take({__shfl_xor_sync(0xffffffffu, mine.value, bit), __shfl_xor_sync(0xffffffffu, mine.number, bit)});
    }
  };
  warp_best();
  if (threadIdx.x % 32 == 0) best[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = best[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0];
  warp_best();
  return mine;
}

// The best of a warp's candidates, and of equals the lowest cell.
__device__ inline std::int32_t warp_best(float value, std::int32_t cell) {
  const bool top = reduce_max(ordered(value)) == ordered(value);
  return reduce_min(top ? cell : 0x7fffffff);
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
// the out's slots. `whole`: cells of `now` that no out is stored in hold -inf.
template <class P, class Score, class Index>
__device__ std::int32_t predecessor(const SweepView<Index>& view, std::int32_t groups, const Score* matrix,
                                    const Score* thin_matrix, const P* now, std::int32_t out, bool whole) {
  const std::int32_t lane = threadIdx.x % 32;
  P best = -P{INFINITY};
  std::int32_t from = 0x7fffffff;
  const auto offer = [&](std::int32_t source, Score gain) {
    if (source == view.cells) return;  // the zero
    const P v = now[source] + static_cast<P>(gain);
    if (v > best || (v == best && source < from)) best = v, from = source;
  };
  const auto offer_slot = [&](const Pair<Index>& sources, Score gain) {
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
    const std::int32_t state = (out - group.first_out) / group.width, o = out - group.first_out - state * group.width,
                       row = group.first_cell + state * group.stride, plane = group.states * group.stride;
    for (std::int32_t i = lane; i < group.slots; i += 32) {
      const Score gain = matrix[group.first_entry + i * group.width + o];
      if (!whole) {
        offer_slot(view.source[group.first_source + state * group.slots + i], gain);
      } else {  // a state's sources lie side by side, and need not be looked up
        offer(row + i, gain);
        if (group.planes > 1) offer(row + i + plane, gain);
      }
    }
  }
  return warp_best(best, from);
}

// From the middle to one end: a warp follows the path from the cell where it is after the last step of that half.
template <class P, class Score, class Index>
__device__ void follow(const Args<P, Score>& a, std::int64_t b, int back, std::int32_t T, std::int32_t cell,
                       std::int32_t* path) {
  const DeviceSweep& sweep = a.sweep[back];
  const SweepView<Index> view(sweep, sweep.hot, 0);
  const P* kept = a.work.kept[back] + b * a.shape.steps * view.cells;
  for (std::int32_t n = half_steps(T, back); cell < view.cells; --n) {  // past all cells: scores that are no numbers
    const std::int32_t out = view.out_of[cell];
    if (threadIdx.x % 32 == 0) path[back ? T - 1 - n : n] = view.label[out];
    if (n == 0) return;
    cell = predecessor(view, sweep.groups, a.scores.matrix[back], a.scores.thin[back],
                       kept + std::int64_t{n - 1} * view.cells, out, a.shape.in_registers);
  }
}

// The forward cells that flow into an arrival, the k-th of the join (layout/combine.h).
template <class Act>
__device__ void each_cell(const DeviceJoin& join, std::int32_t k, const JoinArrival& arrival, const Act& act) {
  if (arrival.x < join.forward_cells) act(arrival.x);
  if (arrival.y < join.forward_cells) act(arrival.y);
  if (!join.arrival_begin) return;
  for (std::int32_t i = join.arrival_begin[k]; i < join.arrival_begin[k + 1]; ++i) act(join.arrival_source[i]);
}

// The cells, forward and backward, that the best path has at the middle; -1: there is no path.
struct Meeting {
  std::int32_t cell[2];
};
template <class P, class Score>
__device__ Meeting meet(const Args<P, Score>& a, std::int64_t b, std::int32_t T) {
  const DeviceJoin& join = a.join;
  const auto kept = [&](int back) {
    return a.work.kept[back] + (b * a.shape.steps + half_steps(T, back)) * std::int64_t{a.sweep[back].cells};
  };
  const P *delta = kept(0), *x = kept(1);
  Candidate best{-INFINITY, 0x7fffffff};
#pragma unroll 2
  for (std::int32_t k = threadIdx.x; k < 32 * join.rounds; k += blockDim.x) {
    const JoinArrival arrival = join.arrival[k];
    if (arrival.cell == join.backward_cells) continue;  // padding
    P in = -P{INFINITY};
    each_cell(join, k, arrival, [&](std::int32_t cell) { in = max(in, delta[cell]); });
    best.take({static_cast<double>(in) + static_cast<double>(x[arrival.cell]), k});
  }
  best = block_best(best);
  if (!(best.value > -INFINITY)) return {{-1, -1}};
  const JoinArrival arrival = join.arrival[best.number];
  std::int32_t from = -1;
  each_cell(join, best.number, arrival,
            [&](std::int32_t cell) { from = from < 0 || delta[cell] > delta[from] ? cell : from; });
  return {{from, arrival.cell}};
}

// The status but for Outcome::impossible, by a warp.
template <class P, class Score>
__device__ void write_status(const Args<P, Score>& a, std::int64_t b, std::int32_t T) {
  const double* shift = a.scores.shift + b * a.batch.length;
  bool bad = false;
#pragma unroll 4
  for (std::int32_t t = threadIdx.x % 32; t < T; t += 32) bad |= isnan(shift[t]);
  bad = __any_sync(0xffffffffu, bad);
  if (threadIdx.x % 32 == 0) a.best.status[b] = status_of(a.batch, a.scores, b, T, a.topology.K, bad);
}

// By one thread.
template <class P, class Score>
__device__ void write_no_path(const Args<P, Score>& a, std::int64_t b, std::int32_t T) {
  const bool fine = T == 0 && a.topology.empty;
  a.best.score[b] = fine ? 0 : -INFINITY;
  std::int32_t& outcome = a.best.status[b].outcome;
  if (!fine && outcome == 0) outcome = static_cast<std::int32_t>(Outcome::impossible);
}

// Whether rounding may have hidden a better path than one of this score.
template <class P, class Score>
__device__ bool too_inexact(const Args<P, Score>& a, std::int64_t b, std::int32_t T, double score) {
  double largest = 0;
  for (std::int32_t n = 0; n < 2 * a.shape.blocks; ++n)
    largest = fmax(largest, a.work.largest[2 * b * a.shape.blocks + n]);
  const double step = 1.5 * largest * static_cast<double>(std::numeric_limits<float>::epsilon());
  return 2 * step * (T + 1) > kTolerance * fmax(1.0, fabs(score));
}

// Both halves of a sequence are there: its answer.
template <class P, class Score, class Index>
__device__ void answer(const Args<P, Score>& a, std::int64_t b, std::int32_t T) {
  std::int32_t* path = a.best.labels + b * a.batch.length;
  for (std::int64_t t = threadIdx.x; t < a.batch.length; t += blockDim.x) path[t] = -1;
  if (threadIdx.x < 32) write_status(a, b, T);
  if (threadIdx.x == 0 && a.redo) a.redo[b] = 0;
  __syncthreads();
  const Meeting meeting = T > 0 ? meet(a, b, T) : Meeting{{-1, -1}};
  if (meeting.cell[0] < 0) {
    if (threadIdx.x == 0) write_no_path(a, b, T);
    return;
  }
  const int back = static_cast<int>(threadIdx.x) / 32;
  if (back < 2) follow<P, Score, Index>(a, b, back, T, meeting.cell[back], path);
  __syncthreads();
  const Sum mine =
      path_score(a.batch, a.topology.K, T, a.scores.row + b * a.batch.length, [&](std::int32_t t) { return path[t]; });
  const double score = block_sum<kMostThreads>(mine, T);
  if (threadIdx.x != 0) return;
  a.best.score[b] = score;
  if (a.redo && too_inexact(a, b, T, score)) a.redo[b] = 1;
}

template <Keep kKeep, std::int32_t kKind>
constexpr int kThreads = kKeep == Keep::cluster     ? 32 * kSharedWarps
                         : kKeep == Keep::registers ? 32 * std::max(kResidentKinds[kKind].warps, 2)
                                                    : kMostThreads;

template <class P, class Score, class Index, Keep kKeep, std::int32_t kKind>
__device__ void run_half(const Args<P, Score>& a, std::int64_t b, std::int32_t blocks) {
  const int back = blockIdx.y;
  const DeviceSweep& sweep = a.sweep[back];
  char* at = shared_memory();
  const auto take = [&](std::int64_t bytes) {
    char* here = at;
    at += (bytes + 15) / 16 * 16;
    return here;
  };
  char* meeting = take(kKeep == Keep::cluster ? Together<P, std::int32_t>::kBytes : Alone<P, std::int32_t>::kBytes);
  P* rows = reinterpret_cast<P*>(take((a.shape.rows + 1) * (std::int64_t{sweep.K} + 1) * std::int64_t{sizeof(P)}));
  const auto run = [&](const auto& view, const auto& steps, P* cells) {
    using View = std::remove_cvref_t<decltype(view)>;
    using Steps = std::remove_cvref_t<decltype(steps)>;
    if (back) {
      HalfPass<true, P, Score, View, Steps>(a, view, steps, cells, rows, meeting).run();
    } else {
      HalfPass<false, P, Score, View, Steps>(a, view, steps, cells, rows, meeting).run();
    }
  };
  const Score *matrix = a.scores.matrix[back], *thin = a.scores.thin[back];
  if constexpr (kKeep == Keep::registers) {
    constexpr ResidentKind kind = kResidentKinds[kKind];
    const SweepView<Index> view(sweep, sweep.hot, 1);
    run(view, ResidentSteps<MaxPlus<P>, Index, kind.slots, kind.repeats>(view, matrix, thin), reinterpret_cast<P*>(at));
  } else {
    const std::int64_t most = room_for(max(a.sweep[0].all_cells, a.sweep[1].all_cells));
    P* cells = a.shape.cells_on_chip ? reinterpret_cast<P*>(at) : a.work.cells + (b * 2 + back) * 2 * most;
    with_general_steps<MaxPlus<P>, Index, kKeep>(sweep, blocks, matrix, thin, at, cells, run);
  }
}

template <class P, class Score, class Index, Keep kKeep, std::int32_t kKind = 0>
__global__ void __launch_bounds__(kThreads<kKeep, kKind>, 1) viterbi_kernel(const __grid_constant__ Args<P, Score> a) {
  wait_for_kernel_before();
  const std::int32_t blocks = kKeep == Keep::cluster ? a.shape.blocks : 1;
  const std::int64_t b = static_cast<std::int32_t>(blockIdx.x) / blocks;
  if (a.only && !a.only[b]) return;
  const std::int32_t T = a.scores.length[b];
  if (T > 0) run_half<P, Score, Index, kKeep, kKind>(a, b, blocks);
  if (comes_last(a.scores.met + b, static_cast<std::uint32_t>(2 * blocks))) answer<P, Score, Index>(a, b, T);
}

// --- the call

template <class P>
Work<P> cut_work(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, const Shape& s) {
  const auto B = static_cast<std::size_t>(batch.size), steps = static_cast<std::size_t>(s.steps);
  const auto most = static_cast<std::size_t>(room_for(std::max(c.forward.all_cells, c.backward.all_cells)));
  Work<P> w{};
  for (int back = 0; back < 2; ++back)
    w.kept[back] = cutter.take<P>(B * steps * static_cast<std::size_t>((back ? c.backward : c.forward).cells));
  w.largest = cutter.take<double>(2 * B * static_cast<std::size_t>(s.blocks));
  w.cells = cutter.take<P>(s.cells_on_chip ? 0 : B * 4 * most);
  return w;
}

template <class P, class Score>
void run(const DeviceConstraint::Impl& c, const Batch& batch, const Best& best, const Prepared<Score>& scores,
         const Work<P>& work, const std::int32_t* only, std::int32_t* redo, cudaStream_t stream) {
  const Shape s = shape_of<P>(c, batch);
  const Args<P, Score> args{{c.forward, c.backward}, c.topology, c.join, batch, scores, work, s, best, only, redo};
  const auto blocks = static_cast<unsigned>(s.blocks);
  const auto launch = [&](auto* kernel) {
    launch_kernel(kernel, dim3(static_cast<unsigned>(batch.size) * blocks, 2), static_cast<unsigned>(s.threads),
                  s.bytes, stream, args, "viterbi", c.early, blocks);
  };
  if (s.in_registers) {
    if constexpr (sizeof(P) == 4) {
      if (c.forward.kind == 0) launch(viterbi_kernel<P, Score, std::uint16_t, Keep::registers, 0>);
      if (c.forward.kind == 1) launch(viterbi_kernel<P, Score, std::uint16_t, Keep::registers, 1>);
      if (c.forward.kind == 2) launch(viterbi_kernel<P, Score, std::uint16_t, Keep::registers, 2>);
    }
  } else if (s.blocks > 1 && c.forward.narrow) {
    launch(viterbi_kernel<P, Score, std::uint16_t, Keep::cluster>);
  } else if (s.blocks > 1) {
    launch(viterbi_kernel<P, Score, std::int32_t, Keep::cluster>);
  } else if (s.on_chip) {
    launch(viterbi_kernel<P, Score, std::uint16_t, Keep::chip>);
  } else if (c.forward.narrow) {
    launch(viterbi_kernel<P, Score, std::uint16_t, Keep::memory>);
  } else {
    launch(viterbi_kernel<P, Score, std::int32_t, Keep::memory>);
  }
}

// What is done again finds its memory where the first attempt had its own.
struct Plan {
  bool in_double;
  Prepared<double> scores_double;
  Prepared<float> scores;
  std::int32_t* redo;
  Work<float> work;
  Work<double> work_double;
  std::size_t bytes;
};
Plan plan_of(Memory memory, const DeviceConstraint::Impl& c, const Batch& batch) {
  Cutter cutter(memory);
  Plan plan{};
  plan.in_double = batch.type == Type::f64 || batch.emissions_type == Type::f64;
  if (plan.in_double) {
    plan.scores_double = cut_prepared<double>(cutter, c, batch, true);
  } else {
    plan.scores = cut_prepared<float>(cutter, c, batch, true);
    plan.redo = cutter.take<std::int32_t>(static_cast<std::size_t>(batch.size));
  }
  Cutter again = cutter;
  plan.work_double = cut_work<double>(again, c, batch, shape_of<double>(c, batch));
  if (!plan.in_double) plan.work = cut_work<float>(cutter, c, batch, shape_of<float>(c, batch));
  plan.bytes = std::max(cutter.used(), again.used());
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
  const Plan plan = plan_of(memory, c, batch);
  const auto s = static_cast<cudaStream_t>(stream);
  if (plan.in_double) {
    prepare(c, batch, plan.scores_double, Scale::log, true, nullptr, nullptr, s);
    return run(c, batch, best, plan.scores_double, plan.work_double, nullptr, nullptr, s);
  }
  prepare(c, batch, plan.scores, Scale::log, true, nullptr, nullptr, s);
  run(c, batch, best, plan.scores, plan.work, nullptr, plan.redo, s);
  run(c, batch, best, plan.scores, plan.work_double, plan.redo, nullptr, s);
}

}  // namespace regccrf::cuda
