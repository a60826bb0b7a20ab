// Sampling: forward in wide arithmetic, then backward from the end, each step choosing a predecessor with the
// probability that it has given what was chosen after it. All samples of a sequence go back together.
// Under rules that are kept: from the sequence's own automaton (sums.h). What does not obey a rule that it has
// forgotten is drawn again, so that every sample is legal.
#include <cmath>
#include <limits>

#include "base/numbers.h"
#include "base/philox.h"
#include "inference/cpu/checkpoint.h"
#include "inference/cpu/path_score.h"
#include "inference/cpu/wide_steps.h"
#include "inference/numerics/draw_one.h"
#include "inference/numerics/limits.h"
#include "inference/rules/sums.h"

namespace regccrf {

namespace {

template <class Real>
class SamplePass {
 public:
  using Value = Wide;

  SamplePass(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, const Sampling& sampling,
             Arena& arena, std::vector<Path>& paths)
      : topology_(topology),
        steps_(topology, model),
        sequence_(sequence),
        sampling_(sampling),
        paths_(paths),
        h_(arena.take<Wide>(model.K)),
        arrivals_(arena.take<Wide>(topology.arrivals)),
        node_(arena.take<std::int32_t>(paths.size())),
        id_(sampling.ids.empty() ? static_cast<std::uint64_t>(sequence.index) : sampling.ids[sequence.index]) {}

  std::size_t size() const { return static_cast<std::size_t>(topology_.nodes); }
  bool possible() const { return z_.m != 0; }

  void first(Wide* alpha) {
    wide_emissions(sequence_.at(0), sequence_.K, steps_.model().scale, h_);
    steps_.first(h_, alpha);
  }
  void next(std::int64_t t, const Wide* before, Wide* alpha) {
    wide_emissions(sequence_.at(t), sequence_.K, steps_.model().scale, h_);
    steps_.move(before, arrivals_);
    steps_.mix(arrivals_, h_, alpha);
  }
  bool turn(const Wide* alpha) {
    z_ = steps_.total(alpha);
    return possible();
  }
  bool back(std::int64_t t, const Wide* alpha) {
    for (std::size_t s = 0; s < paths_.size(); ++s) {
      const double u = uniform(sampling_.seed, id_, static_cast<std::uint32_t>(s), static_cast<std::uint64_t>(t));
      node_[s] = t + 1 == sequence_.T ? choose_last(alpha, u) : choose_before(node_[s], alpha, u);
      paths_[s].labels[t] = topology_.node_label[node_[s]];
    }
    return true;
  }

 private:
  std::int32_t choose_last(const Wide* alpha, double u) const {
    return draw_one(u, [&](const auto& take) {
      for (std::int32_t n = 0; n < topology_.nodes; ++n) {
        if (topology_.node_accepts[n]) take(n, alpha[n] * steps_.model().end[topology_.node_label[n]]);
      }
    });
  }
  std::int32_t choose_before(std::int32_t node, const Wide* alpha, double u) const {
    const std::int32_t r = topology_.node_state[node], b = topology_.node_label[node];
    return draw_one(u, [&](const auto& take) {
      for (std::int32_t m = topology_.arrival_begin[r]; m < topology_.arrival_begin[r + 1]; ++m) {
        const Wide g = steps_.model().transition(topology_.arrival_label[m], b);
        for (std::int32_t i = topology_.into_begin[m]; i < topology_.into_begin[m + 1]; ++i) {
          take(topology_.into_node[i], alpha[topology_.into_node[i]] * g);
        }
      }
    });
  }

