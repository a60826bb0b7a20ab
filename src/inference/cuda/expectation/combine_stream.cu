// The join where a position is small (combine.cu says what it computes): positions stream through a block.
//
// A block has a chunk of neighbouring positions of one sequence, as many as make one wave of blocks. They come on chip
// one after the other, into a few slots in turn: whoever is the last to be done with a position asks for the one that
// takes its slot, and nobody waits for anybody else. Each warp has its own thing to do:
//   patch    of a group's matrix: bigrams, on the tensor cores in double, added up over all positions
//   pairs    labels, so marginals and z, and thin states' bigrams; every kPairWarps-th position
#include <algorithm>

#include "inference/cuda/expectation/combine_stream.h"

namespace regccrf::cuda {

namespace {

// Positions on chip. A warp waits for every filling of the slots that it looks at, and holds it until it has, since a
// mailbox tells no more than odd from even: warps of pairs look at one slot and the next.
constexpr int kSlots = 4, kPairWarps = kSlots;
constexpr int kLeastChunk = 4;
constexpr int kMostWarps = 16, kRegisters = 64;
constexpr int kMostLabels = 64, kMostRounds = 48;  // as many of labels and of thin states

struct Head {
  Units units;
  Mailbox full[kSlots];
  std::int32_t done[kSlots];  // warps that are, with all positions that have been there
  float one[2];               // 1 and 0: y of ends
  // Of the labels' rounds at nodes.
  std::int32_t key[kMostRounds], begin[kMostLabels + 1];
};

// Of a warp that has pairs.
struct Scratch {
  float label[kMostLabels];  // what its pairs are multiplied by, then their sum
  float share[kMostRounds];
  double thin[kMostRounds];  // over all of the warp's positions
  std::int64_t row;          // where the position's marginals go
  std::int32_t gold;
};

// Where a block's arrays begin, in bytes.
struct Layout {
  std::int32_t m, y, scratch, bytes;
};
Layout layout_of(const DeviceJoin& join) {
  Layout l{};
  const auto take = [&](std::int64_t count) {
    const std::int32_t at = l.bytes;
    l.bytes += aligned(count * std::int64_t{sizeof(float)});
    return at;
  };
  l.bytes = aligned(sizeof(Head));
  l.m = take(kSlots * join.places);  // a patch may read past its last slot, whatever is there …
  l.y = take(kSlots * join.outs);    // … and past its last out
  l.bytes += aligned(kPatchColumns * std::int64_t{sizeof(float)});
  l.scratch = l.bytes;
  l.bytes += kPairWarps * static_cast<int>(sizeof(Scratch));
  return l;
}

struct Args {
  DeviceJoin join;
  DeviceTopology topology;
  Kept<float> kept;
  JoinWork<float> work;
  Layout layout;
  std::int64_t T;
  std::uint32_t batch;  // sequences
  GoldBlocks gold_blocks;
  bool gold;
  float* emissions;  // [rows, K] or null
};

// Whether bigrams are wanted, and there are any, of patches and of thin states.
__device__ bool wants_patches(const Args& a) { return a.work.entries > 0 && a.join.patches > 0; }
__device__ bool wants_thin(const Args& a) { return a.work.entries > 0 && a.join.sparse.rounds > 0; }

// A block's chunk, and the slots that it streams through.
class Stream {
 public:
  std::int64_t b, at;           // its sequence, and where its first position lies in [B, T]
  std::int32_t number;          // of the sequence's chunks
  std::int32_t count, bigrams;  // positions that are there, and where a bigram begins
  Head* head;
  Scratch* scratch;  // of each warp that has pairs

  __device__ Stream(const Args& a, char* shared, std::uint32_t index) : a_(a) {
    number = static_cast<std::int32_t>(index / a.batch);
    b = index % a.batch;
    const std::int32_t first = number * a.work.chunk, T = a.kept.scores.length[b];
    at = b * a.T + first;
    count = min(a.work.chunk, T - first);
    bigrams = min(a.work.chunk, T - 1 - first);
    head = reinterpret_cast<Head*>(shared);
    m_ = reinterpret_cast<float*>(shared + a.layout.m);
    y_ = reinterpret_cast<float*>(shared + a.layout.y);
    scratch = reinterpret_cast<Scratch*>(shared + a.layout.scratch);
    // Of beta one more than there are positions, if another chunk follows and somebody wants bigrams.
    rows_ = wants_patches(a) || wants_thin(a) ? max(count, bigrams + 1) : count;
    // Warps of patches, the one that has the position's pairs, and the one before that, whose thin bigrams end there.
    users_ = (wants_patches(a) ? a.join.patches : 0) + 1 + (wants_thin(a) ? 1 : 0);
  }

  __device__ float* sums() const { return a_.work.sums + (b * a_.work.chunks + number) * a_.work.entries; }

