// Sampling: forward in wide arithmetic, then backward from the end, each step choosing a predecessor with the
// probability that it has given what was chosen after it. All samples of a sequence go back together.
#include <cmath>
#include <limits>

#include "inference/cpu/checkpoint.h"
#include "inference/numerics/draw_one.h"
#include "inference/cpu/path_score.h"
#include "base/philox.h"
#include "inference/cpu/wide_steps.h"

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
        const Wide g = steps_.model().g[topology_.arrival_label[m] * sequence_.K + b];
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
  const Batch<Real> batch("sample", constraints, scores, options);
  if (sampling.count < 0) throw Error("[sample] count is " + std::to_string(sampling.count) + ", expected 0 or more");
  if (!(sampling.temperature > 0) || !std::isfinite(sampling.temperature)) {
    throw Error("[sample] temperature is " + std::to_string(sampling.temperature) + ", expected a number above 0");
  }
  if (!sampling.ids.empty())
    check_size("sample", "ids", sampling.ids.size(), static_cast<std::size_t>(batch.size()), "[B]");
  const WideModel model(batch.scores(), 1 / sampling.temperature);
  std::vector<std::vector<Path>> drawn(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    std::vector<Path>& paths = drawn[sequence.index];
    paths.resize(static_cast<std::size_t>(sampling.count));
    for (Path& path : paths) path.labels.resize(static_cast<std::size_t>(sequence.T));
    if (!draw_paths(batch, model, sequence, sampling, arena, paths)) {
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
