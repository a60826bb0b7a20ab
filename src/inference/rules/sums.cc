// Budgets, and what is tried when one is not enough (see sums.h).
#include "inference/rules/sums.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/numbers.h"
#include "inference/relax.h"
#include "inference/rules/products.h"

namespace regccrf {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr double kFirstLegal = 0.7;    // how much of the base's mass is legal: a guess, until it is known …
constexpr double kLeastLegal = 1e-4;   // … and below this the base is the wrong place to look
constexpr int kTries = 4;              // with one base
constexpr double kLeastMass = 1e-290;  // below this, numbers that it is the sum of have lost digits, or vanished

// How a budget is shared out.
constexpr double kUntracked = 0.3, kLive = 0.25;  // … and the rest is for forgetting; these two by position

double gap_of(double mass, double error) {
  const bool certain = mass > error && mass > kLeastMass;
  return certain ? error / (mass - error) : std::numeric_limits<double>::infinity();
}

bool accepts_empty(const Constraint& constraint) { return constraint.accepts(std::span<const Label>()).accepted; }

template <class Real>
double check_gap(const Batch<Real>& batch, double gap) {
  if (gap > 0 && std::isfinite(gap)) return gap;
  throw Error(at(batch.operation()) + "max_gap is " + to_text(gap) + ", expected a number above 0");
}

}  // namespace

template <class Real>
Sums<Real>::Sums(const Batch<Real>& batch, double default_gap)
    : batch_(batch), max_gap_(check_gap(batch, batch.options().max_gap.value_or(default_gap))), expectations_(batch) {
  const std::span<const double> each = batch.options().max_gaps;
  if (!each.empty())
    check_size(batch.operation(), "max_gaps", each.size(), static_cast<std::size_t>(batch.size()), "[B]");
  for (const double gap : each) check_gap(batch, gap);
  const std::span<double> gaps = batch.options().gaps;
  if (gaps.empty()) return;
  check_size(batch.operation(), "gaps", gaps.size(), static_cast<std::size_t>(batch.size()), "[B]");
  std::fill(gaps.begin(), gaps.end(), 0.0);
}
template <class Real>
Sums<Real>::~Sums() = default;

template <class Real>
CertifiedSum Sums<Real>::log_z(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena) {
  return (*this)(constraint, sequence, arena, Counts<Real>{});
}

template <class Real>
CertifiedSum Sums<Real>::operator()(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena,
                                    const Counts<Real>& counts) {
  if (constraint.memories() == 0) return {expectations_(constraint, sequence, arena, counts)};
  if (sequence.T == 0) return {accepts_empty(constraint) ? 0 : kNone};
  const int K = sequence.K;
  if (counts.emissions) {
    for (std::int64_t t = 0; t < sequence.T; ++t) std::fill_n(counts.emissions + sequence.row(t) * K, K, Real{0});
  }
  CertifiedSum sum{kNone};
  const Found found = with_automaton(constraint, sequence, arena, [&](auto& automaton, double base, double gap) {
    sum = {base + std::log(automaton.mass()), gap};
    if (!counts.wanted()) return;
    double* labels = arena.take<double>(static_cast<std::size_t>(K));
    for (std::int64_t t = 0; t < sequence.T; ++t) {
      std::fill_n(labels, K, 0.0);
      automaton.visit_nodes(t, [&](Label a, double p) { labels[a] += counts.weight * p; });
      if (counts.emissions) std::copy_n(labels, K, counts.emissions + sequence.row(t) * K);
      for (int a = 0; counts.start && t == 0 && a < K; ++a) counts.start[a] += labels[a];
      for (int a = 0; counts.end && t + 1 == sequence.T && a < K; ++a) counts.end[a] += labels[a];
      if (!counts.transitions || t + 1 == sequence.T) continue;
      automaton.visit_arcs(t, [&](Label a, Label b, double p) { counts.transitions[a * K + b] += counts.weight * p; });
    }
  });
  if (found != Found::uncertified) return sum;
  return {expectations_(constraint.base(), sequence, arena, counts), std::numeric_limits<double>::infinity()};
}

