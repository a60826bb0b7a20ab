// The k best sequences on a device: one block a sequence, each next path found from those before it.
//
// Viterbi leaves delta[t, n], the best score of a beginning that emits position t from node n. Link t of a path joins
// its positions t-1 and t, link T the last position and the end. Given the node after a link, the nodes that may stand
// before it have an order: by delta plus the link's score, of equals the lower number first. A path is a choice in that
// order at each of its links; the best path takes the first everywhere.
//
// Any other path has a lowest link at which it does not take the first. With the choice before that one there, and
// first choices below, it is another path, no worse: its parent. So paths form a tree in which a path's children take
// the next choice at one of the links up to its own lowest (for the best path: T). Every path found has a child waiting
// at each of those links, and the best of all that wait is the next path. Distinct paths are distinct sequences,
// because the automaton is unambiguous.
//
// Paths are compared by how much they lose against the best one: a sum of differences between neighbours in an order.
// Their own scores are summed at the end, in double, and settle the order of what comes out.
#include <algorithm>

#include "inference/cuda/decode/candidate.h"
#include "inference/cuda/prepare.h"

namespace regccrf::cuda {

namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 28;

struct FoundPath {
  double score;               // its own
  double waiting;             // the value of its best child …
  std::int32_t waiting_link;  // … which leaves it here
  std::int32_t link;          // up to which its children leave it
  std::int32_t rank;          // by score
};

// One slot serves one block; blocks take sequences in turn.
struct KBestMemory {
  Prepared<double> scores;
  std::int32_t slots;
  double* g;             // [slots, K, K]
  double* delta;         // [slots, T, nodes]
  double* arrivals;      // [slots, arrivals]
  FoundPath* found;      // [slots, k]
  std::int32_t* nodes;   // [slots, k, T]
  double* waiting;       // [slots, k, T + 1] value of the child at each link: minus what it loses; −inf: none
  std::int32_t* choice;  // [slots, k, T + 1] the node it takes there
};

struct KBestArgs {
  DeviceTopology topology;
  Batch batch;
  KBest best;
  KBestMemory work;
};

__device__ Candidate ahead() { return {INFINITY, -1}; }          // of every choice
__device__ Candidate none() { return {-INFINITY, 0x7fffffff}; }  // behind every choice

// The best of value(i) for first ≤ i < last, to all threads of the block.
template <class Value>
__device__ Candidate block_best_of(std::int32_t first, std::int32_t last, const Value& value) {
  Candidate best = none();
  for (std::int32_t i = first + static_cast<std::int32_t>(threadIdx.x); i < last; i += kThreads)
    best.take({value(i), i});
  return block_best<kThreads>(best);
}

__device__ void load_transitions(const KBestArgs& a) {
  const std::int32_t size = a.topology.K * a.topology.K;
  double* g = a.work.g + blockIdx.x * std::int64_t{size};
  for (std::int32_t i = threadIdx.x; i < size; i += kThreads) g[i] = score_at(a.batch.transitions, i);
}

// A block's search in sequence b, and its arrays.
class KBestSearch {
 public:
  __device__ KBestSearch(const KBestArgs& a, std::int64_t b)
      : a_(a), d_(a.topology), b_(b), T_(a.work.scores.length[b]) {
    const std::int64_t slot = blockIdx.x, length = a.batch.length, K = d_.K, k = a.best.k;
    g_ = a.work.g + slot * K * K;
    delta_ = a.work.delta + slot * length * d_.nodes;
    arrivals_ = a.work.arrivals + slot * d_.arrivals;
    found_ = a.work.found + slot * k;
    nodes_ = a.work.nodes + slot * k * length;
    waiting_ = a.work.waiting + slot * k * (length + 1);
    choice_ = a.work.choice + slot * k * (length + 1);
    emissions_ = a.work.scores.emissions + b * length * (K + 1);
  }

