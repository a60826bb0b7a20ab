// Forward and backward on a device: one block a sequence and direction, or a cluster of them if the automaton is large,
// walks the steps with its cells on chip, and leaves each step's in memory: alpha on nodes, and beta on arrivals, both
// with the emissions of their own position. Where it can, it leaves beta's sums at nodes instead, the outs of the
// combine: half as many numbers, and as the combine wants them. How they keep to one side of the truth: bounds.h.
// Behind a scan (scan.h) a block has one piece of a sequence.
#include "inference/cuda/bounds.h"
#include "inference/cuda/expectation/expectation.h"
#include "inference/cuda/step/register_step.h"
#include "inference/cuda/step/scan.h"
#include "inference/cuda/step/walk.h"

namespace regccrf::cuda {

namespace {

template <class P>
WalkShape shape_of(const DeviceConstraint::Impl& c, const Batch& batch, const Pieces& pieces) {
  const auto both = [](std::int32_t forward, std::int32_t backward) {
    return forward > 0 && backward > 0 ? std::max(forward, backward) : 0;
  };
  return walk_shape<P>(
      c, {.rows = rows_in_shared<P>(c, batch.length),
          .together = pieces.count == 1 ? 2 * batch.size : 0,
          .register_warps = sizeof(P) == 4 ? both(c.forward.in_registers.warps, c.backward.in_registers.warps)
                                           : both(c.forward.tensor_warps, c.backward.tensor_warps)});
}

template <class P>
struct ForwardBackwardArgs : ExpectationArgs<P> {
  DeviceStep layout[2];
};

// What becomes of an out in a step. `trellis`: null if whole steps are copied.
template <class P, class Team, class Side>
struct Epilogue {
  const Team& team;
  const P* row;
  P *next, *trellis;
  P scale, floor;
  unsigned& largest;

  __device__ P weight(std::uint32_t label) const { return value_of(row, label); }
  // Of a step in registers.
  __device__ void store(std::uint32_t cell, P weight, P sum) const { put(next, cell, scaled(weight, sum)); }
  // By the general schedule.
  template <class Place>
  __device__ void send(const Place& place, P weight, P sum) const {
    const P v = scaled(weight, sum);
    team.put(next, place, v);
    trellis[place.cell] = v;
  }

 private:
  __device__ P scaled(P weight, P sum) const {
    const P v = Side::product(weight, sum, scale, floor);
    largest = max(largest, high_word(v));
    return v;
  }
};

// A thread's part of what becomes of beta at the outs of the combine: four of a group's, and some sparse ones.
constexpr std::int32_t kSparseAtOuts = 2;

bool can_be_at_outs(const DeviceCombine& combine, std::int32_t threads) {
  return combine.copied && combine.all_out && (combine.quad || combine.dense_outs == 0) &&
         combine.dense_outs <= 4 * threads && combine.outs - combine.dense_outs <= kSparseAtOuts * threads;
}

template <class P>
class AtOuts {
 public:
  __device__ AtOuts(const DeviceCombine& combine, std::int32_t thread) : combine_(combine), thread_(thread) {
    if (combine.quad && 4 * thread < combine.dense_outs)
      quad_ = Places<P>::of(combine.quad[thread].x, combine.quad[thread].y);
#pragma unroll
    for (std::int32_t k = 0; k < kSparseAtOuts; ++k) {
      if (sparse(k) < combine.outs) from_[k] = Places<P>::of(combine.out[sparse(k)].x, combine.out[sparse(k)].y);
    }
  }

  __device__ void copy(P* trellis, const P* now) const {
    if (4 * thread_ < combine_.dense_outs) {
      P x[4]{}, y[4]{};
      add4(now, quad_.x(), x);
      add4(now, quad_.y(), y);
#pragma unroll
      for (std::int32_t i = 0; i < 4; ++i) x[i] += y[i];
      stream_store4(trellis + 4 * thread_, x);
    }
#pragma unroll
    for (std::int32_t k = 0; k < kSparseAtOuts; ++k) {
      if (sparse(k) < combine_.outs)
        stream_store(trellis + sparse(k), value_of(now, from_[k].x()) + value_of(now, from_[k].y()));
    }
  }

 private:
  __device__ std::int32_t sparse(std::int32_t k) const {
    return combine_.dense_outs + thread_ + k * static_cast<std::int32_t>(blockDim.x);
  }
  // From the zero on, a place stands for no cells.
  __device__ void add4(const P* now, std::uint32_t place, P (&to)[4]) const {
    if (place < bytes_of<P>(combine_.backward_cells))
      load4(reinterpret_cast<const P*>(reinterpret_cast<const char*>(now) + place), to);
  }

