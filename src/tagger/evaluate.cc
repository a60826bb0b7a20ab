// Counting. Spans are never built: conlleval's rules say, for two neighbouring labels, whether a span ends or starts
// between them, and a predicted span is correct when gold and prediction start, go on and end together. One pass over
// all sequences does that for both sides at once. The pass goes on across sequences, with an O between them, since some
// labels outside every scheme (`S` without a type) leave a span open there.
#include "regccrf/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <utility>

#include "regccrf/error.h"

namespace regccrf {

namespace {

double percent(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// --- labels as conlleval reads them ----------------------------------------------------------------------------------

struct Tag {
  std::string tag = "O", type;
  friend bool operator==(const Tag&, const Tag&) = default;
};

Tag split_at_first_hyphen(const std::string& label) {
  const std::size_t hyphen = label.find('-');
  if (hyphen == std::string::npos) return {label, ""};
  Tag result{label.substr(0, hyphen), label.substr(hyphen + 1)};
  if (result.type == "0") result.type.clear();  // false in Perl, and so no type
  return result;
}

Tag read_tag(const std::string& label, SpanScheme scheme) {
  const bool has_no_prefix = scheme == SpanScheme::tokens || scheme == SpanScheme::runs;
  if (!has_no_prefix || label == "O") return split_at_first_hyphen(label);
  return split_at_first_hyphen((scheme == SpanScheme::tokens ? "B-" : "I-") + label);
}

Tag as_bio(Tag tag) {
  if (tag.tag == "S") tag.tag = "B";
  if (tag.tag == "E") tag.tag = "I";
  return tag;
}

bool is_any_of(const std::string& tag, const char* one_letter_tags) {
  return tag.size() == 1 && std::string_view(one_letter_tags).find(tag[0]) != std::string_view::npos;
}

bool stands_for_no_span(const std::string& tag) { return is_any_of(tag, "O."); }

bool ends_between(const Tag& before, const Tag& after) {
  if (is_any_of(before.tag, "[]")) return true;
  if (is_any_of(before.tag, "BI") && is_any_of(after.tag, "BO")) return true;
  if (before.tag == "E" && is_any_of(after.tag, "EIO")) return true;
  return !stands_for_no_span(before.tag) && before.type != after.type;
}

bool starts_between(const Tag& before, const Tag& after) {
  if (is_any_of(after.tag, "[]")) return true;
  if (after.tag == "B" && is_any_of(before.tag, "BIO")) return true;
  if (is_any_of(after.tag, "EI") && is_any_of(before.tag, "EO")) return true;
  return !stands_for_no_span(after.tag) && before.type != after.type;
}

// --- the pass -------------------------------------------------------------------------------------------------------

class SpanPass {
 public:
  explicit SpanPass(std::map<std::string, SpanCounts>& types) : types_(types) {}

  // Goes on to the next position; what is counted there goes to `counts`.
  void step(const Tag& gold, const Tag& predicted, SpanCounts& counts) {
    end(gold, predicted, counts);
    start(gold, predicted, counts);
    gold_ = gold;
    predicted_ = predicted;
  }

  // Between two sequences. `before` is the earlier one's.
  void boundary(SpanCounts& before) { step(Tag(), Tag(), before); }

  void finish(SpanCounts& counts) {
    if (agree_) correct(counts);
  }

 private:
  void end(const Tag& gold, const Tag& predicted, SpanCounts& counts) {
    if (!agree_) return;
    const bool gold_ends = ends_between(gold_, gold), predicted_ends = ends_between(predicted_, predicted);
    if (gold_ends && predicted_ends) correct(counts);
    agree_ = !gold_ends && !predicted_ends && gold.type == predicted.type;
  }

  void start(const Tag& gold, const Tag& predicted, SpanCounts& counts) {
    const bool gold_starts = starts_between(gold_, gold), predicted_starts = starts_between(predicted_, predicted);
    if (gold_starts) ++counts.gold, ++types_[gold.type].gold;
    if (predicted_starts) ++counts.predicted, ++types_[predicted.type].predicted;
    if (gold_starts && predicted_starts && gold.type == predicted.type) agree_ = true;
  }

  void correct(SpanCounts& counts) { ++counts.correct, ++types_[gold_.type].correct; }

  std::map<std::string, SpanCounts>& types_;
  Tag gold_, predicted_;
  bool agree_ = false;  // both are in a span that began at the same place with the same type
};

void check_shapes(std::span<const LabelNames> gold, std::span<const LabelNames> predicted) {
  if (gold.size() != predicted.size()) {
    throw Error("[evaluate] there are " + std::to_string(gold.size()) + " sequences with correct labels and " +
                std::to_string(predicted.size()) + " predicted ones; they must be the same sequences");
  }
  for (std::size_t i = 0; i < gold.size(); ++i) {
    if (gold[i].size() == predicted[i].size()) continue;
    throw Error("[evaluate] sequence " + std::to_string(i + 1) + " has " + std::to_string(gold[i].size()) +
                " correct labels and " + std::to_string(predicted[i].size()) +
                " predicted ones; the numbers must be equal");
  }
}

bool violates(const Constraint& constraint, const LabelNames& sequence) {
  std::vector<Label> ids;
  for (const std::string& name : sequence) {
    const auto id = constraint.labels().find(name);
    if (!id) return true;
    ids.push_back(*id);
  }
  return !constraint.accepts(ids);
}

void count(const LabelNames& gold, const LabelNames& predicted, const EvaluateOptions& options, SpanPass& pass,
           Counts& counts) {
  counts.sequences = counts.exact = 1;
  for (std::size_t t = 0; t < gold.size(); ++t) {
    if (options.unknown && gold[t] == *options.unknown) continue;
    const Tag gold_tag = read_tag(gold[t], options.scheme), predicted_tag = read_tag(predicted[t], options.scheme);
    ++counts.tokens;
    if (gold_tag == predicted_tag) ++counts.correct_tokens;
    if (gold[t] != predicted[t]) counts.exact = 0;
    if (options.scheme == SpanScheme::bioes) {
      pass.step(as_bio(gold_tag), as_bio(predicted_tag), counts.spans);
    } else {
      pass.step(gold_tag, predicted_tag, counts.spans);
    }
  }
  if (options.constraint && violates(*options.constraint, predicted)) counts.violations = 1;
}

}  // namespace

SpanScheme guess_scheme(std::span<const LabelNames> gold) {
  bool has_prefix = false, has_outside = false, has_bare_tag = false, has_other = false;
  for (const LabelNames& sequence : gold) {
    for (const std::string& label : sequence) {
      if (label.starts_with("S-")) return SpanScheme::bioes;
      has_prefix = has_prefix || (label.size() > 1 && label[1] == '-');
      has_outside = has_outside || label == "O";
      has_bare_tag = has_bare_tag || is_any_of(label, "BIE[]");
      has_other = has_other || label != "O";
    }
  }
  return has_prefix || (has_outside && has_bare_tag) || !has_other ? SpanScheme::prefixed : SpanScheme::runs;
}

double SpanCounts::precision() const { return percent(correct, predicted); }
double SpanCounts::recall() const { return percent(correct, gold); }
double SpanCounts::f1() const {
  const double p = precision(), r = recall();
  return p + r > 0 ? 2 * p * r / (p + r) : 0;
}

SpanCounts& SpanCounts::operator+=(const SpanCounts& other) {
  gold += other.gold;
  predicted += other.predicted;
  correct += other.correct;
  return *this;
}

double Counts::accuracy() const { return percent(correct_tokens, tokens); }
double Counts::exact_accuracy() const { return percent(exact, sequences); }
double Counts::violation_rate() const { return percent(violations, sequences); }

Counts& Counts::operator+=(const Counts& other) {
  sequences += other.sequences;
  exact += other.exact;
  tokens += other.tokens;
  correct_tokens += other.correct_tokens;
  violations += other.violations;
  spans += other.spans;
  return *this;
}

Evaluation evaluate(std::span<const LabelNames> gold, std::span<const LabelNames> predicted,
                    const EvaluateOptions& options) {
  check_shapes(gold, predicted);
  Evaluation result;
  result.sequences.resize(gold.size());
  SpanPass pass(result.types);
  for (std::size_t i = 0; i < gold.size(); ++i) {
    Counts& counts = result.sequences[i];
    count(gold[i], predicted[i], options, pass, counts);
    const bool is_last = i + 1 == gold.size();
    if (!is_last || options.last_is_followed_by_empty_line) pass.boundary(counts.spans);
    if (is_last) pass.finish(counts.spans);
    result.total += counts;
  }
  return result;
}

std::string conlleval_report(const Evaluation& evaluation) {
  const Counts& total = evaluation.total;
  std::string report;
  const auto print = [&report](const char* format, auto... values) {
    const int length = std::snprintf(nullptr, 0, format, values...);
    const std::size_t begin = report.size();
    report.resize(begin + static_cast<std::size_t>(length) + 1);
    std::snprintf(report.data() + begin, static_cast<std::size_t>(length) + 1, format, values...);
    report.pop_back();
  };
  const auto number = [](std::int64_t n) { return static_cast<long long>(n); };
  print("processed %lld tokens with %lld phrases; found: %lld phrases; correct: %lld.\n", number(total.tokens),
        number(total.spans.gold), number(total.spans.predicted), number(total.spans.correct));
  if (total.tokens > 0) {
    print("accuracy: %6.2f%%; precision: %6.2f%%; recall: %6.2f%%; FB1: %6.2f\n", total.accuracy(),
          total.spans.precision(), total.spans.recall(), total.spans.f1());
  }
  for (const auto& [type, counts] : evaluation.types) {
    const bool is_printed_twice = type.empty() && counts.gold > 0 && counts.predicted > 0;
    for (int i = 0; i < (is_printed_twice ? 2 : 1); ++i) {
      print("%17s: precision: %6.2f%%; recall: %6.2f%%; FB1: %6.2f  %lld\n", type.c_str(), counts.precision(),
            counts.recall(), counts.f1(), number(counts.predicted));
    }
  }
  return report;
}

// --- how sure one can be ---------------------------------------------------------------------------------------------

namespace {

// Random numbers that are the same everywhere: the engine is standard, the standard's distributions are not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::size_t below(std::size_t n) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::size_t>(static_cast<Wide>(engine_()) * n >> 64);
  }
  bool coin() { return (engine_() >> 63) != 0; }

