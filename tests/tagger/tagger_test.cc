// Sentences labelled by a model: against inference called on the same emissions, and against names that collide.
#include "regccrf/tagger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "regccrf/error.h"
#include "regccrf/language.h"
#include "tagger/name_table.h"

namespace regccrf {
namespace {

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Model random_model(std::uint64_t seed, const std::vector<std::string>& names,
                   const std::string& pattern = "(O | B I*)*") {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  ModelParts parts;
  parts.labels = Labels({"O", "B", "I"});
  parts.extractor = Extractor::attributes().text();
  parts.begin.push_back(0);
  for (const std::string& name : names) {
    parts.attributes.add(name);
    for (Label a = 0; a < 3; ++a) {
      if (random() % 3 == 0) continue;
      parts.label.push_back(a);
      parts.weight.push_back(normal(random));
    }
    parts.begin.push_back(static_cast<std::int64_t>(parts.label.size()));
  }
  for (int i = 0; i < 9; ++i) parts.transitions.push_back(normal(random));
  parts.constraint = compile(Language::parse(pattern, parts.labels));
  parts.constrain = Constrain::decode;
  return Model(std::move(parts));
}

std::vector<std::string> numbered(int many) {
  std::vector<std::string> names;
  for (int i = 0; i < many; ++i) names.push_back("a" + std::to_string(i));
  return names;
}

// Random sentences, in a tagger and in a dataset.
struct Sentences {
  Sentences(std::uint64_t seed, int many, Tagger& tagger, const Model& model) {
    std::mt19937_64 random(seed);
    for (int s = 0; s < many; ++s) {
      for (std::size_t t = 1 + random() % 8; t > 0; --t) {
        for (std::size_t n = random() % 60; n > 0; --n) {
          const std::string name = "a" + std::to_string(random() % 300);  // some are not the model's
          const float value = random() % 2 ? 1.0F : 0.5F;
          tagger.attribute(name, value);
          const auto number = model.find_attribute(name);
          if (!number) continue;
          data.attribute.push_back(*number);
          data.value.push_back(value);
        }
        tagger.next();
        data.item.push_back(static_cast<std::int64_t>(data.attribute.size()));
      }
      tagger.end();
      data.position.push_back(static_cast<std::int64_t>(data.item.size()) - 1);
    }
    h.resize(static_cast<std::size_t>(data.positions()) * 3);
    emissions<double>(model, data, 0, data.positions(), h);
    for (std::int64_t i = 0; i < data.sequences(); ++i) length.push_back(data.length(i));
  }
  Scores<double> scores(const Model& model) const {
    return {h, model.transitions(), Layout::ragged(std::span(data.position).first(length.size()), length)};
  }
  Dataset data;
  std::vector<double> h;
  std::vector<std::int64_t> length;
};

TEST(Tagger, AnswersAsInferenceDoes) {
  const Model model = random_model(1, numbered(200));
  TagOptions options;
  options.k_best = 3;
  options.scores = options.all_marginals = options.language_mass = true;
  Tagger tagger(model, Extractor::attributes(), options);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Sentences sentences(seed, 20, tagger, model);
    const Scores<double> scores = sentences.scores(model);
    const auto& tagged = tagger.decode();
    const auto best = k_best(model.decoding(), scores, 3);
    const auto z = log_z(model.decoding(), scores), mass = language_mass(model.decoding(), scores);
    std::vector<double> marginals(sentences.h.size());
    label_marginals<double>(model.decoding(), scores, marginals);
    ASSERT_EQ(tagged.size(), best.size());
    for (std::size_t i = 0; i < best.size(); ++i) {
      ASSERT_EQ(tagged[i].paths.size(), best[i].size());
      for (std::size_t k = 0; k < best[i].size(); ++k) {
        EXPECT_EQ(tagged[i].paths[k].labels, best[i][k].labels);
        EXPECT_NEAR(tagged[i].paths[k].score, best[i][k].score - z[i], 1e-9);
      }
      EXPECT_NEAR(tagged[i].language_mass, std::exp(mass[i]), 1e-9);
      const auto first = static_cast<std::size_t>(sentences.data.position[i]) * 3;
      for (std::size_t t = 0; t < best[i][0].labels.size(); ++t) {
        EXPECT_NEAR(tagged[i].marginals[t], marginals[first + t * 3 + static_cast<std::size_t>(best[i][0].labels[t])],
                    1e-9);
        for (std::size_t a = 0; a < 3; ++a)
          EXPECT_NEAR(tagged[i].all_marginals[t * 3 + a], marginals[first + t * 3 + a], 1e-9);
      }
    }
  }
}

TEST(Tagger, NamesWithEqualHashesAreToldApart) {
  std::map<std::uint32_t, std::string> seen;
  std::vector<std::pair<std::string, std::string>> twins;
  for (int i = 0; i < 400'000; ++i) {
    const std::string name = "n" + std::to_string(i);
    const auto [at, fresh] = seen.try_emplace(hash_name(name), name);
    if (!fresh) twins.emplace_back(at->second, name);
  }
  ASSERT_FALSE(twins.empty()) << "400,000 names make about 18 pairs";
  for (const auto& [one, other] : twins) {
    Names names;
    EXPECT_EQ(names.add(one), 0);
    EXPECT_FALSE(names.find(other));
    EXPECT_EQ(names.add(other), 1);
    EXPECT_EQ(names.find(one), 0);
    for (const auto& known : {std::vector<std::string>{one, other}, {other, one}, {one}}) {
      const Model model = random_model(2, known, "(O | B | I)*");
      Tagger tagger(model, Extractor::attributes());
      tagger.attribute(other, 1);
      tagger.next();
      tagger.end();
      Dataset data;
      if (const auto number = model.find_attribute(other)) data.attribute.push_back(*number);
      data.item.push_back(static_cast<std::int64_t>(data.attribute.size()));
      data.position.push_back(1);
      std::vector<double> h(3);
      emissions<double>(model, data, 0, 1, h);
      EXPECT_DOUBLE_EQ(tagger.decode()[0].paths[0].score, *std::max_element(h.begin(), h.end()));
    }
  }
}

TEST(Tagger, ForcedLabelsStay) {
  const Model model = random_model(3, numbered(200));
  Tagger tagger(model, Extractor::attributes());
  std::mt19937 random(4);
  for (int round = 0; round < 100; ++round) {
    const Label forced = static_cast<Label>(random() % 3);
    tagger.next();
    tagger.attribute("a" + std::to_string(random() % 200), 3);
    tagger.force(forced);
    tagger.next();
    tagger.end();
    const Tagged& tagged = tagger.decode()[0];
    EXPECT_EQ(tagged.paths[0].labels[1], forced);
    EXPECT_TRUE(model.decoding().accepts(tagged.paths[0].labels));
  }
  EXPECT_NE(error_of([&] { tagger.force(3); }), "no error");
}

TEST(Tagger, WhereNothingIsLegal) {
  const Model model = random_model(5, numbered(10), "B I+");
  const auto decode = [&](NoSequence what) {
    TagOptions options;
    options.no_sequence = what;
    Tagger tagger(model, Extractor::attributes(), options);
    for (int length : {2, 1, 3}) {
      for (int t = 0; t < length; ++t) tagger.next();
      tagger.end();
    }
    return tagger.decode();
  };
  EXPECT_NE(error_of([&] {
              decode(NoSequence::error);
            }).find("sentence 1 has length 1, and the language has no sequence of that length (shortest: 2"),
            std::string::npos);
  const auto empty = decode(NoSequence::empty);
  EXPECT_TRUE(empty[1].paths.empty());
  EXPECT_EQ(empty[2].paths[0].labels, (std::vector<Label>{1, 2, 2}));
  const auto free = decode(NoSequence::free);
  EXPECT_EQ(free[1].paths[0].labels.size(), 1U);
  EXPECT_TRUE(free[1].free);
  EXPECT_FALSE(free[0].free);
}

TEST(Tagger, NothingGivesNothing) {
  Tagger tagger(random_model(6, numbered(10)), Extractor::attributes());
  EXPECT_TRUE(tagger.decode().empty());
  tagger.end();
  EXPECT_EQ(tagger.decode().size(), 1U);
  EXPECT_TRUE(tagger.decode().empty());
}

}  // namespace
}  // namespace regccrf
