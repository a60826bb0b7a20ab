// The objective over blocks (see objective.h).
#include "train/objective.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "base/threads.h"
#include "regccrf/inference.h"
#include "tagger/marked_scores.h"
#include "train/blocks.h"

namespace regccrf {

struct Objective::Impl {
  Impl(const Features& f, const Constraint& c, int t, Stop s)
      : features(f), constraint(c), threads(t), stop(std::move(s)) {}

  const Features& features;
  Constraint constraint;
  std::vector<RuleLosses> rules;  // [blocks], or empty: none are kept
  Certainty certainty;
  std::int64_t cells_a_position = 0;
  int threads;
  Stop stop;
  std::vector<Block> blocks;
  // Weights of whole attributes, of labels or of pairs: a part of the second phase.
  struct Share {
    bool pairs;
    std::int64_t first, last;
  };
  std::vector<Share> shares;
  ThreadPool pool;
  std::vector<Workspace> workspaces;           // [threads]
  std::vector<std::vector<double>> emissions;  // [threads][rows, K]
  std::vector<std::vector<double>> dh;         // [blocks of a round][rows, K]
  std::vector<std::vector<double>> dg;         // [blocks of a round][K, K]
  // The same over marked labels, where attributes weigh pairs.
  std::vector<std::vector<double>> marked;   // [threads][rows, width]
  std::vector<std::vector<double>> dmarked;  // [blocks of a round][rows, width]
  std::vector<double> values;                // [blocks of a round]
  std::vector<double> transitions;           // [K, K]