  const DeviceCombine& combine_;
  std::int32_t thread_;
  Places<P> quad_{}, from_[kSparseAtOuts]{};
};

template <class Side>
struct WeightOf {
  template <class P>
  __device__ P operator()(P weight, std::int32_t) const {
    return Side::weight(weight);
  }
};
template <bool kBack>
using SideOf = std::conditional_t<kBack, Downwards, Upwards>;
template <bool kBack, class P>
constexpr std::int32_t kPeak =
    kBack ? Bounds<P>::beta_peak : Bounds<P>::alpha_peak;  // the exponent that a step's largest number is brought to

// What a walk begins with: the edge of the sequence …
template <bool kBack, class P, class View, class Team>
__device__ unsigned begin_at_edge(const ForwardBackwardArgs<P>& a, const View& view, const Team& team, P floor,
                                  const P* row, P* now, P* trellis) {
  const P *edge = kBack ? a.trellis.scores.end : a.trellis.scores.start,
          top = kBack ? Bounds<P>::beta_top : Bounds<P>::alpha_top;
  unsigned largest = 0;
  for (std::int32_t o = team.first(); o < view.outs; o += team.stride()) {
    const auto place = view.place(o);
    if (place.label == view.K) continue;
    const P sum = a.layout[kBack].begins[place.out] ? SideOf<kBack>::weight(edge[place.label]) * top : P{0};
    const P v = SideOf<kBack>::product(row[place.label], sum, P{1}, floor);
    team.put(now, place, v);
    if (trellis) trellis[place.cell] = v;
    largest = max(largest, high_word(v));
  }
  return largest;
}

// … or what the scan left where pieces meet: alpha forwards, and what it may lack; backwards the step from beta at the
// boundary to the position before it, since beta there is on nodes, and cells are arrivals.
template <class P>
__device__ std::int64_t boundary_of(const ForwardBackwardArgs<P>& a, std::int32_t piece) {
  return std::int64_t{blockIdx.x} * a.pass.pieces.count + piece;
}
// What may be lacking there: 0 if nothing can have been lost on the way. The whole block takes part.
template <class P>
__device__ double lacking(const ForwardBackwardArgs<P>& a, std::int32_t piece) {
  const std::int32_t* lost = a.pass.scan.boundaries.lost + std::int64_t{blockIdx.x} * a.pass.pieces.count;
  bool some = false;
  for (std::int32_t n = threadIdx.x; n < piece; n += blockDim.x) some = some || lost[n] != Lost::none;
  return __syncthreads_or(some) ? Bounds<double>::boundary : 0;
}
template <bool kBack, class P>
__device__ unsigned begin_at_boundary(const ForwardBackwardArgs<P>& a, std::int32_t number, const P* row, P* now) {
  const DeviceTopology& top = a.topology;
  const std::int64_t boundary = boundary_of(a, number);
  unsigned largest = 0;
  if constexpr (kBack) {
    const double* beta = a.pass.scan.boundaries.beta + boundary * a.pass.scan.boundaries.width;
    for (std::int32_t m = threadIdx.x; m < top.arrivals; m += blockDim.x) {
      const std::int32_t label = top.arrival_label[m], state = top.arrival_state[m];
      double sum = 0;
      for (std::int32_t i = top.node_begin[state]; i < top.node_begin[state + 1]; ++i) {
        const std::int64_t pair = std::int64_t{label} * top.K + top.node_label[i];
        sum += beta[i] * exp(score_at(a.batch.transitions, pair) - a.trellis.scores.shifts[0]);
      }
      const P v = Downwards::product(row[label], static_cast<P>(sum) * Bounds<P>::beta_top, P{1}, P{0});
      now[top.arrival_cell[m]] = v;
      largest = max(largest, high_word(v));
    }
  } else {
    const double *alpha = a.pass.scan.boundaries.alpha + boundary * a.pass.scan.boundaries.width,
                 more = lacking(a, number);
    for (std::int32_t i = threadIdx.x; i < top.nodes; i += blockDim.x) {
      const bool there = row[top.node_label[i]] > P{0};
      const P v = there ? static_cast<P>(alpha[i] * Bounds<double>::alpha_top + more) : P{0};
      now[top.node_cell[i]] = v;
      largest = max(largest, high_word(v));
    }
  }
  return largest;
}

// How much a piece's alpha at its end is above the scan's: adds log2 of that excess, over what the piece began with
// because the scan may lack it, to `grown`. If the scan lost something inside the piece, all of it may be that, and
// `grown` becomes more than is trusted. `shift` brings the piece's alpha to the scale of the next one.
template <class P>
__device__ void note_growth(const ForwardBackwardArgs<P>& a, std::int32_t number, const P* now, std::int64_t shift) {
  constexpr double rounding = 1e-12;
  constexpr std::int64_t most = 4096;  // more than exponents differ by
  const std::int64_t boundary = boundary_of(a, number);
  const double *alpha = a.pass.scan.boundaries.alpha + boundary * a.pass.scan.boundaries.width,
               lacks = lacking(a, number);
  if (threadIdx.x >= 32) return;
  double more = 0;
  for (std::int32_t i = threadIdx.x; i < a.topology.nodes; i += 32) {
    const double mine =
        scalbn(static_cast<double>(now[a.topology.node_cell[i]]), static_cast<int>(min(max(shift, -most), most)));
    more = fmax(more, mine - alpha[i] * Bounds<double>::alpha_top * (1 + rounding));
  }
  for (int bit = 16; bit > 0; bit /= 2) more = fmax(more, __shfl_xor_sync(kAllLanes, more, bit));
  if (threadIdx.x > 0 || !(more > 0)) return;
  const double bits = lacks > 0 && isfinite(more) ? fmax(log2(more / lacks), 0.0) : Bounds<double>::most_growth + 1;
  const bool may_be_all = a.pass.scan.boundaries.lost[boundary - 1] == Lost::in_the_middle;
  atomicAdd(a.pass.scan.boundaries.grown + blockIdx.x,
            static_cast<std::int32_t>(ceil(bits)) + (may_be_all ? Bounds<double>::most_growth : 0));
}

// The exponent at the first position of the piece behind, so that a sequence's exponents are those of one walk: that
// piece counts from the boundary's exponent, this one from `total_exponent`.
template <bool kBack, class P>
__device__ void connect(const ForwardBackwardArgs<P>& a, const Piece& piece, std::int64_t total_exponent,
                        const P* now) {
  const std::int32_t number = piece.number + (kBack ? 0 : 1);
  const std::int64_t b = blockIdx.x, at = b * a.batch.length + (kBack ? piece.first - 1 : piece.last + 1),
                     e = a.pass.scan.boundaries.exponent[kBack][boundary_of(a, number)] - total_exponent;
  if (!kBack) note_growth(a, number, now, -e);
  if (threadIdx.x != 0) return;
  constexpr std::int64_t most = 1021;  // as in scale_of
  a.trellis.exponent[kBack][at] = static_cast<std::int32_t>(min(max(e, -most), most));
  if (e < -most || e > most) a.trellis.trust[b] = Trust::untrusted;
}

// The steps of one direction through a piece. Neighbouring pieces have a position in common: forwards the earlier one
// stores it, and the later one begins there; backwards the later one stores it, and the earlier one begins before it.
template <bool kBack, class P, class View, class Steps>
class DirectionPass {
 public:
  using Team = TeamOf<P, View>;

