// Evaluation: compares predicted labels with gold labels, which are the correct ones. Counts are made for each
// sequence, so the sum over any selection of sequences is an evaluation, too. Intervals and tests use this.
//
//   std::vector<LabelNames> gold = {{"B-PER", "I-PER", "O"}, {"O", "B-PER"}};    // the correct labels of two sequences
//   std::vector<LabelNames> ours = {{"B-PER", "I-PER", "O"}, {"O", "O"}};        // what one system predicts
//   std::vector<LabelNames> theirs = {{"B-PER", "B-PER", "O"}, {"O", "B-PER"}};  // … and another
//   Evaluation e = evaluate(gold, ours);
//   double f1 = e.total.spans.f1();                                              // as conlleval prints it: in percent
//   Interval likely = interval(bootstrap(e.sequences), Measure::f1);             // with 95% of the resamples
//   double p = compare(e, evaluate(gold, theirs), Measure::f1).p;                // could the difference be chance?
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regccrf/constraint.h"

namespace regccrf {

using LabelNames = std::vector<std::string>;  // of one sequence

// How labels make spans.
//   prefixed  B-X, I-X, E-X, O …: by conlleval's rules, which read IOB1, IOB2, IOE, brackets and any mixture of them
//   bioes     the same with S and E understood: conlleval counts S-X S-X, or E-X B-X, as one span
//   tokens    X, O: every token whose label is not O is a span of its own (conlleval -r)
//   runs      X, O: neighbours with the same label are one span
enum class SpanScheme { prefixed, bioes, tokens, runs };

// The scheme by the look of the labels: bioes if there is an S-X; prefixed if a label has a single character before its
// first hyphen, if there is B, I, E or a bracket beside O, or if all labels are O; runs otherwise.
SpanScheme guess_scheme(std::span<const LabelNames> gold);

struct SpanCounts {
  std::int64_t gold = 0, predicted = 0, correct = 0;

  double precision() const;  // in percent; 0 if nothing was predicted
  double recall() const;
  double f1() const;
  SpanCounts& operator+=(const SpanCounts& other);
  friend bool operator==(const SpanCounts&, const SpanCounts&) = default;
};

// Of one sequence, or the sum over several.
struct Counts {
  std::int64_t sequences = 0, exact = 0;  // exact: every label is correct
  std::int64_t tokens = 0, correct_tokens = 0;
  std::int64_t violations = 0;  // sequences whose prediction is outside the language
  SpanCounts spans;

  double accuracy() const;        // of tokens, in percent
  double exact_accuracy() const;  // of sequences, in percent
  double violation_rate() const;  // of sequences, in percent
  Counts& operator+=(const Counts& other);
  friend bool operator==(const Counts&, const Counts&) = default;
};

struct EvaluateOptions {
  SpanScheme scheme = SpanScheme::prefixed;
  // The language whose violations are counted; a label that it lacks violates it.
  std::optional<Constraint> constraint = {};
  // A gold label of this name is not known: such positions count for violations only.
  std::optional<std::string> unknown = {};
  // conlleval reads the empty line after a sequence. This matters for labels that conlleval does not know (`S` without
  // a type). A file may have no empty line after its last sequence.
  bool last_is_followed_by_empty_line = true;
};

struct Evaluation {
  std::vector<Counts> sequences;  // [sequences]
  Counts total;
  std::map<std::string, SpanCounts> types;  // every type that has a gold or predicted span
};

// Error if the two have different shapes.
Evaluation evaluate(std::span<const LabelNames> gold, std::span<const LabelNames> predicted,
                    const EvaluateOptions& options = {});

// conlleval's report, letter for letter. (It prints the type without a name twice.)
std::string conlleval_report(const Evaluation& evaluation);

// --- uncertainty -----------------------------------------------------------------------------------------------------

enum class Measure { accuracy, precision, recall, f1, exact_accuracy, violation_rate };
double value(const Counts& counts, Measure measure);  // in percent

struct Resampling {
  int samples = 1000;
  std::uint64_t seed = 1;
};

// A sample draws as many sequences as there are, with replacement, and adds up their counts. [samples]
std::vector<Counts> bootstrap(std::span<const Counts> sequences, const Resampling& resampling = {});

struct Interval {
  double low = 0, high = 0;
};

// The percentile interval: where the measure is for the middle `confidence` of the resamples.
Interval interval(std::span<const Counts> resamples, Measure measure, double confidence = 0.95);

// Two systems on the same sequences, second minus first.
struct Comparison {
  double difference = 0;
  Interval interval;  // of the difference, over resamples of the sequences
  double p = 1;  // approximate randomisation, two-sided: how often swapping the systems' answers at random, sequence
                 // by sequence, gives at least this difference
};
Comparison compare(const Evaluation& first, const Evaluation& second, Measure measure,
                   const Resampling& resampling = {}, double confidence = 0.95);
// The same for several measures, from the same resamples. [measures]
std::vector<Comparison> compare(const Evaluation& first, const Evaluation& second, std::span<const Measure> measures,
                                const Resampling& resampling = {}, double confidence = 0.95);

}  // namespace regccrf