  // By one thread.
  __device__ void begin() {
    for (int slot = 0; slot < kSlots; ++slot) {
      open_mailbox(&head->full[slot]);
      head->done[slot] = 0;
    }
    head->one[0] = 1;
    head->one[1] = 0;
#pragma unroll 1
    for (std::int32_t j = 0; j < kSlots && j < rows_; ++j) ask_for(j);
  }

  __device__ const float* m(std::int32_t j) const { return m_ + j % kSlots * a_.join.places; }
  __device__ const float* y(std::int32_t j) const { return y_ + j % kSlots * a_.join.outs; }
  __device__ void wait(std::int32_t j) const {
    wait_for(&head->full[j % kSlots], static_cast<std::uint32_t>(j / kSlots));
  }
  // By a warp that is done with position j.
  __device__ void leave(std::int32_t j) {
    __syncwarp();
    if (lane_of() != 0 || j + kSlots >= rows_) return;
    __threadfence_block();
    if (atomicAdd(&head->done[j % kSlots], 1) + 1 < users_ * (j / kSlots + 1)) return;
    __threadfence_block();
    let_copies_overwrite();
    ask_for(j + kSlots);
  }

 private:
  __device__ void ask_for(std::int32_t j) {
    const bool m = j<count, y = bigrams> 0;
    const auto bytes = [](std::int32_t n) { return static_cast<std::uint32_t>(n) * unsigned{sizeof(float)}; };
    Mailbox* box = &head->full[j % kSlots];
    expect(box, (m ? bytes(a_.join.places) : 0) + (y ? bytes(a_.join.outs) : 0));
    if (m)
      fetch_once(m_ + j % kSlots * a_.join.places, a_.kept.alpha + (at + j) * a_.join.places, bytes(a_.join.places),
                 box);
    if (y) fetch_once(y_ + j % kSlots * a_.join.outs, a_.kept.beta + (at + j) * a_.join.outs, bytes(a_.join.outs), box);
  }

