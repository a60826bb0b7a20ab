// The objective over blocks (see objective.h).
#include "train/objective.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "base/threads.h"
#include "regccrf/inference.h"
#include "train/blocks.h"

namespace regccrf {

struct Objective::Impl {
  Impl(const Features& f, const Constraint& c, int t, Stop s)
      : features(f), constraint(c), threads(t), stop(std::move(s)) {}

  const Features& features;
  Constraint constraint;
  std::vector<RuleLosses> rules;  // [blocks], or empty: none are kept
  Certainty certainty;
  int threads;
  Stop stop;
  std::vector<Block> blocks;
  std::vector<std::int64_t> shares;  // weights shares[s] … shares[s + 1] - 1 are one share of the second phase
  ThreadPool pool;
  std::vector<Workspace> workspaces;           // [threads]
  std::vector<std::vector<double>> emissions;  // [threads][rows, K]
  std::vector<std::vector<double>> dh;         // [blocks of a round][rows, K]
  std::vector<std::vector<double>> dg;         // [blocks of a round][K, K]
  std::vector<double> values;                  // [blocks of a round]
  std::vector<double> transitions;             // [K, K]

  std::size_t round() const { return dh.size(); }
  void choose_shares();
  void first_phase(std::span<const double> w, std::size_t b, int member);
  void second_phase(std::size_t begin, std::size_t end, int share, double* gradient) const;
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
void Objective::Impl::choose_shares() {
  const std::int32_t attributes = features.attributes();
  std::vector<std::int64_t> work(features.label.size() + 1, 0);
  for (const Block& block : blocks) {
    for (std::size_t r = 0; r + 1 < block.runs.size(); ++r) {
      work[block.runs[r].weight] += block.runs[r + 1].begin - block.runs[r].begin;
    }
    for (const std::int32_t f : block.weight) ++work[f];
  }
  std::int64_t all = 0, sum = 0;
  for (const std::int64_t w : work) all += w;
  const int parts = threads == 1 ? 1 : threads * kPerThread;
  shares = {0};
  for (std::int32_t i = 0; i < attributes; ++i) {
    for (std::int64_t f = features.begin[i]; f < features.begin[i + 1]; ++f) sum += work[f];
    const auto part = static_cast<std::int64_t>(shares.size());
    if (part < parts && sum * parts >= all * part) shares.push_back(features.begin[i + 1]);
  }
  shares.push_back(static_cast<std::int64_t>(features.label.size()));
}

Objective::Objective(const Dataset& data, const Features& features, const Constraint& constraint, std::int64_t first,
                     std::int64_t last, int threads, Stop stop)
    : impl_(std::make_unique<Impl>(features, constraint, threads, std::move(stop))) {
  Impl& impl = *impl_;
  impl.blocks = make_blocks(data, features, first, last, threads);
  impl.choose_shares();
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
}

Objective::~Objective() = default;

void Objective::under(const Constraint& constraint, double max_gap) {
  impl_->constraint = constraint;
  impl_->rules.assign(constraint.rules() > 0 ? impl_->blocks.size() : 0, RuleLosses{.max_gap = max_gap});
}

const Certainty& Objective::certainty() const { return impl_->certainty; }

void Objective::Impl::first_phase(std::span<const double> w, std::size_t b, int member) {
  const Block& block = blocks[b];
  const auto K = static_cast<std::size_t>(features.K);
  const std::size_t slot = b % round(), size = static_cast<std::size_t>(block.sequences.rows()) * K;
  std::vector<double>& h = emissions[member];
  std::fill_n(h.begin(), size, 0.0);
  add_emissions(block, features, w.data(), h.data());

  values[slot] =
      gold_loss(constraint, block.sequences, std::span(h).first(size), transitions, std::span(dh[slot]).first(size),
                dg[slot], 1, workspaces[member], rules.empty() ? nullptr : &rules[b]);
}

void Objective::Impl::second_phase(std::size_t begin, std::size_t end, int share, double* gradient) const {
  for (std::size_t b = begin; b < end; ++b) {
    add_gradient(blocks[b], features, shares[share], shares[share + 1], dh[b % round()].data(), gradient);
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
    impl.in_parallel(impl.shares.size() - 1, [&](std::size_t share, int) {
      impl.second_phase(begin, end, static_cast<int>(share), gradient.data());
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