  // How many paths there are, up to k, best first.
  __device__ std::int32_t enumerate() const {
    forward();
    const Candidate last = next_by_block(T_, -1, ahead());
    if (last.value == -INFINITY) return 0;
    add_path(0, -1, T_, last.number, 0);
    for (std::int32_t count = 1; count < a_.best.k; ++count) {
      const Candidate next = block_best_of(0, count, [&](std::int32_t i) { return found_[i].waiting; });
      if (next.value == -INFINITY) return count;
      const std::int32_t parent = next.number, link = found_[parent].waiting_link;
      const std::int64_t at = parent * (a_.batch.length + 1) + link;
      const std::int32_t node = choice_[at];
      if (threadIdx.x == 0) waiting_[at] = -INFINITY;  // what follows it there waits with it
      __syncthreads();
      choose_child(parent);
      add_path(count, parent, link, node, next.value);
    }
    return a_.best.k;
  }

  // Each path's own score, and its place by that.
  __device__ void rank(std::int32_t count) const {
    const std::int64_t* row = a_.work.scores.row + b_ * a_.batch.length;
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t* path = nodes_ + i * a_.batch.length;
      const double score = block_sum<kThreads>(
          path_score(a_.batch, d_.K, T_, row, [&](std::int32_t t) { return d_.node_label[path[t]]; }));
      if (threadIdx.x == 0) found_[i].score = score;
    }
    __syncthreads();
    for (std::int32_t i = threadIdx.x; i < count; i += kThreads) {
      std::int32_t rank = 0;
      for (std::int32_t j = 0; j < count; ++j) rank += Candidate{found_[j].score, j}.before({found_[i].score, i});
      found_[i].rank = rank;
    }
    __syncthreads();
  }

  // What the caller gets: paths in the order of their ranks, then nothing.
  __device__ void write_paths(std::int32_t count) const {
    const std::int64_t length = a_.batch.length, k = a_.best.k;
    for (std::int64_t j = threadIdx.x; j < k * length; j += kThreads) {
      const std::int64_t i = j / length, t = j - i * length;
      const std::int64_t to = b_ * k + (i < count ? found_[i].rank : i);
      a_.best.labels[to * length + t] = i < count && t < T_ ? d_.node_label[nodes_[j]] : -1;
    }
    for (std::int64_t i = threadIdx.x; i < k; i += kThreads)
      a_.best.score[b_ * k + (i < count ? found_[i].rank : i)] = i < count ? found_[i].score : -INFINITY;
  }

 private:
  // Viterbi's scores, all of them.
  __device__ void forward() const {
    const std::int32_t first = d_.node_begin[d_.start], last = d_.node_begin[d_.start + 1];
    for (std::int32_t n = threadIdx.x; n < d_.nodes; n += kThreads) {
      const std::int32_t label = d_.node_label[n];
      delta_[n] = n >= first && n < last ? a_.work.scores.start[label] + emissions_[label] : -INFINITY;
    }
    __syncthreads();
    for (std::int32_t t = 1; t < T_; ++t) {
      const double* row = emissions_ + std::int64_t{t} * (d_.K + 1);
      const double* now = delta_ + std::int64_t{t - 1} * d_.nodes;
      double* next = delta_ + std::int64_t{t} * d_.nodes;
      for (std::int32_t m = threadIdx.x; m < d_.arrivals; m += kThreads) {
        double best = -INFINITY;
        for (std::int32_t i = d_.into_begin[m]; i < d_.into_begin[m + 1]; ++i) best = fmax(best, now[d_.into_node[i]]);
        arrivals_[m] = best;
      }
      __syncthreads();
      for (std::int32_t n = threadIdx.x; n < d_.nodes; n += kThreads) {
        const std::int32_t r = d_.node_state[n], label = d_.node_label[n];
        double best = -INFINITY;
        for (std::int32_t m = d_.arrival_begin[r]; m < d_.arrival_begin[r + 1]; ++m)
          best = fmax(best, arrivals_[m] + g_[d_.arrival_label[m] * d_.K + label]);
        next[n] = best + row[label];
      }
      __syncthreads();
    }
  }