  // `cells`: of two steps; `room`: for emissions; `team_memory`: for the team's barriers and peaks.
  __device__ DirectionPass(const ForwardBackwardArgs<P>& a, const View& view, const Steps& steps, P* cells, P* room,
                           char* team_memory)
      : a_(a),
        view_(view),
        steps_(steps),
        team_(team_memory, thread_number(), view),
        b_(team_.sequence()),
        piece_(a.trellis.scores.length[b_], a.pass.pieces.steps, static_cast<std::int32_t>(blockIdx.z)),
        inside_(kScans && (kBack ? piece_.number + 1 < piece_.of : piece_.number > 0)),
        skipped_(!kBack && inside_ ? 1 : 0),
        T_(piece_.last - piece_.first + (kBack && inside_ ? 0 : 1)),
        at_outs_(kBack && Steps::kInRegisters && a.pass.at_outs),
        trellis_stride_(at_outs_ ? a.combine.outs : view.cells),
        floor_(*a.trellis.scores.floor),
        rows_(room, a.pass.shape.rows, a.trellis.scores.emissions + (b_ * a.batch.length + piece_.first) * (view.K + 1),
              view.K, T_, {}),
        outs_(a.combine, team_.thread()),
        now_(cells),
        next_(cells + padded_cells(view.step_cells())) {
    const std::int64_t begin = b_ * a.batch.length + piece_.first + (kBack ? T_ - 1 : 0);
    trellis_ = (kBack ? a.trellis.beta : a.trellis.alpha) + begin * trellis_stride_;
    exponent_ = a.trellis.exponent[kBack] + begin;
  }

  __device__ void run() {
    if (!piece_.exists()) return;
    begin();
    for (std::int32_t n = 1; n < T_; ++n) step(n);
    if constexpr (Steps::kInRegisters) store_step();
    end();
  }