 private:
  std::mt19937_64 engine_;
};

Interval middle(std::vector<double> values, double confidence) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double last = static_cast<double>(values.size() - 1), tail = (1 - confidence) / 2;
  const auto at = [&](double share) { return values[static_cast<std::size_t>(std::lround(share * last))]; };
  return {at(tail), at(1 - tail)};
}

void check_same_sequences(const Evaluation& first, const Evaluation& second) {
  if (first.sequences.size() == second.sequences.size()) return;
  throw Error("[compare] one system has answers for " + std::to_string(first.sequences.size()) +
              " sequences, the other for " + std::to_string(second.sequences.size()) +
              "; they must be the same sequences");
}

// Both systems' sums after swapping their answers to some of the sequences. [samples]
std::vector<std::pair<Counts, Counts>> swap_at_random(const Evaluation& first, const Evaluation& second,
                                                      const Resampling& resampling) {
  Random random(resampling.seed);
  std::vector<std::pair<Counts, Counts>> samples(static_cast<std::size_t>(std::max(0, resampling.samples)));
  for (auto& [one, other] : samples) {
    for (std::size_t i = 0; i < first.sequences.size(); ++i) {
      const bool swap = random.coin();
      one += (swap ? second : first).sequences[i];
      other += (swap ? first : second).sequences[i];
    }
  }
  return samples;
}

}  // namespace