  // To have node n before link t and `after` behind it, which is nothing at link T.
  __device__ Candidate choice_of(std::int32_t t, std::int32_t after, std::int32_t n) const {
    const double gain =
        t == T_ ? a_.work.scores.end[d_.node_label[n]] : g_[d_.node_label[n] * d_.K + d_.node_label[after]];
    return {delta_[std::int64_t{t - 1} * d_.nodes + n] + gain, n};
  }

  // The choice at link t that follows `last`: the best of every `step`-th candidate from number `first` on.
  __device__ Candidate next_choice(std::int32_t t, std::int32_t after, Candidate last, std::int32_t first,
                                   std::int32_t step) const {
    Candidate best = none();
    const auto offer = [&](std::int32_t n) {
      const Candidate choice = choice_of(t, after, n);
      if (choice.value > -INFINITY && last.before(choice)) best.take(choice);
    };
    if (t == T_) {
      for (std::int32_t n = first; n < d_.nodes; n += step) {
        if (d_.node_accepts[n]) offer(n);
      }
      return best;
    }
    const std::int32_t r = d_.node_state[after], end = d_.into_begin[d_.arrival_begin[r + 1]];
    for (std::int32_t i = d_.into_begin[d_.arrival_begin[r]] + first; i < end; i += step) offer(d_.into_node[i]);
    return best;
  }
  __device__ Candidate next_by_warp(std::int32_t t, std::int32_t after, Candidate last) const {
    return warp_best(next_choice(t, after, last, threadIdx.x % 32, 32));
  }
  __device__ Candidate next_by_block(std::int32_t t, std::int32_t after, Candidate last) const {
    return block_best<kThreads>(next_choice(t, after, last, threadIdx.x, kThreads));
  }

  // Path i chooses its best waiting child again.
  __device__ void choose_child(std::int32_t i) const {
    const double* waiting = waiting_ + i * (a_.batch.length + 1);
    const Candidate best = block_best_of(1, found_[i].link + 1, [&](std::int32_t t) { return waiting[t]; });
    if (threadIdx.x == 0) {
      found_[i].waiting = best.value;
      found_[i].waiting_link = best.number;
    }
    __syncthreads();
  }

  // Path i is the one that leaves its parent at `link` for `node`. `value`: minus what it loses against the best path,
  // which leaves nothing, at link T.
  __device__ void add_path(std::int32_t i, std::int32_t parent, std::int32_t link, std::int32_t node,
                           double value) const {
    std::int32_t* path = nodes_ + i * a_.batch.length;
    for (std::int32_t t = link + static_cast<std::int32_t>(threadIdx.x); t < T_; t += kThreads)
      path[t] = nodes_[parent * a_.batch.length + t];
    if (threadIdx.x < 32) {  // below, first choices
      for (std::int32_t t = link; t > 0; --t) {
        if (threadIdx.x == 0) path[t - 1] = node;
        if (t > 1) node = next_by_warp(t - 1, node, ahead()).number;
      }
    }
    if (threadIdx.x == 0) found_[i].link = link;
    __syncthreads();

    double* waiting = waiting_ + i * (a_.batch.length + 1);
    std::int32_t* choice = choice_ + i * (a_.batch.length + 1);
    const auto wait = [&](std::int32_t t, Candidate used, Candidate next) {
      waiting[t] = value - (used.value - next.value);  // −inf where there is none
      choice[t] = next.number;
    };
    for (std::int32_t t = 1 + threadIdx.x / 32; t <= link && t < T_; t += kWarps) {
      const Candidate used = choice_of(t, path[t], path[t - 1]), next = next_by_warp(t, path[t], used);
      if (threadIdx.x % 32 == 0) wait(t, used, next);
    }
    if (link == T_) {
      const Candidate used = choice_of(T_, -1, path[T_ - 1]), next = next_by_block(T_, -1, used);
      if (threadIdx.x == 0) wait(T_, used, next);
    }
    __syncthreads();
    choose_child(i);
  }