  const Topology& topology_;
  WideSteps steps_;
  const Sequence<Real>& sequence_;
  const Sampling& sampling_;
  std::vector<Path>& paths_;
  Wide *h_, *arrivals_;
  std::int32_t* node_;  // [count] where each sample is
  std::uint64_t id_;
  Wide z_ = kWideZero;
};

// Scores over a temperature, as a call of their own. In double, since a float's rounding errors grow with them.
struct Tempered {
  template <class Real>
  Tempered(const Scores<Real>& from, double temperature) {
    const auto scale = [&](std::span<const Real> values, std::vector<double>& copy) {
      copy.reserve(values.size());
      for (const Real value : values) copy.push_back(bounded_score(static_cast<double>(value)) / temperature);
    };
    scale(from.emissions, copies[0]);
    scale(from.transitions, copies[1]);
    scale(from.start, copies[2]);
    scale(from.end, copies[3]);
    scores =
        Scores<double>(copies[0], copies[1], from.layout).with_start_end(copies[2], copies[3]).with_labels(from.labels);
  }
  Scores<double> scores;
  std::vector<double> copies[4];
};

// Scores may be 1e4, and over this they are as large as they may be.
constexpr double kLeastTemperature = 1e-6;

constexpr std::uint64_t kAttempts = 1 << 16;

// Draws of another attempt have random numbers of their own.
template <class Real>
void draw_legal(const Constraint& constraint, const SentenceAutomaton& automaton, const Sequence<Real>& sequence,
                const Sampling& sampling, std::vector<Path>& paths) {
  const std::uint64_t id =
      sampling.ids.empty() ? static_cast<std::uint64_t>(sequence.index) : sampling.ids[sequence.index];
  for (std::size_t s = 0; s < paths.size(); ++s) {
    for (std::uint64_t attempt = 0;; ++attempt) {
      if (attempt == kAttempts) throw no_bound_error("sample", sequence.index);
      const auto draw = [&](std::int64_t t) {
        return uniform(sampling.seed, id, static_cast<std::uint32_t>(s), attempt << 32 | static_cast<std::uint64_t>(t));
      };
      automaton.draw(draw, paths[s].labels.data());
      if (constraint.rule_tables().broken(paths[s].labels).empty()) break;
    }
  }
}

// Those of the batch's sequences whose constraints keep rules.
template <class Real>
void sample_under_rules(const Constraints& constraints, const Scores<Real>& scores, const Sampling& sampling,
                        const Options& options, std::vector<std::vector<Path>>& drawn) {
  if (sampling.temperature < kLeastTemperature)
    throw Error("[sample] temperature is " + to_text(sampling.temperature) + ", and under kept rules " +
                to_text(kLeastTemperature) + " is the least; viterbi gives the best sequence");
  const Tempered tempered(scores, sampling.temperature);
  const Batch<double> batch("sample", constraints, tempered.scores, options, KeptRules::obeyed);
  Sums<double> sums(batch, kAskedGap);
  batch.each([&](const Sequence<double>& sequence, int, Arena& arena) {
    const Constraint& constraint = batch.constraint(sequence.index);
    if (constraint.memories() == 0) return;
    std::vector<Path>& paths = drawn[sequence.index];
    paths.resize(static_cast<std::size_t>(sampling.count));
    for (Path& path : paths) path.labels.resize(static_cast<std::size_t>(sequence.T));
    bool possible = constraint.accepts(std::span<const Label>()).accepted;
    if (sequence.T > 0) {
      const auto found = sums.with_automaton(constraint, sequence, arena, [&](auto& automaton, double, double gap) {
        sums.note(sequence, gap);
        draw_legal(constraint, automaton, sequence, sampling, paths);
      });
      if (found == Sums<double>::Found::uncertified) throw no_bound_error("sample", sequence.index);
      possible = found == Sums<double>::Found::certified;
    }
    if (possible) return;
    batch.impossible(sequence);
    paths.clear();
  });
}

template <class Real>
bool draw_paths(const Batch<Real>& batch, const WideModel& model, const Sequence<Real>& sequence,
                const Sampling& sampling, Arena& arena, std::vector<Path>& paths) {
  const Topology& topology = batch.constraint(sequence.index).topology();
  if (sequence.T == 0) return topology.accepting[topology.start];
  SamplePass<Real> pass(topology, model, sequence, sampling, arena, paths);
  if (must_checkpoint(pass, sequence.T, batch.options().keep_bytes)) {
    ++batch.workspace().checkpointed;
    return both_ways_checkpointed(pass, sequence.T, arena);
  }
  return both_ways_kept(pass, sequence.T, arena);
}

}  // namespace

template <class Real>
std::vector<std::vector<Path>> sample(const Constraints& constraints, const Scores<Real>& scores,
                                      const Sampling& sampling, const Options& options) {
  const Batch<Real> batch("sample", constraints, scores, options, KeptRules::obeyed);
  if (sampling.count < 0) throw Error("[sample] count is " + std::to_string(sampling.count) + ", expected 0 or more");
  if (!(sampling.temperature > 0) || !std::isfinite(sampling.temperature)) {
    throw Error("[sample] temperature is " + to_text(sampling.temperature) + ", expected a number above 0");
  }
  if (!sampling.ids.empty())
    check_size("sample", "ids", sampling.ids.size(), static_cast<std::size_t>(batch.size()), "[B]");
  const WideModel model(batch.scores(), 1 / sampling.temperature);
  std::vector<std::vector<Path>> drawn(static_cast<std::size_t>(batch.size()));
  if (batch.keeps_rules()) sample_under_rules(constraints, scores, sampling, options, drawn);
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    std::vector<Path>& paths = drawn[sequence.index];
    const bool done = batch.constraint(sequence.index).memories() > 0;
    if (!done) paths.resize(static_cast<std::size_t>(sampling.count));
    for (Path& path : paths) path.labels.resize(static_cast<std::size_t>(sequence.T));
    if (!done && !draw_paths(batch, model, sequence, sampling, arena, paths)) {
      batch.impossible(sequence);
      paths.clear();
    }
    for (Path& path : paths) path.score = path_score(batch.scores(), sequence, path.labels.data());
  });
  return drawn;
}

template std::vector<std::vector<Path>> sample(const Constraints&, const Scores<float>&, const Sampling&,
                                               const Options&);
template std::vector<std::vector<Path>> sample(const Constraints&, const Scores<double>&, const Sampling&,
                                               const Options&);

}  // namespace regccrf