template <class Real>
double Sums<Real>::max_gap(const Sequence<Real>& sequence) const {
  const std::span<const double> gaps = batch_.options().max_gaps;
  return gaps.empty() ? max_gap_ : gaps[sequence.index];
}

template <class Real>
typename Sums<Real>::Found Sums<Real>::find(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena,
                                            Scratch& scratch) {
  if (sequence.T < constraint.rule_tables().least_length()) return Found::impossible;
  const bool relax = batch_.options().uncertified == Uncertified::relax;
  for (double gap = max_gap(sequence);;) {
    const Arena::Mark mark = arena.mark();
    const Found found = find_within(gap, constraint, sequence, arena, scratch);
    arena.back_to(mark);
    if (found != Found::uncertified || !relax) return found;
    gap = relaxed_gap(gap);
    if (std::isinf(gap)) return found;
  }
}

template <class Real>
typename Sums<Real>::Found Sums<Real>::find_within(double max_gap, const Constraint& constraint,
                                                   const Sequence<Real>& sequence, Arena& arena, Scratch& scratch) {
  std::vector<int> added;
  Part part = part_of(constraint, constraint.base(), added);
  Label* y = nullptr;
  while (true) {
    bool settled = false;
    const Found found = try_part(max_gap, constraint, part, sequence, arena, scratch, settled);
    if (settled) return found;
    // What is too large will not be smaller; a caller who has use for something else need not wait for that.
    const bool hopeless = !scratch.automaton.small() && batch_.options().uncertified != Uncertified::error;
    if (hopeless) return Found::uncertified;
    // The base's mass lies elsewhere, or is spread too far: where does its best path leave the language?
    if (!y) y = arena.take<Label>(static_cast<std::size_t>(sequence.T));
    BestPaths<Real>* best;
    {
      const std::lock_guard lock(mutex_);
      if (!best_) best_ = std::make_unique<BestPaths<Real>>(batch_, MaxModel(batch_.scores()));
      best = best_.get();
    }
    if (!best->path(part.maker->base(), sequence, arena, y)) return Found::impossible;
    const std::vector<int> broken =
        constraint.rule_tables().broken(std::span<const Label>(y, static_cast<std::size_t>(sequence.T)));
    if (broken.empty()) break;
    added.insert(added.end(), broken.begin(), broken.end());
    std::sort(added.begin(), added.end());
    const RuleProduct product = product_with(constraint, added, batch_.options().rules.products);
    if (product.too_large) break;
    if (!product.constraint) return Found::impossible;
    part = part_of(constraint, *product.constraint, added);
  }
  if (exact(constraint, part, sequence, arena, scratch)) {
    scratch.gap = 0;
    return Found::certified;
  }
  if (batch_.options().uncertified == Uncertified::error) fail(sequence);
  return Found::uncertified;
}

// Sets `settled` where there is an answer.
template <class Real>
typename Sums<Real>::Found Sums<Real>::try_part(double max_gap, const Constraint& constraint, const Part& part,
                                                const Sequence<Real>& sequence, Arena& arena, Scratch& scratch,
                                                bool& settled) {
  const std::shared_ptr<const RulePairs> pairs = pairs_of(constraint);
  const std::int64_t most_arcs = SentenceAutomaton::most_arcs(most_cells(sequence));
  double legal = kFirstLegal;
  for (int i = 0; i < kTries && legal >= kLeastLegal; ++i) {
    const Arena::Mark mark = arena.mark();
    const double budget = max_gap / (1 + max_gap) * legal;
    const double by_position = budget / static_cast<double>(sequence.T);
    const bool possible = part.maker->make(sequence, {kLive * by_position, most_arcs}, arena, scratch.chain);
    arena.back_to(mark);
    if (!possible) {
      settled = true;
      return Found::impossible;
    }
    const Allowance allowance{kUntracked * budget, (1 - kUntracked - kLive) * by_position};
    const bool fits = scratch.automaton.make(scratch.chain, constraint.rule_tables(), *pairs, part.which, allowance,
                                             most_cells(sequence));
    if (!fits && !scratch.automaton.small()) break;
    const double mass = scratch.automaton.mass(), error = scratch.automaton.error();
    scratch.gap = gap_of(mass, error);
    settled = scratch.gap <= max_gap;
    if (settled) return Found::certified;
    // What was found is nearly all there is, or it is drowned by the error.
    legal = mass > 2 * error ? std::min(legal / 2, kFirstLegal * (mass - error)) : legal / 20;
  }
  return Found::uncertified;
}

