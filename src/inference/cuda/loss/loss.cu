// A loss and its gradients from what each sequence has on its own: a kernel for each.
//
// A gradient is a sum over sequences of weight · counts. The blocks of the second kernel have four kinds of work, side
// by side: pieces of 32 numbers of the transitions' gradient, the start's and the end's, where a warp takes every
// eighth sequence, a lane one number, and the warps' sums are added in order; and rows of the emissions', which need no
// sum.
#include "inference/cuda/loss/loss.h"

namespace regccrf::cuda {

namespace {

constexpr int kThreads = 256, kLanes = 32, kWarps = kThreads / kLanes;

// Of f32 or f64.
template <class AnArray>
__device__ double number_at(const AnArray& numbers, std::int64_t i) {
  return numbers.type == Type::f64 ? static_cast<const double*>(numbers.data)[i]
                                   : static_cast<const float*>(numbers.data)[i];
}

// --- the loss

struct ReduceArgs {
  std::int64_t size;
  Loss loss;
};

__global__ void reduce_kernel(ReduceArgs a) { reduce_values<kThreads>(a.size, a.loss); }

// --- its gradients

struct GradientArgs {
  Batch batch;
  LossGradients to;
  std::int64_t K, row_blocks, transition_blocks, label_blocks;  // label_blocks: of start, and of end
};

// What sequence i adds of a number: 0 if it is not fine, whatever the number is then. No load depends on another, so
// that all are in flight at once.
__device__ double scaled(const LossGradients& to, std::int64_t i, double number) {
  const double weight = *to.saved.scale * number_at(to.weights, i * to.weights_stride);
  return fine(to.saved.status[i]) ? weight * number : 0;
}

// One number of the emissions' gradient by each thread, in the order of memory. Index: a number of them all.
template <class Index>
__device__ void scale_rows(const GradientArgs& a, std::int64_t block) {
  const Batch& batch = a.batch;
  const auto K = static_cast<Index>(a.K), at = static_cast<Index>(block) * kThreads + static_cast<Index>(threadIdx.x),
             n = at / K, label = at - n * K;
  if (n >= static_cast<Index>(batch.size * batch.length)) return;
  const bool by_sequence = batch.batch_stride >= batch.time_stride;
  const auto inner = static_cast<Index>(by_sequence ? batch.length : batch.size);
  const Index outer = n / inner, rest = n - outer * inner, i = by_sequence ? outer : rest,
              t = by_sequence ? rest : outer;
  const std::int64_t row = i * batch.batch_stride + t * batch.time_stride, place = row * a.K + label;
  const bool here = !batch.mask || batch.mask[row];
  const double x = scaled(a.to, i, number_at(a.to.saved.emissions, place));
  write_number(a.to.emissions, place, here ? x : 0);
}

constexpr int kTogether = 8;  // sequences that a warp has in flight

// Sums of this lane's number over the sequences, by the whole block. places(i, to): where each of those sequences has
// it among `numbers`, or -1; asked by whole warps.
template <class Places>
__device__ void scaled_sums(const GradientArgs& a, const Array& numbers, const Array& out, std::int64_t at,
                            std::int64_t size, const Places& places) {
  __shared__ double sums[kWarps][kLanes];
  const int warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  double sum = 0;
  for (std::int64_t begin = warp; begin < a.batch.size; begin += kTogether * kWarps) {
    std::int64_t i[kTogether], place[kTogether];
    double x[kTogether];
#pragma unroll
    for (int n = 0; n < kTogether; ++n) i[n] = begin + n * kWarps < a.batch.size ? begin + n * kWarps : begin;
    places(i, place);
#pragma unroll
    for (int n = 0; n < kTogether; ++n) x[n] = scaled(a.to, i[n], number_at(numbers, max(place[n], std::int64_t{0})));
#pragma unroll
    for (int n = 0; n < kTogether; ++n) sum += begin + n * kWarps < a.batch.size && place[n] >= 0 ? x[n] : 0;
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || at >= size) return;
  for (int w = 1; w < kWarps; ++w) sum += sums[w][lane];
  write_number(out, at, sum);
}

__device__ void sum_transitions(const GradientArgs& a, std::int64_t block) {
  const std::int64_t size = a.K * a.K, at = block * kLanes + threadIdx.x % kLanes, from = min(at, size - 1);
  scaled_sums(a, a.to.saved.transitions, a.to.transitions, at, size,
              [&](const std::int64_t(&i)[kTogether], std::int64_t(&to)[kTogether]) {
#pragma unroll
                for (int n = 0; n < kTogether; ++n) to[n] = i[n] * size + from;
              });
}

// The rows of sequences, from one end. A warp looks at 32 positions at a time.
class FromAnEnd {
 public:
  __device__ FromAnEnd(const Batch& batch, bool last) : batch_(batch), last_(last) {}
  __device__ std::int64_t row(std::int64_t i, std::int64_t n) const {
    return i * batch_.batch_stride + (last_ ? batch_.length - 1 - n : n) * batch_.time_stride;
  }
  // Whether the lane's position, from `begin` on, is present.
  __device__ bool here(std::int64_t i, std::int64_t begin) const {
    const std::int64_t n = begin + threadIdx.x % kLanes;
    return n < batch_.length && (!batch_.mask || batch_.mask[row(i, n)]);
  }
  // The first that is, if the first 32 are `here`; -1: there is none.
  __device__ std::int64_t first_present(std::int64_t i, bool here_at_first) const {
    unsigned found = __ballot_sync(kAllLanes, here_at_first);
    std::int64_t begin = 0;
    while (!found && (begin += kLanes) < batch_.length) found = __ballot_sync(kAllLanes, here(i, begin));
    return found ? row(i, begin + __ffs(static_cast<int>(found)) - 1) : -1;
  }