double value(const Counts& counts, Measure measure) {
  switch (measure) {
    case Measure::accuracy:
      return counts.accuracy();
    case Measure::precision:
      return counts.spans.precision();
    case Measure::recall:
      return counts.spans.recall();
    case Measure::f1:
      return counts.spans.f1();
    case Measure::exact_accuracy:
      return counts.exact_accuracy();
    case Measure::violation_rate:
      break;
  }
  return counts.violation_rate();
}

std::vector<Counts> bootstrap(std::span<const Counts> sequences, const Resampling& resampling) {
  Random random(resampling.seed);
  std::vector<Counts> sums(static_cast<std::size_t>(std::max(0, resampling.samples)));
  for (Counts& sum : sums) {
    for (std::size_t i = 0; i < sequences.size(); ++i) sum += sequences[random.below(sequences.size())];
  }
  return sums;
}

Interval interval(std::span<const Counts> resamples, Measure measure, double confidence) {
  std::vector<double> values;
  for (const Counts& sum : resamples) values.push_back(value(sum, measure));
  return middle(std::move(values), confidence);
}

std::vector<Comparison> compare(const Evaluation& first, const Evaluation& second, std::span<const Measure> measures,
                                const Resampling& resampling, double confidence) {
  check_same_sequences(first, second);
  // The same seed draws the same sequences for both.
  const std::vector<Counts> first_sums = bootstrap(first.sequences, resampling);
  const std::vector<Counts> second_sums = bootstrap(second.sequences, resampling);
  const std::vector<std::pair<Counts, Counts>> swapped = swap_at_random(first, second, resampling);

  std::vector<Comparison> result;
  for (const Measure measure : measures) {
    const auto difference = [measure](const Counts& x, const Counts& y) {
      return value(y, measure) - value(x, measure);
    };
    Comparison comparison;
    comparison.difference = difference(first.total, second.total);
    std::vector<double> differences;
    for (std::size_t i = 0; i < first_sums.size(); ++i)
      differences.push_back(difference(first_sums[i], second_sums[i]));
    comparison.interval = middle(std::move(differences), confidence);

    const double rounding = 1e-9, least = std::abs(comparison.difference) - rounding;
    const auto as_large = std::count_if(swapped.begin(), swapped.end(), [&](const auto& sums) {
      return std::abs(difference(sums.first, sums.second)) >= least;
    });
    comparison.p = static_cast<double>(as_large + 1) / static_cast<double>(swapped.size() + 1);
    result.push_back(comparison);
  }
  return result;
}

Comparison compare(const Evaluation& first, const Evaluation& second, Measure measure, const Resampling& resampling,
                   double confidence) {
  return compare(first, second, std::span(&measure, 1), resampling, confidence)[0];
}

}  // namespace regccrf
