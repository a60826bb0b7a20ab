// Weights of attributes for pairs of labels: what a tagger answers, against the scores of all sequences one by one.
#include "constraint/pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "regccrf/error.h"
#include "regccrf/language.h"
#include "regccrf/tagger.h"

namespace regccrf {
namespace {

using Random = std::mt19937_64;
constexpr int kAttributes = 6;
constexpr double kGap = 2e-4;  // sums under kept rules are certified to 1e-4, and two of them are compared

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Labels labels_of(int K) {
  std::vector<std::string> names;
  for (int a = 0; a < K; ++a) names.push_back(std::string(1, static_cast<char>('A' + a)));
  return Labels(names);
}

// Weights in full: label[i][b], pair[i][a][b], transition[a][b]; a model holds the same.
struct Weights {
  Weights(Random& random, int labels) : K(labels) {
    std::normal_distribution<double> normal;
    const auto some = [&] { return random() % 3 == 0 ? 0.0 : 2 * normal(random); };
    label.resize(kAttributes * K);
    pair.resize(kAttributes * K * K);
    transition.resize(K * K);
    std::generate(label.begin(), label.end(), some);
    std::generate(pair.begin(), pair.end(), some);
    std::generate(transition.begin(), transition.end(), some);
  }

  Model model(const Constraint& constraint) const {
    ModelParts parts;
    parts.labels = constraint.labels();
    parts.extractor = Extractor::attributes().text();
    parts.begin = parts.pair_begin = {0};
    for (int i = 0; i < kAttributes; ++i) {
      parts.attributes.add("x" + std::to_string(i));
      for (int b = 0; b < K; ++b) {
        if (label[i * K + b] == 0) continue;
        parts.label.push_back(b);
        parts.weight.push_back(label[i * K + b]);
      }
      for (int ab = 0; ab < K * K; ++ab) {
        if (pair[i * K * K + ab] == 0) continue;
        parts.pair.push_back(ab);
        parts.pair_weight.push_back(pair[i * K * K + ab]);
      }
      parts.begin.push_back(static_cast<std::int64_t>(parts.label.size()));
      parts.pair_begin.push_back(static_cast<std::int64_t>(parts.pair.size()));
    }
    parts.transitions = transition;
    parts.constraint = constraint;
    parts.constrain = Constrain::decode;
    return Model(std::move(parts));
  }