  const Args& a_;
  float *m_, *y_;
  std::int32_t rows_, users_;
};

// Sums over pairs of a round each, by a warp: put(round, Σ m · (y · factor_of(round))), by each lane of the round.
template <class FactorOf, class Put>
__device__ void sum_rounds(const DeviceRounds& rounds, const float* m, const float* y, const FactorOf& factor_of,
                           const Put& put) {
  constexpr int most = kMostHeight / kRoundLanes / kRoundSteps;
  const auto value = [](const float* from, std::uint32_t bytes) {
    return *reinterpret_cast<const float*>(reinterpret_cast<const char*>(from) + bytes);
  };
  const std::int32_t quads = rounds.height / kRoundLanes / kRoundSteps;
  const uint4* packed = reinterpret_cast<const uint4*>(rounds.packed) + lane_of();
#pragma unroll 1
  for (std::int32_t round = lane_of() / kRoundLanes; round - lane_of() / kRoundLanes < rounds.rounds;
       round += kRoundsTogether, packed += quads * 32) {
    uint4 pair[most];
#pragma unroll
    for (int q = 0; q < most; ++q) {
      if (q < quads) pair[q] = __ldg(packed + q * 32);
    }
    const float factor = round < rounds.rounds ? factor_of(round) : 0;
    const auto product = [&](std::uint32_t of) { return value(m, of & 0xffff) * (value(y, of >> 16) * factor); };
    float sum = 0, other = 0;
#pragma unroll
    for (int q = 0; q < most; ++q) {
      if (q >= quads) continue;
      sum += product(pair[q].x);
      other += product(pair[q].y);
      sum += product(pair[q].z);
      other += product(pair[q].w);
    }
    put(round, sum_of_round(sum + other));
  }
}

__device__ void do_patch(const Args& a, Stream& stream, const JoinPatch& patch) {
  Tiles<double> sum{};
  stream.wait(0);
#pragma unroll 1
  for (std::int32_t j = 0; j < stream.bigrams; ++j) {
    stream.wait(j + 1);
    multiply_patch(patch, stream.m(j) + patch.place, stream.y(j + 1) + patch.out,
                   stream.head->units.scale[j] * stream.head->units.unit[j], sum);
    stream.leave(j);
  }
  if (stream.bigrams > 0 && !write_patch(patch, sum, stream.sums())) a.kept.flag[stream.b] = 1;
}

// What a warp wants of memory for a position, where alpha and beta are not. It is asked for before those of other
// positions, behind which it would have to wait. A lane has every 32nd label.
struct Ahead {
  float weight[kMostLabels / 32];
  std::int32_t gold;
  std::int64_t row;
};
__device__ Ahead look_at(const Args& a, const Stream& stream, std::int32_t j) {
  Ahead there{};
  if (j >= stream.count) return there;
  const float* weight =
      j < stream.bigrams ? a.kept.scores.emissions + (stream.at + j) * (a.join.K + 1) : a.kept.scores.end;
#pragma unroll
  for (int n = 0; n < kMostLabels / 32; ++n) {
    if (lane_of() + 32 * n < a.join.K) there.weight[n] = weight[lane_of() + 32 * n];
  }
  there.row = a.kept.scores.row[stream.at + j];
  there.gold = a.gold ? a.kept.scores.gold[stream.at + j] : -1;
  return there;
}
// … and what all of them want for each. By the last threads, since the first has more to do.
__device__ void bring_rounds(const Args& a, const Stream& stream) {
  const auto i = static_cast<std::int32_t>(blockDim.x - 1 - threadIdx.x);
  if (i < a.join.nodes.rounds) stream.head->key[i] = a.join.nodes.key[i];
  if (i <= a.join.K) stream.head->begin[i] = a.join.nodes.begin[i];
}

// A label's pairs are multiplied by 1 over its emission as beta has it, and over beta's peak, 0 where that is; or at an
// end by its weight.
__device__ void set_down(const Ahead& there, bool last, Scratch& own) {
#pragma unroll
  for (int n = 0; n < kMostLabels / 32; ++n) {
    const float weight = Downwards::weight(there.weight[n]);
    own.label[lane_of() + 32 * n] = last         ? there.weight[n]
                                    : weight > 0 ? __fdividef(1 / Bounds<float>::beta_top, weight)
                                                 : 0;
  }
  if (lane_of() == 0) {
    own.row = there.row;
    own.gold = there.gold;
  }
  __syncwarp();
}

// The labels' marginals, of what their rounds have, and z.
__device__ void total(const Args& a, const Stream& stream, std::int32_t j, const std::int32_t* begin, Scratch& own) {
  double z = 0;
#pragma unroll 1
  for (std::int32_t k = lane_of(); k < a.join.K; k += 32) {
    float sum = 0;
#pragma unroll 1
    for (std::int32_t i = begin[k]; i < begin[k + 1]; ++i) sum += own.share[i];
    own.label[k] = sum;
    z += static_cast<double>(sum);
  }
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) z += __shfl_xor_sync(kAllLanes, z, bit);
  const double over = 1 / z;
  if (lane_of() == 0) {
    const double inverse = j == 0 ? over * stream.head->units.over_first : 1;  // of the chunk's unit
    a.kept.z[stream.at + j] = z;
    if (j == 0) a.work.inverse[stream.b * a.work.chunks + stream.number] = inverse;
    if (!(z > 0 && z >= stream.head->units.least[j] && isfinite(z) && isfinite(inverse))) a.kept.flag[stream.b] = 1;
  }
  if (!a.emissions) return;
#pragma unroll 1
  for (std::int32_t k = lane_of(); k < a.join.K; k += 32) {
    const double p = static_cast<double>(own.label[k]) * over;
    a.emissions[own.row * a.join.K + k] = static_cast<float>(k == own.gold ? p - 1 : p);
  }
}

// Pairs of every kPairWarps-th position: the labels of a position are sums of alpha times beta over its nodes, or of
// alpha times 1 over ends; bigrams of thin states are sums of alpha times beta at the next position.
__device__ void do_pairs(const Args& a, Stream& stream, std::int32_t first, Ahead ahead) {
  Scratch& own = stream.scratch[first];
  const bool thin = wants_thin(a), writes = lane_of() % kRoundLanes == 0;
  for (std::int32_t i = lane_of(); i < kMostRounds; i += 32) own.thin[i] = 0;
  if (thin && first + 1 == kSlots) {  // its slot's first filling, where nobody's bigrams end
    stream.wait(0);
    stream.leave(0);
  }
#pragma unroll 1
  for (std::int32_t j = first; j < stream.count; j += kPairWarps) {
    const bool last = j == stream.bigrams;
    const DeviceRounds& labels = last ? a.join.ends : a.join.nodes;
    const std::int32_t *key = last ? labels.key : stream.head->key, *begin = last ? labels.begin : stream.head->begin;
    set_down(ahead, last, own);
    stream.wait(j);
#pragma unroll 1
    for (int after = 0; after < (thin && !last ? 2 : 1); ++after) {  // both by the same few instructions
      if (after) stream.wait(j + 1);
      const DeviceRounds& rounds = after ? a.join.sparse : labels;
      const auto scale = static_cast<float>(stream.head->units.scale[after ? j : 0]);
      const double unit = stream.head->units.unit[after ? j : 0];
      sum_rounds(
          rounds, stream.m(j), last ? stream.head->one : stream.y(j + after),
          [&](std::int32_t round) { return after ? scale : own.label[key[round]]; },
          [&](std::int32_t round, float sum) {
            if (writes && after) own.thin[round] += static_cast<double>(sum) * unit;
            if (writes && !after) own.share[round] = sum;
          });
    }
#pragma unroll 1
    for (std::int32_t done = thin && !last ? j + 1 : j; done >= j; --done) stream.leave(done);
    ahead = look_at(a, stream, j + kPairWarps);
    total(a, stream, j, begin, own);
    __syncwarp();
  }
}

// Thin states' bigrams, of all warps that have some.
__device__ void add_thin(const Args& a, const Stream& stream) {
  const auto i = static_cast<std::int32_t>(threadIdx.x);
  if (i >= a.join.sparse.rounds || stream.bigrams <= 0) return;
  double all = 0;
  for (int n = 0; n < kPairWarps; ++n) all += stream.scratch[n].thin[i];
  const auto sum = static_cast<float>(all);
  stream.sums()[a.join.dense + i] = sum;
  if (!(sum < largest_number(float{}))) a.kept.flag[stream.b] = 1;
}

__global__ void __launch_bounds__(32 * kMostWarps, 65536 / (32 * kMostWarps * kRegisters))
    stream_kernel(const __grid_constant__ Args a) {
  let_kernel_behind_begin();
  char* shared = shared_memory();
  if (follows_gold(a, shared)) return;
  Stream stream(a, shared, blockIdx.x - a.gold_blocks.count);
  const std::int32_t patch_warp = warp_of() - kPairWarps;
  const Ahead ahead = look_at(a, stream, patch_warp < 0 ? warp_of() : stream.count);
  const JoinPatch patch = patch_warp >= 0 ? a.join.patch[patch_warp] : JoinPatch{};
  bring_rounds(a, stream);
  wait_for_kernel_before();  // until here, nothing of the pass
  if (stream.count <= 0) return;
  if (threadIdx.x == 0) stream.begin();
  if (warp_of() == 1) set_units(stream.head->units, a.kept, stream.at, stream.b, stream.bigrams);
  __syncthreads();
  if (patch_warp < 0) {
    do_pairs(a, stream, warp_of(), ahead);
  } else {
    do_patch(a, stream, patch);
  }
  if (wants_thin(a)) {
    __syncthreads();
    add_thin(a, stream);
  }
}

std::int32_t warps_of(const DeviceJoin& join, bool bigrams) { return kPairWarps + (bigrams ? join.patches : 0); }

}  // namespace