  std::size_t round() const { return dh.size(); }
  void choose_shares(bool pairs);
  void first_phase(std::span<const double> w, std::size_t b, int member);
  double marked_loss(std::span<const double> w, const Block& block, std::size_t slot, int member, RuleLosses* kept);
  void second_phase(std::size_t begin, std::size_t end, const Share& share, double* gradient) const;
  void in_parallel(std::size_t count, const std::function<void(std::size_t, int)>& job);
};

namespace {

constexpr int kPerThread = 4;  // blocks of a round and shares of the second phase, so that threads end together
constexpr double kRoundNumbers = 1 << 25;  // of a round's dg, beyond what each thread needs

}  // namespace

std::size_t blocks_of_a_round(std::size_t blocks, int K, int threads) {
  if (threads == 1) return std::min<std::size_t>(blocks, 1);
  const double affordable = kRoundNumbers / (static_cast<double>(K) * K);
  const double wanted = std::clamp(affordable, static_cast<double>(threads), static_cast<double>(threads * kPerThread));
  return std::min(blocks, static_cast<std::size_t>(wanted));
}

// Shares with about the same amount of work, between attributes.
void Objective::Impl::choose_shares(bool pairs) {
  const Columns& columns = pairs ? features.pairs : features;
  const std::int32_t attributes = columns.attributes();
  std::vector<std::int64_t> work(columns.label.size() + 1, 0);
  for (const Block& block : blocks) {
    const Items& items = pairs ? block.pairs : block.labels;
    for (std::size_t r = 0; r + 1 < items.runs.size(); ++r) {
      work[items.runs[r].weight] += items.runs[r + 1].begin - items.runs[r].begin;
    }
    for (const std::int32_t f : items.weight) ++work[f];
  }
  std::int64_t all = 0, sum = 0, first = 0, part = 1;
  for (const std::int64_t w : work) all += w;
  const int parts = threads == 1 ? 1 : threads * kPerThread;
  for (std::int32_t i = 0; i < attributes; ++i) {
    for (std::int64_t f = columns.begin[i]; f < columns.begin[i + 1]; ++f) sum += work[f];
    if (part >= parts || sum * parts < all * part) continue;
    shares.push_back({pairs, first, columns.begin[i + 1]});
    first = columns.begin[i + 1];
    ++part;
  }
  shares.push_back({pairs, first, static_cast<std::int64_t>(columns.label.size())});
}

Objective::Objective(const Dataset& data, const Features& features, const Constraint& constraint, std::int64_t first,
                     std::int64_t last, int threads, Stop stop)
    : impl_(std::make_unique<Impl>(features, constraint, threads, std::move(stop))) {
  Impl& impl = *impl_;
  impl.cells_a_position = affordable_cells(data.positions());  // of all processes
  impl.blocks = make_blocks(data, features, first, last, threads);
  impl.choose_shares(false);
  if (features.has_pairs()) impl.choose_shares(true);
  std::int64_t rows = 0;
  for (const Block& block : impl.blocks) rows = std::max(rows, block.sequences.rows());
  const auto K = static_cast<std::size_t>(features.K);
  const std::size_t size = static_cast<std::size_t>(rows) * K + kSlack;
  const std::size_t round = blocks_of_a_round(impl.blocks.size(), features.K, threads);
  impl.workspaces.resize(static_cast<std::size_t>(threads));
  impl.emissions.assign(static_cast<std::size_t>(threads), std::vector<double>(size));
  impl.dh.assign(round, std::vector<double>(size));
  impl.dg.assign(round, std::vector<double>(K * K));
  impl.values.resize(round);
  if (!features.has_pairs()) return;
  const std::size_t marked = static_cast<std::size_t>(rows * features.width()) + kSlack;
  impl.marked.assign(static_cast<std::size_t>(threads), std::vector<double>(marked));
  impl.dmarked.assign(round, std::vector<double>(marked));
}

Objective::~Objective() = default;

void Objective::under(const Constraint& constraint, double max_gap) {
  impl_->constraint = constraint;
  impl_->rules.assign(constraint.rules() > 0 ? impl_->blocks.size() : 0,
                      RuleLosses{.max_gap = max_gap, .cells_a_position = impl_->cells_a_position});
}

const Certainty& Objective::certainty() const { return impl_->certainty; }

void Objective::Impl::first_phase(std::span<const double> w, std::size_t b, int member) {
  const Block& block = blocks[b];
  const auto K = static_cast<std::size_t>(features.K);
  const std::size_t slot = b % round(), size = static_cast<std::size_t>(block.sequences.rows()) * K;
  std::vector<double>& h = emissions[member];
  std::fill_n(h.begin(), size, 0.0);
  add_emissions(block.labels, features, w.data(), h.data());
  RuleLosses* const kept = rules.empty() ? nullptr : &rules[b];
  if (features.has_pairs()) {
    values[slot] = marked_loss(w, block, slot, member, kept);
    return;
  }
  values[slot] = gold_loss(constraint, block.sequences, std::span(h).first(size), transitions,
                           std::span(dh[slot]).first(size), dg[slot], 1, workspaces[member], kept);
}

// The first phase over marked labels: transitions are in the emissions, and gradients are summed back.
double Objective::Impl::marked_loss(std::span<const double> w, const Block& block, std::size_t slot, int member,
                                    RuleLosses* kept) {
  const auto rows = static_cast<std::size_t>(block.sequences.rows()), K = static_cast<std::size_t>(features.K);
  const std::span<double> h = std::span(marked[member]).first(rows * static_cast<std::size_t>(features.width())),
                          gradient = std::span(dmarked[slot]).first(h.size());
  mark_emissions(features.K, std::span(emissions[member]).first(rows * K), transitions, h);
  add_emissions(block.pairs, features.pairs, w.data() + features.first_pair(), h.data());
  const double value = gold_loss(constraint, block.sequences, h, {}, gradient, {}, 1, workspaces[member], kept);
  sum_marks(features.K, gradient, std::span(dh[slot]).first(rows * K));
  std::fill(dg[slot].begin(), dg[slot].end(), 0.0);
  add_pairs(features.K, gradient, dg[slot]);
  return value;
}

void Objective::Impl::second_phase(std::size_t begin, std::size_t end, const Share& share, double* gradient) const {
  for (std::size_t b = begin; b < end; ++b) {
    const std::size_t slot = b % round();
    if (share.pairs) {
      add_gradient(blocks[b].pairs, features.pairs, share.first, share.last, dmarked[slot].data(),
                   gradient + features.first_pair());
    } else {
      add_gradient(blocks[b].labels, features, share.first, share.last, dh[slot].data(), gradient);
    }
  }
}

// job(0 … count - 1, member) on all threads; the first error is thrown when all are done. The caller's thread, member
// 0, is the one that asks whether to stop.
void Objective::Impl::in_parallel(std::size_t count, const std::function<void(std::size_t, int)>& job) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  std::atomic<bool> ended{false};
  pool.run(threads, [&](int member) {
    try {
      for (std::size_t i;;) {
        if (member == 0) stop_if_asked(stop);
        if (ended || (i = next++) >= count) return;
        job(i, member);
      }
    } catch (...) {
      ended = true;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
}

double Objective::operator()(std::span<const double> w, std::span<double> gradient) {
  Impl& impl = *impl_;
  const Features& features = impl.features;
  impl.transitions = transitions_of(features, w);
  std::fill(gradient.begin(), gradient.end(), 0.0);
  double* bigrams = gradient.data() + features.label.size();
  double value = 0;
  for (std::size_t begin = 0; begin < impl.blocks.size(); begin += impl.round()) {
    const std::size_t end = std::min(begin + impl.round(), impl.blocks.size());
    impl.in_parallel(end - begin, [&](std::size_t i, int member) { impl.first_phase(w, begin + i, member); });
    impl.in_parallel(impl.shares.size(), [&](std::size_t share, int) {
      impl.second_phase(begin, end, impl.shares[share], gradient.data());
    });
    for (std::size_t b = begin; b < end; ++b) {
      value += impl.values[b % impl.round()];
      const std::vector<double>& dg = impl.dg[b % impl.round()];
      for (std::size_t i = 0; i < features.bigram.size(); ++i) bigrams[i] += dg[features.bigram[i]];
    }
  }
  impl.certainty = {};
  for (const RuleLosses& rules : impl.rules) impl.certainty.add(rules.certainty);
  return value;
}

}  // namespace regccrf