template <class Real>
bool Sums<Real>::exact(const Constraint& constraint, const Part& part, const Sequence<Real>& sequence, Arena& arena,
                       Scratch& scratch) {
  const std::int64_t most = most_cells(sequence);
  if (!part.maker->make(sequence, {0, SentenceAutomaton::most_arcs(most)}, arena, scratch.chain)) return false;
  return scratch.automaton.make(scratch.chain, constraint.rule_tables(), *pairs_of(constraint), part.which, Allowance{},
                                most) &&
         scratch.automaton.mass() > kLeastMass;
}

template <class Real>
typename Sums<Real>::Part Sums<Real>::part_of(const Constraint& constraint, const Constraint& base,
                                              std::vector<int> added) {
  std::vector<int> all(static_cast<std::size_t>(constraint.memories())), which;
  std::iota(all.begin(), all.end(), 0);
  std::set_difference(all.begin(), all.end(), added.begin(), added.end(), std::back_inserter(which));
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(makers_.begin(), makers_.end(),
                               [&](const auto& maker) { return &maker->base().topology() == &base.topology(); });
  if (at != makers_.end()) return {*at, std::move(which)};
  makers_.push_back(std::make_shared<const ChainMaker<Real>>(base, batch_));
  return {makers_.back(), std::move(which)};
}

template <class Real>
std::shared_ptr<const RulePairs> Sums<Real>::pairs_of(const Constraint& constraint) {
  const RuleTables* rules = &constraint.rule_tables();
  const std::lock_guard lock(mutex_);
  for (const auto& [of, pairs] : pairs_) {
    if (of == rules) return pairs;
  }
  pairs_.emplace_back(rules, std::make_shared<const RulePairs>(*rules));
  return pairs_.back().second;
}

// A cell of a sum costs more than one of a search: it is sorted, compared and walked twice.
template <class Real>
std::int64_t Sums<Real>::most_cells(const Sequence<Real>& sequence) const {
  const RuleLimits& limits = batch_.options().rules;
  const std::int64_t most = limits.cells / 16;
  return limits.cells_a_position > most / sequence.T ? most : limits.cells_a_position * sequence.T;
}

template <class Real>
void Sums<Real>::note(const Sequence<Real>& sequence, double gap) const {
  batch_.workspace().note_gap(gap);
  const std::span<double> gaps = batch_.options().gaps;
  if (!gaps.empty()) gaps[sequence.index] = gap;
}

template <class Real>
void Sums<Real>::fail(const Sequence<Real>& sequence) const {
  throw Error(
      at(batch_.operation(), sequence.index) +
          ": the sum over all sequences that obey the rules is not certain to a gap of " + to_text(max_gap(sequence)) +
          " within " + std::to_string(most_cells(sequence)) +
          " cells; its scores leave too many sequences likely, or hardly any of the likely ones is legal. Allow a "
          "larger "
          "max_gap, for such sequences alone (uncertified: relax) or for all; or more cells (Options::rules, in Python "
          "max_cells); or take an upper bound (uncertified: bound)",
      ErrorKind::limit, {sequence.index, {}});
}

template <class Real>
std::unique_ptr<typename Sums<Real>::Scratch> Sums<Real>::lend() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> scratch = std::move(free_.back());
  free_.pop_back();
  return scratch;
}

template <class Real>
void Sums<Real>::give_back(std::unique_ptr<Scratch> scratch) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(scratch));
}

template class Sums<float>;
template class Sums<double>;

}  // namespace regccrf