  const KBestArgs& a_;
  const DeviceTopology& d_;
  const std::int64_t b_;
  const std::int32_t T_;
  double *g_, *delta_, *arrivals_;
  FoundPath* found_;
  std::int32_t* nodes_;
  double* waiting_;
  std::int32_t* choice_;
  const double* emissions_;  // [T, K + 1]
};

__global__ void __launch_bounds__(kThreads) k_best_kernel(const __grid_constant__ KBestArgs a) {
  load_transitions(a);
  for (std::int64_t b = blockIdx.x; b < a.batch.size; b += gridDim.x) {
    const KBestSearch search(a, b);
    const std::int32_t T = a.work.scores.length[b];
    Status status = block_status(a.batch, a.work.scores, b, T, a.topology.K);
    const bool bad = status.outcome != 0;
    std::int32_t count = 0;
    if (!bad && T > 0) {
      count = search.enumerate();
      search.rank(count);
    }
    search.write_paths(count);
    __syncthreads();
    if (threadIdx.x != 0) continue;
    const bool empty = !bad && T == 0 && a.topology.empty;  // the empty sequence
    if (empty) a.best.score[b * a.best.k] = 0;
    if (!bad && count == 0 && !empty) status.outcome = static_cast<std::int32_t>(Outcome::impossible);
    a.best.status[b] = status;
  }
}

KBestMemory allocate_memory(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch, std::int32_t paths) {
  const std::int64_t T = batch.length, K = c.topology.K, N = c.topology.nodes, M = c.topology.arrivals, k = paths;
  const std::size_t bytes = 8 * (K * K + T * N + M) + k * (sizeof(FoundPath) + 16 * (T + 1));
  KBestMemory w{};
  w.scores = allocate_prepared<double>(arena, c, batch, false);
  w.slots = static_cast<std::int32_t>(std::min<std::int64_t>(
      {std::max<std::int64_t>(kMostBytes / static_cast<std::int64_t>(bytes), 1), batch.size, c.processors}));
  const std::int64_t slots = w.slots;
  w.g = arena.allocate<double>(slots * K * K);
  w.delta = arena.allocate<double>(slots * T * N);
  w.arrivals = arena.allocate<double>(slots * M);
  w.found = arena.allocate<FoundPath>(slots * k);
  w.nodes = arena.allocate<std::int32_t>(slots * k * T);
  w.waiting = arena.allocate<double>(slots * k * (T + 1));
  w.choice = arena.allocate<std::int32_t>(slots * k * (T + 1));
  return w;
}

void check_k(const KBest& best) {
  if (best.k < 1) throw Error("[k_best] k is " + std::to_string(best.k) + ", expected 1 or more");
}

}  // namespace

std::size_t k_best_bytes(const DeviceConstraint& constraint, const Batch& batch, const KBest& best) {
  check_k(best);
  Arena arena(Memory{});
  allocate_memory(arena, constraint.impl(), batch, best.k);
  return arena.used();
}

void k_best(const DeviceConstraint& constraint, const Batch& batch, const KBest& best, Memory memory, void* stream) {
  check_batch("k_best", batch);
  check_k(best);
  if (batch.size == 0) return;
  Arena arena(memory);
  const DeviceConstraint::Impl& c = constraint.impl();
  const KBestMemory work = allocate_memory(arena, c, batch, best.k);
  const auto s = static_cast<cudaStream_t>(stream);
  prepare<double>(c, batch, work.scores, Scale::log, nullptr, s);
  launch_kernel(k_best_kernel, {.x = work.slots, .threads = kThreads}, s, {c.topology, batch, best, work}, "k_best");
}

}  // namespace regccrf::cuda
