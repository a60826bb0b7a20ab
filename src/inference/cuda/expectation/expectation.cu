// log_z and expected counts on a device. Four kernels:
//   prepare   scores to weights (prepare.cu)
//   pass      one block a sequence and direction walks the steps and stores alpha and beta (forward_backward.cu); for
//             few long sequences under a small automaton, kernels before it cut those into pieces (scan.cu)
//   combine   blocks of some positions each: marginals, and sums for the bigrams (combine.cu)
//   finish    one value per sequence; bigrams from the blocks' sums
// and wide (wide.cu), which recomputes the sequences that could not be trusted, and reduces the values to a loss.
//
// A sequence is trusted where alpha and beta find the same sum over all paths, each from its own end (bounds.h).
#include <utility>

#include "inference/cuda/bounds.h"
#include "inference/cuda/expectation/expectation.h"
#include "inference/cuda/wide/wide.h"
#include "inference/numerics/limits.h"
#include "inference/numerics/wide.h"

namespace regccrf::cuda {

namespace {

constexpr std::int64_t kShort = 512;  // positions up to which a small block finishes a sequence

// The thread's share of the sum over all paths as beta has it. By the last threads, since the first have other things
// to do.
template <class P, int kThreads>
__device__ Sum from_beta(const ExpectationArgs<P>& a, std::int64_t b) {
  const Starts& starts = a.topology.starts[a.pass.at_outs];
  const P* beta =
      a.trellis.beta + b * a.batch.length * std::int64_t{a.pass.at_outs ? a.combine.outs : a.combine.backward_cells};
  Sum sum;
  for (std::int32_t i = kThreads - 1 - static_cast<std::int32_t>(threadIdx.x); i < starts.count; i += kThreads) {
    const P cell = Downwards::weight(beta[starts.place[i]]),
            start = Downwards::weight(a.trellis.scores.start[starts.label[i]]);
    sum.add(static_cast<double>(cell) * static_cast<double>(start));
  }
  return sum;
}

// Whether x · 2^e is y but for rounding; y is no extreme number where that is so.
__device__ bool agree(double x, std::int64_t e, double y, double rounding) {
  if (e < -1000 || e > 1000) return false;
  const double same = x * __hiloint2double(static_cast<int>(1023 + e) << 20, 0);
  return fabs(same - y) < rounding * y;
}

template <class P, int kThreads>
__device__ void finish_sequence(const ExpectationArgs<P>& a, std::int64_t b) {
  const std::int32_t T = a.trellis.scores.length[b], K = a.combine.K;
  const std::int64_t at = b * a.batch.length;
  enum { of_paths, of_gold, of_beta, count };  // logs of the sum over all paths and of gold, and that sum by beta
  Sum sum[count];
  bool bad_score = false;
  for (std::int32_t t = threadIdx.x; t < T; t += kThreads) {
    const double shift = a.trellis.scores.shift[at + t];
    bad_score = bad_score || isnan(shift);
    sum[of_paths].add(shift);
  }
  if (a.wanted.gold)
    sum[of_gold] = path_score(a.batch, K, T, a.trellis.scores.row + at,
                              [&](std::int32_t t) { return a.trellis.scores.gold[at + t]; });
  bad_score = __syncthreads_or(bad_score);
  Status status{};
  if (threadIdx.x == 0) status = status_of(a.batch, a.trellis.scores, b, T, K, bad_score);
  wait_for_prior_kernel();  // until here, nothing of the pass and the combine
  const double z = T > 0 ? a.trellis.z[at + T - 1] : 0;
  const std::int64_t total_exponent = a.trellis.total_exponent[0][b],
                     apart = total_exponent - a.trellis.total_exponent[1][b];
  if (threadIdx.x == kThreads / 2 && T > 0) {
    for (int n = 0; n < 2; ++n) sum[of_paths].add(a.trellis.scores.shifts[1 + n]);
    sum[of_paths].add(a.trellis.scores.shifts[0], T - 1);
    sum[of_paths].add(kLn2, static_cast<double>(total_exponent));
    sum[of_paths].add(kLn2Rest, static_cast<double>(total_exponent));
    sum[of_paths].add(::log(z));
  }
  if (T > 0) sum[of_beta] = from_beta<P, kThreads>(a, b);
  block_sums<kThreads>(sum);
  if (threadIdx.x != 0) return;

  const std::int32_t* grown = a.pass.scan.boundaries.grown;
  if (grown && grown[b] > Bounds<double>::most_growth) a.trellis.trust[b] = Trust::untrusted;
  if (T > 0 && !agree(z, apart, sum[of_beta].value(), kAgreement<P>)) a.trellis.trust[b] = Trust::untrusted;
  double value = T > 0 ? sum[of_paths].value() : a.topology.empty ? 0.0 : -INFINITY;
  const bool bad = status.outcome != 0;
  bool outside = false;
  if (a.wanted.gold) {
    const double gold = sum[of_gold].value();
    outside = a.trellis.leaves[b] >= 0 || gold == -INFINITY;
    value = outside ? INFINITY : value - gold;
    if (outside && !bad) {
      status.outcome = static_cast<std::int32_t>(Outcome::outside);
      status.position = a.trellis.leaves[b];
    }
  } else if (T == 0 && !a.topology.empty && !bad) {
    status.outcome = static_cast<std::int32_t>(Outcome::impossible);
  }
  a.wanted.status[b] = status;
  a.wanted.value[b] = bad ? NAN : value;
  if (bad || outside) a.trellis.trust[b] = Trust::not_counted;  // nothing to do again; counts are zeros
}

// How often gold has each of `kCount` bigrams from `first` on. The whole block takes part.
template <int kThreads, int kCount>
__device__ void count_gold(const std::int32_t* gold, std::int32_t T, std::int32_t K, std::int64_t first,
                           std::int32_t (&seen)[kCount]) {
  if (threadIdx.x < kCount) seen[threadIdx.x] = 0;
  __syncthreads();
  for (std::int32_t t = 1 + static_cast<std::int32_t>(threadIdx.x); t < T; t += kThreads) {
    const std::int64_t bigram = std::int64_t{gold[t - 1]} * K + gold[t] - first;
    if (gold[t - 1] >= 0 && gold[t] >= 0 && bigram >= 0 && bigram < kCount) atomicAdd(seen + bigram, 1);
  }
  __syncthreads();
}

// A thread has a bigram; where sequences are long, a lane has one, and the block's warps (parts) share the chunks of
// the sequence. What they find is added in their order.
template <class P, int kThreads, int kParts>
__device__ void finish_transitions(const ExpectationArgs<P>& a, std::int64_t b, std::uint32_t block) {
  constexpr std::int32_t together = kThreads / kParts;
  __shared__ std::int32_t seen[together];
  __shared__ double sums[kParts][together];
  const std::int32_t T = a.trellis.scores.length[b], K = a.combine.K, thread = static_cast<std::int32_t>(threadIdx.x),
                     part = thread / together, own = thread % together;
  const std::int64_t first = std::int64_t{block} * together, pair = first + own, pairs = std::int64_t{K} * K;
  if (a.wanted.gold) count_gold<kThreads>(a.trellis.scores.gold + b * a.batch.length, T, K, first, seen);
  std::int32_t begin = 0, end = 0;
  double gain = 0, sum = 0;
  if (pair < pairs && T > 1) {
    begin = a.combine.pair_begin[pair];
    end = a.combine.pair_begin[pair + 1];
    if (begin < end) gain = exp(score_at(a.batch.transitions, pair) - a.trellis.scores.shifts[0]);
  }
  wait_for_prior_kernel();  // until here, nothing of the combine
  if (begin < end) {
    const std::int32_t chunks = ceil_div(T - 1, a.work.shape.chunk);  // where bigrams begin
    const double* inverse = a.work.inverse + b * a.work.shape.chunks;
    for (std::int32_t e = begin; e < end; ++e) {
      const P* from = a.work.sums + b * a.work.shape.chunks * a.work.entries + a.combine.pair_entry[e];
#pragma unroll 16
      for (std::int32_t c = part; c < chunks; c += kParts)
        sum += static_cast<double>(from[std::int64_t{c} * a.work.entries]) * inverse[c];
    }
    if (sum != 0) sum *= gain;
  }
  if constexpr (kParts > 1) {
    sums[part][own] = sum;
    __syncthreads();
    if (part != 0) return;
    for (std::int32_t p = 1; p < kParts; ++p) sum += sums[p][own];
  }
  if (a.wanted.gold) sum -= seen[own];
  if (pair < pairs) write_number(a.wanted.transitions, b * pairs + pair, sum);
}

// A block for each sequence, then those of the bigrams: the first take longest.
template <class P, int kThreads, int kParts>
__global__ void __launch_bounds__(kThreads) finish_kernel(const __grid_constant__ ExpectationArgs<P> a) {
  launch_dependents();
  const auto B = static_cast<std::uint32_t>(a.batch.size), part = blockIdx.x / B, b = blockIdx.x % B;
  if (part == 0) {
    finish_sequence<P, kThreads>(a, b);
  } else {
    finish_transitions<P, kThreads, kParts>(a, b, part - 1);
  }
}

template <class P>
void finish(const ExpectationArgs<P>& args, bool programmatic, cudaStream_t stream) {
  const bool is_short = args.batch.length <= kShort;
  const std::int64_t K = args.combine.K, together = is_short ? 256 : 1024 / 32,  // bigrams of a block
      blocks = args.wanted.transitions ? 1 + ceil_div(K * K, together) : 1;
  if (blocks * args.batch.size > INT32_MAX) throw Error("[cuda] too many bigrams in one batch: split it");
  launch_kernel(is_short ? finish_kernel<P, 256, 1> : finish_kernel<P, 1024, 32>,
                {.x = blocks * args.batch.size, .threads = is_short ? 256 : 1024, .programmatic = programmatic}, stream,
                args, "finishing");
}

template <class P>
Trellis<P> allocate_trellis(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch,
                            const ForwardBackward<P>& pass) {
  const std::int64_t B = batch.size, BT = batch.size * batch.length;
  Trellis<P> trellis{};
  trellis.scores = allocate_prepared<P>(arena, c, batch, true);
  trellis.alpha = arena.allocate<P>(BT * std::int64_t{c.forward.cells});
  trellis.beta = arena.allocate<P>(BT * std::int64_t{pass.at_outs ? c.combine.outs : c.backward.cells});
  for (auto*& e : trellis.exponent) e = arena.allocate<std::int32_t>(BT);
  for (auto*& e : trellis.total_exponent) e = arena.allocate<std::int64_t>(B);
  trellis.z = arena.allocate<double>(BT);
  trellis.trust = arena.allocate<std::int32_t>(B);
  trellis.leaves = arena.allocate<std::int32_t>(B);
  return trellis;
}

// A call with all its memory.
template <class P>
std::pair<ExpectationArgs<P>, WideMemory<Wide>> allocate_memory(Arena& arena, const DeviceConstraint::Impl& c,
                                                                const Batch& batch, const Expectation& wanted,
                                                                const Pieces& pieces) {
  ExpectationArgs<P> call{c.combine, c.topology, batch, wanted};
  call.pass = ForwardBackward<P>::allocate(arena, c, batch, pieces, wanted.gold != nullptr);
  call.trellis = allocate_trellis<P>(arena, c, batch, call.pass);
  call.work = Combine<P>::allocate(arena, c, batch, wanted);
  return {call, allocate_wide<Wide>(arena, c, batch, wanted.emissions || wanted.transitions)};
}

template <class P>
void run_as(const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted, const Pieces& pieces,
            Memory memory, cudaStream_t stream, const Loss* loss) {
  Arena arena(memory);
  const auto [call, wide] = allocate_memory<P>(arena, c, batch, wanted, pieces);
  const Prepared<P>& scores = call.trellis.scores;
  prepare<P>(c, batch, scores, Scale::probability, wanted.gold, stream);
  ForwardBackward<P>::run(c, call, stream);
  Combine<P>::run(c, call, stream);
  finish(call, c.programmatic, stream);
  const WideScores rows{c.topology, batch, {}, 1, scores.length, scores.row};
  recompute_wide(c, {rows, wanted, call.trellis.trust, wide, loss ? *loss : Loss{}, scores.blocks_done}, stream);
}

// Float where its errors stay below the tolerance, else double; a scan is in double.
bool in_float(const Batch& batch, const Pieces& pieces = {}) {
  return batch.type() == Type::f32 && batch.length <= kLongestFloat && pieces.count == 1;
}

Pieces pieces_for(const DeviceConstraint& constraint, const Batch& batch) {
  const std::int32_t nodes = constraint.impl().topology.nodes;
  return choose_pieces(constraint, batch, expectation_costs(nodes, in_float(batch)));
}

}  // namespace

std::size_t expectation_bytes(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted,
                              const Pieces& pieces) {
  Arena arena(Memory{});
  if (in_float(batch, pieces)) {
    allocate_memory<float>(arena, constraint.impl(), batch, wanted, pieces);
  } else {
    allocate_memory<double>(arena, constraint.impl(), batch, wanted, pieces);
  }
  return arena.used();
}
std::size_t expectation_bytes(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted) {
  return expectation_bytes(constraint, batch, wanted, pieces_for(constraint, batch));
}

void expectation(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted,
                 const Pieces& pieces, Memory memory, void* stream, const Loss* loss) {
  check_batch("expectation", batch);
  if (batch.size == 0) return loss ? reduce(0, *loss, stream) : void();
  const auto s = static_cast<cudaStream_t>(stream);
  if (in_float(batch, pieces)) {
    run_as<float>(constraint.impl(), batch, wanted, pieces, memory, s, loss);
  } else {
    run_as<double>(constraint.impl(), batch, wanted, pieces, memory, s, loss);
  }
}
void expectation(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted, Memory memory,
                 void* stream, const Loss* loss) {
  expectation(constraint, batch, wanted, pieces_for(constraint, batch), memory, stream, loss);
}

}  // namespace regccrf::cuda