 private:
  using Side = SideOf<kBack>;
  static constexpr bool kScans = sizeof(P) == 8 && Team::kAlone;  // a scan is in double, and by blocks alone
  static constexpr std::int32_t kStep = kBack ? -1 : 1;

  __device__ std::int32_t boundary() const { return piece_.number + (kBack ? 1 : 0); }
  // The cells of this step go to memory.
  __device__ void store_step() const {
    if (at_outs_) {
      outs_.copy(trellis_, now_);
    } else {
      copy_out(trellis_, now_, view_.cells, team_.thread());
    }
  }

  __device__ void begin() {
    for (std::int32_t c = threadIdx.x; c < view_.step_cells(); c += blockDim.x) now_[c] = next_[c] = 0;
    rows_.stage(0);
    __syncthreads();
    team_.begin();
    const P* row = rows_.next();
    const unsigned largest =
        inside_ ? begin_at_boundary<kBack>(a_, boundary(), row, now_)
                : begin_at_edge<kBack>(a_, view_, team_, floor_, row, now_, Steps::kInRegisters ? nullptr : trellis_);
    team_.end_step(0, largest);
    if (team_.first() == 0 && !inside_) *exponent_ = -kPeak<kBack, P>;
    if (!Steps::kInRegisters && inside_ && !skipped_) copy_out(trellis_, now_, view_.cells, team_.thread());
  }

  __device__ void step(std::int32_t n) {
    const auto loaded = steps_.load(now_);
    const unsigned before = team_.load_peak(n - 1);
    if constexpr (Steps::kInRegisters) {
      if (n > skipped_) store_step();
    }
    trellis_ += kStep * trellis_stride_;
    exponent_ += kStep;
    if (!rows_.staged(n)) {
      rows_.stage(n);
      __syncthreads();
    }
    if constexpr (!Steps::kInRegisters) {
      if (view_.fan_ins) {
        steps_.sum_fan_ins(now_);
        __syncthreads();
      }
    }
    std::int32_t e;
    const unsigned peak = team_.peak(before);
    const P scale = scale_of(peak, e, P{}, kPeak<kBack, P>);
    most_ = max(most_, peak);
    auto sums = steps_.multiply(loaded);
    unsigned largest = 0;
    steps_.finish(sums, now_,
                  Epilogue<P, Team, Side>{team_, rows_.next(), next_, Steps::kInRegisters ? nullptr : trellis_, scale,
                                          floor_, largest});
    team_.end_step(n, largest);
    total_exponent_ += e;
    if (team_.leads() && n > skipped_) *exponent_ = e;
    P* swap = now_;
    now_ = next_;
    next_ = swap;
  }

  __device__ void end() {
    if (team_.leads() && most_ >= high_word(static_cast<P>(INFINITY))) a_.trellis.trust[b_] = Trust::untrusted;
    if (kScans && inside_) total_exponent_ += a_.pass.scan.boundaries.exponent[kBack][boundary_of(a_, boundary())];
    if (kBack ? piece_.number == 0 : piece_.number + 1 == piece_.of) {
      if (team_.leads()) a_.trellis.total_exponent[kBack][b_] = total_exponent_ - kPeak<kBack, P>;
    } else if constexpr (kScans) {
      connect<kBack>(a_, piece_, total_exponent_, now_);
    }
  }

