// Span marginals: how likely each of many runs of labels is. On the way back through a sequence every span that covers
// position t has a beta of its own, rho: what follows from a node, as beta, over sequences alone that have the span's
// labels from t on. At the span's first position Σ alpha · rho / Σ alpha · beta is its probability: exact, and local,
// so that thousands of spans in a long text cost no more than the positions that they cover.
#include <algorithm>
#include <string>
#include <vector>

#include "inference/cpu/wide_pass.h"

namespace regccrf {

namespace {

bool holds(const std::vector<Label>& labels, Label a) {
  return std::find(labels.begin(), labels.end(), a) != labels.end();
}

// A span with its neighbours, where these matter: positions first … last.
struct Stretch {
  Stretch(const Span& s, std::size_t i, std::int64_t T) : span(&s), index(i), first(s.begin), last(end() - 1) {
    if (!s.not_before.empty() && first > 0) --first;
    if (!s.not_after.empty() && last + 1 < T) ++last;
  }

  std::int64_t end() const { return span->begin + static_cast<std::int64_t>(span->labels.size()); }
  bool allows(std::int64_t t, Label a) const {
    if (t < span->begin) return !holds(span->not_before, a);
    if (t >= end()) return !holds(span->not_after, a);
    return span->labels[static_cast<std::size_t>(t - span->begin)] == a;
  }

  const Span* span;
  std::size_t index;  // among the spans of the call
  std::int64_t first, last;
};

template <class Real>
class SpanPass : public WideForward<Real> {
 public:
  // `stretches`: by last position.
  SpanPass(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, Arena& arena,
           std::vector<Stretch> stretches, std::vector<double>& values)
      : WideForward<Real>(topology, model, sequence, arena),
        waiting_(std::move(stretches)),
        values_(values),
        beta_(static_cast<std::size_t>(topology.nodes)) {}

  bool back(std::int64_t t, const Wide* alpha) {
    const bool is_last = t + 1 == this->sequence_.T;
    if (is_last) {
      this->steps_.last(beta_.data());
    } else {
      step_back(beta_);
    }
    for (Open& open : open_) step_back(open.rho);
    for (; !waiting_.empty() && waiting_.back().last == t; waiting_.pop_back())
      open_.push_back({waiting_.back(), beta_});
    for (Open& open : open_) keep_allowed(open, t);
    close(t, alpha);
    this->emissions(t);
    this->weigh(beta_.data());
    for (Open& open : open_) this->weigh(open.rho.data());
    return !waiting_.empty() || !open_.empty();  // what lies before the first span is not asked for
  }

 private:
  struct Open {
    Stretch stretch;
    std::vector<Wide> rho;  // [N]
  };

  void step_back(std::vector<Wide>& beta) {  // h ⊗ beta of t+1 → beta of t
    this->steps_.mix_back(beta.data(), this->arrivals_);
    this->steps_.move_back(this->arrivals_, beta.data());
  }

  void keep_allowed(Open& open, std::int64_t t) const {
    for (std::size_t n = 0; n < open.rho.size(); ++n) {
      if (!open.stretch.allows(t, this->steps_.topology().node_label[n])) open.rho[n] = kWideZero;
    }
  }

  // Spans that begin at t get their values.
  void close(std::int64_t t, const Wide* alpha) {
    const auto begins = [&](const Open& open) { return open.stretch.first == t; };
    const auto done = std::partition(open_.begin(), open_.end(), [&](const Open& open) { return !begins(open); });
    if (done == open_.end()) return;
    const Wide all = meet(alpha, beta_);
    for (auto open = done; open != open_.end(); ++open) {
      values_[open->stretch.index] = std::min(1.0, ratio(meet(alpha, open->rho), all));
    }
    open_.erase(done, open_.end());
  }

  static Wide meet(const Wide* alpha, const std::vector<Wide>& beta) {
    Wide sum = kWideZero;
    for (std::size_t n = 0; n < beta.size(); ++n) sum = sum + alpha[n] * beta[n];
    return sum;
  }

  std::vector<Stretch> waiting_;
  std::vector<Open> open_;
  std::vector<double>& values_;
  std::vector<Wide> beta_;  // [N] between calls of back: h ⊗ beta of the step visited last
};

[[noreturn]] void bad_span(const char* operation, std::size_t i, const std::string& what) {
  throw Error("[" + std::string(operation) + "] span " + std::to_string(i) + " " + what);
}

void check_labels(const char* operation, std::size_t i, const std::vector<Label>& labels, int K) {
  for (Label a : labels) {
    if (a >= 0 && a < K) continue;
    bad_span(operation, i, "has label " + std::to_string(a) + ", which is not in 0 … " + std::to_string(K - 1));
  }
}

// Which spans each sequence has.
template <class Real>
std::vector<std::vector<std::size_t>> by_sequence(const Batch<Real>& batch, std::span<const Span> spans) {
  std::vector<std::vector<std::size_t>> numbers(static_cast<std::size_t>(batch.size()));
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    if (span.sequence < 0 || span.sequence >= batch.size())
      bad_span(
          batch.operation(), i,
          "is of sequence " + std::to_string(span.sequence) + ", and the batch has " + std::to_string(batch.size()));
    if (span.labels.empty()) bad_span(batch.operation(), i, "has no labels");
    for (const auto* labels : {&span.labels, &span.not_before, &span.not_after})
      check_labels(batch.operation(), i, *labels, batch.K());
    numbers[static_cast<std::size_t>(span.sequence)].push_back(i);
  }
  return numbers;
}

std::vector<Stretch> stretches_of(const char* operation, std::span<const Span> spans,
                                  const std::vector<std::size_t>& numbers, std::int64_t T) {
  std::vector<Stretch> stretches;
  for (std::size_t i : numbers) {
    const Stretch stretch(spans[i], i, T);
    if (spans[i].begin < 0 || stretch.end() > T) {
      bad_span(operation, i,
               "is at positions " + std::to_string(spans[i].begin) + " … " + std::to_string(stretch.end() - 1) +
                   ", and sequence " + std::to_string(spans[i].sequence) + " has " + std::to_string(T));
    }
    stretches.push_back(stretch);
  }
  std::sort(stretches.begin(), stretches.end(), [](const Stretch& x, const Stretch& y) { return x.last < y.last; });
  return stretches;
}

}  // namespace

template <class Real>
std::vector<double> span_marginals(const Constraints& constraints, const Scores<Real>& scores,
                                   std::span<const Span> spans, const Options& options) {
  const Batch<Real> batch("span_marginals", constraints, scores, options);
  const auto numbers = by_sequence(batch, spans);
  const WideModel model(batch.scores());
  std::vector<double> values(spans.size(), 0.0);
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    const auto& own = numbers[static_cast<std::size_t>(sequence.index)];
    if (own.empty()) return;
    SpanPass<Real> pass(batch.constraint(sequence.index).topology(), model, sequence, arena,
                        stretches_of(batch.operation(), spans, own, sequence.T), values);
    both_ways(pass, sequence.T, options.keep_bytes, arena);
    if (pass.z().m == 0) batch.impossible(sequence);
  });
  return values;
}

template std::vector<double> span_marginals(const Constraints&, const Scores<float>&, std::span<const Span>,
                                            const Options&);
template std::vector<double> span_marginals(const Constraints&, const Scores<double>&, std::span<const Span>,
                                            const Options&);

}  // namespace regccrf