 private:
  const Batch& batch_;
  bool last_;
};

__device__ void sum_ends(const GradientArgs& a, std::int64_t block, bool last) {
  const std::int64_t at = block * kLanes + threadIdx.x % kLanes;
  const Array& out = last ? a.to.end : a.to.start;
  if (a.batch.length == 0) {  // no numbers at all
    if (threadIdx.x < kLanes && at < a.K) write_number(out, at, 0);
    return;
  }
  const FromAnEnd rows(a.batch, last);
  scaled_sums(a, a.to.saved.emissions, out, at, a.K,
              [&](const std::int64_t(&i)[kTogether], std::int64_t(&to)[kTogether]) {
                bool here[kTogether];
#pragma unroll
                for (int n = 0; n < kTogether; ++n) here[n] = rows.here(i[n], 0);
#pragma unroll
                for (int n = 0; n < kTogether; ++n) {
                  const std::int64_t row = rows.first_present(i[n], here[n]);
                  to[n] = row < 0 ? -1 : row * a.K + min(at, a.K - 1);
                }
              });
}

__global__ void gradients_kernel(GradientArgs a) {
  std::int64_t block = blockIdx.x;  // sums first: they take longest
  if (block < a.transition_blocks) return sum_transitions(a, block);
  block -= a.transition_blocks;
  for (const bool last : {false, true}) {
    if (!(last ? a.to.end : a.to.start).data) continue;
    if (block < a.label_blocks) return sum_ends(a, block, last);
    block -= a.label_blocks;
  }
  if (a.row_blocks * kThreads <= INT32_MAX) return scale_rows<std::int32_t>(a, block);
  scale_rows<std::int64_t>(a, block);
}

Expectation expectation_of(const Batch& batch, const Loss& loss) {
  const SavedForBackward& saved = loss.saved;
  Expectation wanted{saved.value, saved.emissions, saved.transitions, saved.status, nullptr};
  if (loss.objective != Objective::nll) return wanted;
  wanted.gold = loss.gold;
  if (!wanted.gold) wanted.gold = static_cast<const std::int64_t*>(batch.transitions.data);  // T = 0: never read
  return wanted;
}

Entropy entropy_of(const Loss& loss) {
  return {loss.saved.value, loss.saved.emissions, loss.saved.transitions, loss.saved.status};
}

}  // namespace

std::size_t loss_bytes(const DeviceConstraint& constraint, const Batch& batch, const Loss& loss) {
  if (batch.size == 0) return 0;
  return loss.objective == Objective::entropy ? entropy_bytes(constraint, batch, entropy_of(loss))
                                              : expectation_bytes(constraint, batch, expectation_of(batch, loss));
}

void loss(const DeviceConstraint& constraint, const Batch& batch, const Loss& loss, Memory memory, void* stream) {
  if (loss.objective != Objective::entropy)
    return expectation(constraint, batch, expectation_of(batch, loss), memory, stream, &loss);
  entropy(constraint, batch, entropy_of(loss), memory, stream);
  reduce(batch.size, loss, stream);
}

void reduce(std::int64_t size, const Loss& loss, void* stream) {
  launch_kernel(reduce_kernel, {.x = 1, .threads = kThreads}, static_cast<cudaStream_t>(stream), {size, loss},
                "a loss");
}

void loss_gradients(const Batch& batch, std::int32_t labels, const LossGradients& gradients, void* stream) {
  const std::int64_t K = labels;
  GradientArgs args{batch, gradients, K, 0, 0, ceil_div(K, kLanes)};
  if (gradients.emissions) args.row_blocks = ceil_div(batch.size * batch.length * K, kThreads);
  if (gradients.transitions) args.transition_blocks = ceil_div(K * K, kLanes);
  const std::int64_t ends = (gradients.start.data != nullptr) + (gradients.end.data != nullptr),
                     blocks = args.row_blocks + args.transition_blocks + ends * args.label_blocks;
  if (blocks == 0) return;
  if (blocks > INT32_MAX) throw Error("[cuda] too many scores in one batch: split it");
  launch_kernel(gradients_kernel, {.x = blocks, .threads = kThreads}, static_cast<cudaStream_t>(stream), args,
                "gradients of a loss");
}

}  // namespace regccrf::cuda