bool streams(const DeviceConstraint::Impl& c, const Batch& batch, const PassWork<float>& pass) {
  if (batch.size * ((batch.length + kLeastChunk - 1) / kLeastChunk) <= c.processors) return false;
  const DeviceJoin& join = c.join;
  return c.early && join.copied && pass.at_outs && join.K <= kMostLabels && join.nodes.packed &&
         (join.sparse.packed || join.sparse.rounds == 0) && (join.ends.packed || join.ends.rounds == 0) &&
         std::max({join.nodes.rounds, join.sparse.rounds, join.ends.rounds}) <= kMostRounds &&
         warps_of(join, true) <= kMostWarps && layout_of(join).bytes <= c.shared_bytes;
}

std::int32_t streamed_chunk(const DeviceConstraint::Impl& c, const Batch& batch, bool bigrams) {
  const std::int64_t of_memory = c.shared_bytes / (layout_of(c.join).bytes + 1024),
                     of_registers = 65536 / (32 * warps_of(c.join, bigrams) * kRegisters),
                     blocks = c.processors * std::min(of_memory, of_registers);
  std::int32_t chunk = kLeastChunk;
  const auto wanted = [&] { return batch.size * ((batch.length + chunk - 1) / chunk); };
  while (chunk < kMostChunk && wanted() > blocks) ++chunk;
  return chunk;
}

void run_stream(const DeviceConstraint::Impl& c, const Batch& batch, const Kept<float>& kept,
                const PassWork<float>& pass, const JoinWork<float>& work, const Expectation& wanted,
                cudaStream_t stream) {
  const std::int32_t warps = warps_of(c.join, work.entries > 0);
  const GoldBlocks gold = gold_blocks(c, batch, pass, warps);
  const Args args{c.join,
                  c.topology,
                  kept,
                  work,
                  layout_of(c.join),
                  batch.length,
                  static_cast<std::uint32_t>(batch.size),
                  gold,
                  wanted.gold != nullptr,
                  static_cast<float*>(wanted.emissions)};
  const std::int64_t blocks = gold.count + batch.size * work.chunks;
  if (blocks == 0) return;
  launch_kernel(stream_kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(32 * warps),
                std::max(args.layout.bytes, gold.bytes), stream, args, "joining forward and backward", c.early);
}

}  // namespace regccrf::cuda
