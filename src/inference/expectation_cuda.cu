// log_z and expected counts on a device. Four kernels:
//   prepare   scores to weights (prepare_cuda.cu)
//   pass      one block a sequence and direction walks the steps and leaves alpha and beta (pass_cuda.cu); where few
//             sequences are long and the automaton is small, two kernels before it share out the steps (scan_cuda.cu)
//   join      blocks of some positions each: marginals, and sums for the bigrams (join_cuda.cu)
//   finish    one value per sequence; bigrams from the blocks' sums
// and wide (wide_cuda.cu), which does again the sequences that could not be trusted.
//
// Trust. Weights and gains are at most 1, and each step begins from a largest value of about 1, so what a step loses to
// the end of its range is at most (number of products) · 2^-126. At every position the join knows the whole weight z =
// Σ alpha · g · beta of the next position; where z is so small that a loss of that size in alpha or beta of this
// position, times the largest that the other can be without w, could reach the tolerance, the sequence is flagged. What
// beta of the next position has lost is judged there, by that position's z.
#include "inference/expectation_cuda.h"
#include "inference/wide_cuda.h"

namespace regccrf::cuda {

namespace {

constexpr std::int64_t kLongestFloat = 256;  // rounding errors of a longer float pass may add up to the tolerance
constexpr std::int64_t kShort = 512;         // positions up to which a small block finishes a sequence

template <class P>
struct FinishArgs {
  DeviceJoin join;
  Kept<P> kept;
  JoinWork<P> joined;
  Expectation wanted;
  Batch batch;
  bool empty;
};

template <class P, int kThreads>
__device__ void finish_sequence(const FinishArgs<P>& a, std::int64_t b) {
  const std::int32_t T = a.kept.scores.length[b], K = a.join.K;
  const std::int64_t at = b * a.batch.length;
  Exact sum;
  for (std::int32_t t = threadIdx.x; t < T; t += kThreads) {
    sum.add(a.kept.scores.shift[at + t]);
    sum.add(a.kept.exponent[0][at + t] * 0.693147180559945309417232121458);
  }
  if (threadIdx.x == 0 && T > 0) {
    for (int n = 0; n < 2; ++n) sum.add(a.kept.scores.shifts[1 + n]);
    sum.add(a.kept.scores.shifts[0] * (T - 1));
    sum.add(::log(a.kept.z[at + T - 1]));
  }
  double value = T > 0 ? block_sum<kThreads>(sum) : a.empty ? 0.0 : -INFINITY;
  if (a.wanted.gold) {
    const std::int64_t* row = a.kept.scores.row + at;
    const double gold =
        block_sum<kThreads>(path_score(a.batch, K, T, row, [&](std::int32_t t) { return a.kept.scores.gold[at + t]; }));
    const bool outside = a.kept.leaves[b] >= 0 || gold == -INFINITY;
    value = outside ? INFINITY : value - gold;
    if (threadIdx.x == 0 && outside && a.wanted.status[b].outcome == 0) {
      a.wanted.status[b].outcome = static_cast<std::int32_t>(Outcome::outside);
      a.wanted.status[b].position = a.kept.leaves[b];
    }
  } else if (threadIdx.x == 0 && T == 0 && !a.empty) {
    a.wanted.status[b].outcome = static_cast<std::int32_t>(Outcome::impossible);
  }
  if (threadIdx.x == 0) {
    if (*a.kept.scores.bad) a.wanted.status[b].outcome = static_cast<std::int32_t>(Outcome::bad_transition);
    const std::int32_t outcome = a.wanted.status[b].outcome;
    const bool bad = outcome == static_cast<std::int32_t>(Outcome::bad_score) ||
                     outcome == static_cast<std::int32_t>(Outcome::bad_transition);
    a.wanted.value[b] = bad ? NAN : value;
    if (bad || (a.wanted.gold && value == INFINITY)) a.kept.flag[b] = 2;  // nothing to do again; counts are zeros
  }
}

// A thread has a bigram; where sequences are long, a lane has one, and the block's warps (parts) share the chunks of
// the sequence and the positions of gold. What they find is added in their order.
template <class P, int kThreads, int kParts>
__device__ void finish_transitions(const FinishArgs<P>& a, std::int64_t b) {
  constexpr std::int32_t together = kThreads / kParts;
  __shared__ std::int32_t bigram[kThreads];
  __shared__ double sums[kParts][together];
  const std::int32_t T = a.kept.scores.length[b], K = a.join.K, thread = static_cast<std::int32_t>(threadIdx.x),
                     part = thread / together;
  const std::int64_t pair = (std::int64_t{blockIdx.x} - 1) * together + thread % together, pairs = std::int64_t{K} * K;
  double sum = 0;
  if (pair < pairs && T > 1) {
    const std::int32_t chunks = (T - 1 + a.joined.chunk - 1) / a.joined.chunk;  // where bigrams begin
    const double* inverse = a.joined.inverse + b * a.joined.chunks;
    for (std::int32_t e = a.join.pair_begin[pair]; e < a.join.pair_begin[pair + 1]; ++e) {
      const P* from = a.joined.sums + b * a.joined.chunks * a.joined.entries + a.join.pair_entry[e];
#pragma unroll 16
      for (std::int32_t c = part; c < chunks; c += kParts)
        sum += static_cast<double>(from[std::int64_t{c} * a.joined.entries]) * inverse[c];
    }
    if (sum != 0) sum *= exp(score_at(a.batch.transitions, a.batch.type, pair) - a.kept.scores.shifts[0]);
  }
  if (a.wanted.gold) {
    const std::int32_t* gold = a.kept.scores.gold + b * a.batch.length;
    std::int32_t seen = 0;
    for (std::int32_t first = 1; first < T; first += kThreads) {
      const std::int32_t t = first + thread;
      __syncthreads();
      bigram[thread] = t < T && gold[t - 1] >= 0 && gold[t] >= 0 ? gold[t - 1] * K + gold[t] : -1;
      __syncthreads();
      const std::int32_t count = min(kThreads, T - first);
#pragma unroll 8
      for (std::int32_t i = part; i < count; i += kParts) seen += bigram[i] == pair;
    }
    sum -= seen;
  }
  if constexpr (kParts > 1) {
    sums[part][thread % together] = sum;
    __syncthreads();
    if (part != 0) return;
    for (std::int32_t p = 1; p < kParts; ++p) sum += sums[p][thread];
  }
  if (pair < pairs) write_score(a.wanted.transitions, a.batch.type, b * pairs + pair, sum);
}

template <class P, int kThreads, int kParts>
__global__ void __launch_bounds__(kThreads) finish_kernel(const __grid_constant__ FinishArgs<P> a) {
  if (blockIdx.x == 0) {
    finish_sequence<P, kThreads>(a, blockIdx.y);
  } else {
    finish_transitions<P, kThreads, kParts>(a, blockIdx.y);
  }
}

template <class P, int kThreads, int kParts>
void launch_finish(const FinishArgs<P>& args, cudaStream_t stream) {
  constexpr std::int64_t together = kThreads / kParts;
  const std::int64_t K = args.join.K, blocks = args.wanted.transitions ? 1 + (K * K + together - 1) / together : 1;
  launch_kernel(finish_kernel<P, kThreads, kParts>,
                dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(args.batch.size)), kThreads, 0, stream, args,
                "finishing");
}

template <class P>
void finish(const FinishArgs<P>& args, cudaStream_t stream) {
  if (args.batch.length > kShort) {
    launch_finish<P, 1024, 32>(args, stream);
  } else {
    launch_finish<P, 256, 1>(args, stream);
  }
}

template <class P>
Kept<P> cut_kept(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, const PassWork<P>& pass) {
  const auto B = static_cast<std::size_t>(batch.size), BT = static_cast<std::size_t>(batch.size * batch.length);
  Kept<P> kept{};
  kept.scores = cut_prepared<P>(cutter, c, batch, true);
  kept.alpha = cutter.take<P>(BT * static_cast<std::size_t>(c.forward.cells));
  kept.beta = cutter.take<P>(BT * static_cast<std::size_t>(pass.at_outs ? c.join.outs : c.backward.cells));
  for (auto*& e : kept.exponent) e = cutter.take<std::int32_t>(BT);
  kept.z = cutter.take<double>(BT);
  kept.flag = cutter.take<std::int32_t>(B);
  kept.leaves = cutter.take<std::int32_t>(B);
  return kept;
}

// All memory of a call.
template <class P>
struct Work {
  Kept<P> kept;
  PassWork<P> pass;
  JoinWork<P> join;
  WideWork wide;
};
template <class P>
Work<P> cut_work(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted,
                 const Pieces& pieces) {
  Work<P> work{};
  work.pass = cut_pass<P>(cutter, c, batch, pieces, wanted.gold != nullptr);
  work.kept = cut_kept<P>(cutter, c, batch, work.pass);
  work.join = cut_join<P>(cutter, c, batch, wanted);
  work.wide = cut_wide(cutter, c, batch, wanted.transitions != nullptr);
  return work;
}

template <class P>
std::size_t bytes_as(const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted,
                     const Pieces& pieces) {
  Cutter cutter(Memory{});
  cut_work<P>(cutter, c, batch, wanted, pieces);
  return cutter.used();
}

template <class P>
void run_as(const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted, const Pieces& pieces,
            Memory memory, cudaStream_t stream) {
  Cutter cutter(memory);
  const Work<P> work = cut_work<P>(cutter, c, batch, wanted, pieces);
  prepare<P>(c, batch, work.kept.scores, Scale::probability, true, wanted.status, wanted.gold, stream);
  run_pass<P>(c, batch, work.kept, work.pass, stream);
  run_join<P>(c, batch, work.kept, work.pass, work.join, wanted, stream);

  finish<P>({c.join, work.kept, work.join, wanted, batch, c.topology.empty != 0}, stream);
  again_wide(c, batch, wanted, {work.kept.scores.length, work.kept.scores.row, work.kept.flag}, work.wide, stream);
}

// Float where its errors stay below the tolerance, else double; a scan is in double.
bool in_float(const Batch& batch, const Pieces& pieces = {}) {
  return batch.type == Type::f32 && batch.length <= kLongestFloat && pieces.count == 1;
}

Pieces pieces_for(const DeviceConstraint& constraint, const Batch& batch) {
  const std::int32_t nodes = constraint.impl().topology.nodes;
  return choose_pieces(constraint, batch, expectation_costs(nodes, in_float(batch)));
}

}  // namespace

std::size_t expectation_bytes(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted,
                              const Pieces& pieces) {
  return in_float(batch, pieces) ? bytes_as<float>(constraint.impl(), batch, wanted, pieces)
                                 : bytes_as<double>(constraint.impl(), batch, wanted, pieces);
}
std::size_t expectation_bytes(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted) {
  return expectation_bytes(constraint, batch, wanted, pieces_for(constraint, batch));
}

void expectation(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted,
                 const Pieces& pieces, Memory memory, void* stream) {
  check_batch("expectation", batch);
  if (batch.size == 0) return;
  const auto s = static_cast<cudaStream_t>(stream);
  if (in_float(batch, pieces)) {
    run_as<float>(constraint.impl(), batch, wanted, pieces, memory, s);
  } else {
    run_as<double>(constraint.impl(), batch, wanted, pieces, memory, s);
  }
}
void expectation(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted, Memory memory,
                 void* stream) {
  expectation(constraint, batch, wanted, pieces_for(constraint, batch), memory, stream);
}

}  // namespace regccrf::cuda