  int K;
  std::vector<double> label, pair, transition;
};

struct Item {
  int attribute;
  float value;
};
using Input = std::vector<std::vector<Item>>;  // [T]

Input random_input(Random& random, std::size_t T) {
  Input input(T);
  for (auto& items : input) {
    for (std::size_t n = random() % 4; n > 0; --n)
      items.push_back({static_cast<int>(random() % kAttributes), random() % 2 ? 1.0F : -0.5F});
  }
  return input;
}

double score_of(const Weights& w, const Input& input, const std::vector<Label>& y) {
  double score = 0;
  for (std::size_t t = 0; t < input.size(); ++t) {
    for (const Item& item : input[t]) {
      score += item.value * w.label[item.attribute * w.K + y[t]];
      if (t > 0) score += item.value * w.pair[(item.attribute * w.K + y[t - 1]) * w.K + y[t]];
    }
    if (t > 0) score += w.transition[y[t - 1] * w.K + y[t]];
  }
  return score;
}

struct Scored {
  std::vector<Label> y;
  double score;
};

// Every sequence, or every one that is legal, best first.
std::vector<Scored> enumerate(const Weights& w, const Input& input, const Constraint* constraint) {
  std::vector<Scored> all;
  std::vector<Label> y(input.size(), 0);
  for (;;) {
    if (!constraint || constraint->accepts(y)) all.push_back({y, score_of(w, input, y)});
    std::size_t t = 0;
    while (t < y.size() && ++y[t] == w.K) y[t++] = 0;
    if (t == y.size()) break;
  }
  std::sort(all.begin(), all.end(), [](const Scored& x, const Scored& z) { return x.score > z.score; });
  return all;
}

double total(const std::vector<Scored>& all) {
  double sum = 0;
  for (const Scored& scored : all) sum += std::exp(scored.score);
  return sum;
}

void feed(const Input& input, Tagger& tagger) {
  for (const auto& items : input) {
    for (const Item& item : items) tagger.attribute("x" + std::to_string(item.attribute), item.value);
    tagger.next();
  }
  tagger.end();
}

Constraint some_constraint(int K, std::uint64_t choice) {
  const Labels labels = labels_of(K);
  if (choice % 3 == 0) return Constraint::unconstrained(labels);
  return compile(Language::parse(choice % 3 == 1 ? "!(.* A B .*) & at_most(2, B)" : "(A | B A+)*", labels));
}

// The k-th path is legal, none of those before it, and as good as the k-th of all legal ones: scores may be equal.
void expect_kth(const Weights& w, const Input& input, const Constraint& constraint, const std::vector<Path>& paths,
                std::size_t k, const std::vector<Scored>& legal) {
  EXPECT_TRUE(constraint.accepts(paths[k].labels));
  EXPECT_NEAR(score_of(w, input, paths[k].labels), legal[k].score, 1e-9);
  for (std::size_t j = 0; j < k; ++j) EXPECT_NE(paths[j].labels, paths[k].labels);
}

class PairProperty : public testing::TestWithParam<int> {};

TEST_P(PairProperty, AnswersAreThoseOfEnumeration) {
  Random random(static_cast<std::uint64_t>(GetParam()));
  const int K = 2 + static_cast<int>(random() % 3);
  const Weights w(random, K);
  const Constraint constraint = some_constraint(K, random());
  TagOptions options;
  options.k_best = 1 + static_cast<int>(random() % 4);
  options.scores = options.all_marginals = options.language_mass = true;
  options.no_sequence = NoSequence::empty;
  Tagger tagger(w.model(constraint), Extractor::attributes(), options);
  std::vector<Input> inputs;
  for (int i = 0; i < 6; ++i) inputs.push_back(random_input(random, random() % 6));
  for (const Input& input : inputs) feed(input, tagger);
  const std::vector<Tagged>& tagged = tagger.decode();
  ASSERT_EQ(tagged.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<Scored> legal = enumerate(w, inputs[i], &constraint), all = enumerate(w, inputs[i], nullptr);
    const double z = total(legal);
    EXPECT_NEAR(tagged[i].language_mass, z / total(all), 1e-9);
    ASSERT_EQ(tagged[i].paths.size(), std::min<std::size_t>(legal.size(), options.k_best));
    for (std::size_t k = 0; k < tagged[i].paths.size(); ++k) {
      expect_kth(w, inputs[i], constraint, tagged[i].paths, k, legal);
      EXPECT_NEAR(tagged[i].paths[k].score, legal[k].score - std::log(z), 1e-9);
    }
    for (std::size_t t = 0; t < inputs[i].size() && !legal.empty(); ++t) {
      for (Label b = 0; b < K; ++b) {
        double p = 0;
        for (const Scored& scored : legal) p += scored.y[t] == b ? std::exp(scored.score) / z : 0;
        EXPECT_NEAR(tagged[i].all_marginals[t * K + b], p, 1e-9);
      }
      EXPECT_NEAR(tagged[i].marginals[t], tagged[i].all_marginals[t * K + tagged[i].paths[0].labels[t]], 1e-12);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Random, PairProperty, testing::Range(0, 150));

// Rules that are kept beside the base read labels and know nothing of marks.
TEST_P(PairProperty, KeptRulesAreObeyed) {
  Random random(static_cast<std::uint64_t>(GetParam()) + 1000);
  const int K = 3;
  const Weights w(random, K);
  const Language language =
      Language::parse("(A | B | C)* & at_most(1, A) & once_contiguous(B) & before(A, C)", labels_of(K));
  const Constraint whole = compile(language, {}, Rules::none), kept = compile(language, {}, Rules::all);
  ASSERT_GT(kept.rules(), 0);
  TagOptions options;
  options.k_best = 3;
  options.scores = options.all_marginals = options.language_mass = true;
  options.no_sequence = NoSequence::empty;
  Tagger tagger(w.model(kept), Extractor::attributes(), options);
  const Input input = random_input(random, 1 + random() % 5);
  feed(input, tagger);
  const Tagged& tagged = tagger.decode()[0];
  const std::vector<Scored> legal = enumerate(w, input, &whole);
  const double z = total(legal);
  ASSERT_EQ(tagged.paths.size(), std::min<std::size_t>(legal.size(), 3));
  for (std::size_t k = 0; k < tagged.paths.size(); ++k) {
    expect_kth(w, input, whole, tagged.paths, k, legal);
    EXPECT_NEAR(tagged.paths[k].score, legal[k].score - std::log(z), kGap);
  }
  EXPECT_NEAR(tagged.language_mass, z / total(enumerate(w, input, nullptr)), kGap);
  for (std::size_t t = 0; t < input.size() && !legal.empty(); ++t) {
    for (Label b = 0; b < K; ++b) {
      double p = 0;
      for (const Scored& scored : legal) p += scored.y[t] == b ? std::exp(scored.score) / z : 0;
      EXPECT_NEAR(tagged.all_marginals[t * K + b], p, kGap);
    }
  }
}

TEST(Pairs, ForcedLabelsAndSentencesWithoutALegalSequence) {
  Random random(1);
  const Weights w(random, 2);
  const Model model = w.model(compile(Language::parse("(A B)*", labels_of(2))));
  TagOptions options;
  options.no_sequence = NoSequence::free;
  Tagger tagger(model, Extractor::attributes(), options);
  const Input three = random_input(random, 3);
  feed(three, tagger);
  const Tagged free = tagger.decode()[0];
  EXPECT_TRUE(free.free);
  EXPECT_NEAR(score_of(w, three, free.paths[0].labels), enumerate(w, three, nullptr)[0].score, 1e-9);
  for (const Label forced : {0, 1}) {
    tagger.force(forced);
    feed(three, tagger);
    std::vector<Scored> all = enumerate(w, three, nullptr);
    std::erase_if(all, [&](const Scored& scored) { return scored.y[0] != forced; });
    const std::vector<Label> labels = tagger.decode()[0].paths[0].labels;
    EXPECT_EQ(labels[0], forced);
    EXPECT_NEAR(score_of(w, three, labels), all[0].score, 1e-9);
  }
}

// Sentences are decoded some at a time, and answers stay in order.
TEST(Pairs, ManySentencesAtOnce) {
  Random random(2);
  const Weights w(random, 4);
  const Model model = w.model(Constraint::unconstrained(labels_of(4)));
  Tagger tagger(model, Extractor::attributes()), one(model, Extractor::attributes());
  std::vector<Input> inputs;
  for (int i = 0; i < 3000; ++i) inputs.push_back(random_input(random, 1 + random() % 50));
  for (const Input& input : inputs) feed(input, tagger);
  const std::vector<Tagged> tagged = tagger.decode();
  for (std::size_t i = 0; i < inputs.size(); i += 97) {
    feed(inputs[i], one);
    EXPECT_EQ(one.decode()[0].paths[0].labels, tagged[i].paths[0].labels) << i;
  }
}

TEST(Pairs, TooManyLabelsAreRefused) {
  std::vector<std::string> names;
  for (int a = 0; a < 500; ++a) names.push_back("L" + std::to_string(a));
  const std::string error = error_of([&] { over_pairs(Constraint::unconstrained(Labels(names))); });
  EXPECT_NE(error.find("need up to 125250000 products a position for these 500 labels"), std::string::npos) << error;
  EXPECT_NE(error.find("write a plain B"), std::string::npos) << error;
}

TEST(Pairs, EmissionsAloneAreRefused) {
  Random random(3);
  const Model model = Weights(random, 2).model(Constraint::unconstrained(labels_of(2)));
  EXPECT_NE(error_of([&] { emissions<double>(model, Dataset(), 0, 0, {}); }).find("weights for pairs"),
            std::string::npos);
}

}  // namespace
}  // namespace regccrf
