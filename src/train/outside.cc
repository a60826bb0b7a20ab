// Gold outside a language: found, left out, or repaired (see trainer.h).
#include <algorithm>
#include <limits>
#include <utility>

#include "automaton/automaton.h"
#include "regccrf/error.h"
#include "regccrf/inference.h"
#include "regccrf/trainer.h"

namespace regccrf {

namespace {

// One sequence's gold as scores: `known` for the gold label, `other` for those beside it; unknown gold favours nobody.
std::vector<double> gold_scores(const Dataset& data, std::int64_t i, int K, double other) {
  const std::int64_t begin = data.position[i], end = data.position[i + 1];
  std::vector<double> h(static_cast<std::size_t>((end - begin) * K), 0);
  for (std::int64_t t = begin; t < end; ++t) {
    if (data.gold[t] == kUnknownLabel) continue;
    std::fill_n(h.begin() + (t - begin) * K, K, other);
    h[(t - begin) * K + data.gold[t]] = 0;
  }
  return h;
}

Path nearest_path(const Constraint& constraint, const Dataset& data, std::int64_t i, double other) {
  const int K = constraint.labels().size();
  const std::vector<double> h = gold_scores(data, i, K, other), g(static_cast<std::size_t>(K) * K, 0);
  Options options;
  options.impossible = Impossible::allow;
  return viterbi(constraint, Scores(h, g), options)[0];
}

// How far gold with unknown labels gets under an automaton: the sets of states that it can reach, for those that can
// still reach an end.
OutsideSequence leave(const Constraint& base, const Dataset& data, std::int64_t i) {
  const Automaton& automaton = base.automaton();
  std::vector<std::uint8_t> now(automaton.accepting.size(), 0), next(now.size());
  now[automaton.start] = 1;
  const std::int64_t begin = data.position[i], end = data.position[i + 1];
  std::int64_t t = begin;
  for (; t < end; ++t) {
    std::fill(next.begin(), next.end(), std::uint8_t{0});
    for (const Arc& arc : automaton.arcs) {
      if (now[arc.from] && (data.gold[t] == kUnknownLabel || data.gold[t] == arc.label)) next[arc.to] = 1;
    }
    if (std::find(next.begin(), next.end(), std::uint8_t{1}) == next.end()) break;
    now.swap(next);
  }
  OutsideSequence outside{i, t - begin, {}};
  for (const Arc& arc : automaton.arcs) {
    if (now[arc.from]) outside.possible.push_back(arc.label);
  }
  std::sort(outside.possible.begin(), outside.possible.end());
  outside.possible.erase(std::unique(outside.possible.begin(), outside.possible.end()), outside.possible.end());
  return outside;
}

OutsideSequence outside_of(std::int64_t i, Membership membership) {
  return {i, static_cast<std::int64_t>(membership.position), std::move(membership.possible),
          std::move(membership.rule)};
}

}  // namespace

std::vector<OutsideSequence> find_outside(const Constraint& constraint, const Dataset& data) {
  std::vector<OutsideSequence> outside;
  const Constraint base = constraint.base();
  Tracer tracer(base.automaton());
  for (std::int64_t i = 0; i < data.sequences(); ++i) {
    const Label* gold = data.gold.data() + data.position[i];
    const std::int64_t length = data.position[i + 1] - data.position[i];
    if (std::find(gold, gold + length, kUnknownLabel) == gold + length) {
      const std::size_t size = static_cast<std::size_t>(length);
      Membership membership = constraint.rules() > 0 ? constraint.accepts({gold, size}) : tracer.trace(gold, size);
      if (!membership) outside.push_back(outside_of(i, std::move(membership)));
    } else if (nearest_path(constraint, data, i, -std::numeric_limits<double>::infinity()).score < 0) {
      outside.push_back(leave(base, data, i));
    }
  }
  return outside;
}

Dataset without(const Dataset& data, std::span<const std::int64_t> sequences) {
  Dataset rest;
  rest.files = data.files;
  auto skip = sequences.begin();
  for (std::int64_t i = 0; i < data.sequences(); ++i) {
    if (skip != sequences.end() && *skip == i) {
      ++skip;
      continue;
    }
    for (std::int64_t t = data.position[i]; t < data.position[i + 1]; ++t) {
      const auto begin = data.item[t], end = data.item[t + 1];
      rest.attribute.insert(rest.attribute.end(), data.attribute.begin() + begin, data.attribute.begin() + end);
      if (!data.value.empty())
        rest.value.insert(rest.value.end(), data.value.begin() + begin, data.value.begin() + end);
      rest.item.push_back(static_cast<std::int64_t>(rest.attribute.size()));
      if (!data.gold.empty()) rest.gold.push_back(data.gold[t]);
    }
    rest.position.push_back(static_cast<std::int64_t>(rest.item.size()) - 1);
    if (!data.weight.empty()) rest.weight.push_back(data.weight[i]);
    if (!data.file.empty()) rest.file.push_back(data.file[i]);
    if (!data.line.empty()) rest.line.push_back(data.line[i]);
  }
  return rest;
}

std::int64_t repair(const Constraint& constraint, Dataset& data, std::span<const std::int64_t> sequences) {
  std::int64_t changed = 0;
  for (const std::int64_t i : sequences) {
    const std::int64_t begin = data.position[i], length = data.position[i + 1] - begin;
    const Path path = nearest_path(constraint, data, i, -1);
    if (path.score == -std::numeric_limits<double>::infinity()) {
      throw Error("[repair] " + data.origin(i) + ": length " + std::to_string(length) +
                  ", and the language has no sequence of that length");
    }
    for (std::int64_t t = 0; t < length; ++t) {
      Label& gold = data.gold[begin + t];
      if (gold == kUnknownLabel || gold == path.labels[t]) continue;
      gold = path.labels[t];
      ++changed;
    }
  }
  return changed;
}

}  // namespace regccrf