  const ForwardBackwardArgs<P>& a_;
  const View& view_;
  const Steps& steps_;
  Team team_;
  const std::int64_t b_;
  const Piece piece_;
  const bool inside_;           // begins where pieces meet
  const std::int32_t skipped_;  // positions at its begin that the piece before it stores
  const std::int32_t T_;        // positions
  const bool at_outs_;
  const std::int64_t trellis_stride_;  // numbers of a step in memory
  const P floor_;
  EmissionRows<P, kBack, P, WeightOf<Side>> rows_;
  const AtOuts<P> outs_;
  P *now_, *next_, *trellis_;
  std::int32_t* exponent_;
  std::int64_t total_exponent_ = 0;
  unsigned most_ = 0;
};

template <class P, class View, class Steps>
__device__ void run_direction(const ForwardBackwardArgs<P>& a, const View& view, const Steps& steps, P* cells, P* room,
                              char* team_memory) {
  if (blockIdx.y) {
    DirectionPass<true, P, View, Steps>(a, view, steps, cells, room, team_memory).run();
  } else {
    DirectionPass<false, P, View, Steps>(a, view, steps, cells, room, team_memory).run();
  }
}

template <class P, Storage kStorage, std::int32_t kKind>
constexpr int kThreads = kStorage == Storage::cluster     ? 32 * kClusterWarps
                         : kStorage != Storage::registers ? 1024
                         : sizeof(P) == 4                 ? 32 * kRegisterTiles[kKind].warps
                                                          : 32 * kTensorWarps;

template <class P, Storage kStorage, std::int32_t kKind>
__global__ void __launch_bounds__(kThreads<P, kStorage, kKind>, 1)
    forward_backward_kernel(const __grid_constant__ ForwardBackwardArgs<P> a) {
  launch_dependents();
  const std::int32_t blocks = kStorage == Storage::cluster ? a.pass.shape.blocks : 1;
  const std::int64_t b = static_cast<std::int32_t>(blockIdx.x) / blocks;
  const int back = blockIdx.y;
  const DeviceStep& layout = a.layout[back];
  if (threadIdx.x == 0 && back == 0 && a.pass.pieces.count == 1) a.trellis.trust[b] = Trust::trusted;
  const WalkShared<P, kStorage> shared(a.pass.shape.rows, layout.K);
  const P *matrix = a.trellis.scores.matrix[back], *sparse = a.trellis.scores.sparse[back];
  if constexpr (kStorage == Storage::registers) {
    constexpr RegisterTile kind = kRegisterTiles[kKind];
    using Steps =
        std::conditional_t<sizeof(P) == 4, RegisterSteps<SumProduct<P>, kind.slots, kind.repeats>, TensorSteps>;
    run_direction(a, StepView(layout), Steps(layout, matrix, sparse), reinterpret_cast<P*>(shared.rest), shared.rows,
                  shared.team_memory);
  } else {
    P* cells = a.pass.shape.cells_on_chip ? reinterpret_cast<P*>(shared.rest)
                                          : a.pass.cells + ((blockIdx.z * std::int64_t{gridDim.x} + b) * 2 + back) *
                                                               cells_in_memory(a.layout[0], a.layout[1]);
    with_general_steps<SumProduct<P>, kStorage>(layout, blocks, matrix, sparse,
                                                [&](const auto& view, const auto& steps) {
                                                  run_direction(a, view, steps, cells, shared.rows, shared.team_memory);
                                                });
  }
}

template <class P, Storage kStorage, std::int32_t kKind = 0>
void launch(const ForwardBackwardArgs<P>& args, cudaStream_t stream) {
  launch_kernel(forward_backward_kernel<P, kStorage, kKind>,
                {.x = args.batch.size * args.pass.shape.blocks,
                 .y = 2,
                 .z = args.pass.pieces.count,
                 .threads = args.pass.shape.threads,
                 .bytes = args.pass.shape.bytes,
                 .cluster = args.pass.shape.blocks},
                stream, args, "forward and backward");
}

}  // namespace

template <class P>
ForwardBackward<P> ForwardBackward<P>::allocate(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch,
                                                const Pieces& pieces, bool gold) {
  const auto blocks = 2 * batch.size * pieces.count;
  ForwardBackward work{pieces, shape_of<P>(c, batch, pieces)};
  work.cells = arena.allocate<P>(work.shape.cells_on_chip ? 0 : blocks * cells_in_memory(c.forward, c.backward));
  work.at_outs = work.shape.storage == Storage::registers && can_be_at_outs(c.combine, work.shape.threads);
  if constexpr (sizeof(P) == 8) work.scan = allocate_scan(arena, c, batch, pieces, gold);
  return work;
}

template <class P>
void ForwardBackward<P>::run(const DeviceConstraint::Impl& c, const ExpectationArgs<P>& call, cudaStream_t stream) {
  const Pieces& pieces = call.pass.pieces;
  if constexpr (sizeof(P) == 8) {
    if (pieces.count > 1)
      run_scan(c, call.batch, pieces, call.trellis.scores, call.pass.scan, call.trellis.trust, call.trellis.leaves,
               stream);
  }
  const ForwardBackwardArgs<P> args{call, {c.forward, c.backward}};
  const Storage storage = call.pass.shape.storage;
  if (storage == Storage::memory) return launch<P, Storage::memory>(args, stream);
  if (storage == Storage::cluster) return launch<P, Storage::cluster>(args, stream);
  if (sizeof(P) == 8 || c.forward.kind == 0) return launch<P, Storage::registers, 0>(args, stream);
  if constexpr (sizeof(P) == 4) {
    if (c.forward.kind == 1) launch<P, Storage::registers, 1>(args, stream);
    if (c.forward.kind == 2) launch<P, Storage::registers, 2>(args, stream);
  }
}

template struct ForwardBackward<float>;
template struct ForwardBackward<double>;

}  // namespace regccrf::cuda
