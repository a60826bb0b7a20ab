// Models: what they are made of, their file, and the emissions that they give.
#include "regccrf/model.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <random>

#include "base/file.h"
#include "base/safetensors.h"
#include "regccrf/error.h"
#include "regccrf/language.h"

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

Labels bio() { return Labels({"O", "B", "I"}); }

ModelParts random_parts(std::uint64_t seed, std::int32_t attributes = 50, const Labels& labels = bio()) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  ModelParts parts;
  parts.labels = labels;
  parts.extractor = R"({"kind":"attributes"})";
  parts.facts = R"({"objective":1.5})";
  parts.begin.push_back(0);
  for (std::int32_t i = 0; i < attributes; ++i) {
    parts.attributes.add("attribute " + std::to_string(i));
    for (Label a = 0; a < labels.size(); ++a) {
      if (random() % 2 == 0) continue;
      parts.label.push_back(a);
      parts.weight.push_back(normal(random));
    }
    parts.begin.push_back(static_cast<std::int64_t>(parts.label.size()));
  }
  for (int i = 0; i < labels.size() * labels.size(); ++i) parts.transitions.push_back(normal(random));
  parts.constraint = compile(Language::parse("(O | B I*)*", labels));
  parts.constrain = Constrain::decode;
  return parts;
}

// The same with weights for pairs of labels.
ModelParts with_pairs(ModelParts parts) {
  std::mt19937_64 random(parts.weight.size());
  std::normal_distribution<double> normal;
  parts.pair_begin.push_back(0);
  for (std::int32_t i = 0; i < parts.attributes.size(); ++i) {
    for (std::int32_t ab = 0; ab < parts.labels.size() * parts.labels.size(); ++ab) {
      if (random() % 3 > 0) continue;
      parts.pair.push_back(ab);
      parts.pair_weight.push_back(normal(random));
    }
    parts.pair_begin.push_back(static_cast<std::int64_t>(parts.pair.size()));
  }
  return parts;
}

template <class T>
std::vector<T> list(std::span<const T> values) {
  return {values.begin(), values.end()};
}

void expect_equal(const Model& x, const Model& y) {
  EXPECT_EQ(x.labels(), y.labels());
  EXPECT_EQ(x.extractor(), y.extractor());
  EXPECT_EQ(x.facts(), y.facts());
  EXPECT_EQ(x.constrain(), y.constrain());
  ASSERT_EQ(x.attributes(), y.attributes());
  for (std::int32_t i = 0; i < x.attributes(); ++i) {
    EXPECT_EQ(x.attribute(i), y.attribute(i));
    EXPECT_EQ(y.find_attribute(x.attribute(i)), i);
  }
  EXPECT_FALSE(y.find_attribute("not there"));
  EXPECT_EQ(list(x.begin()), list(y.begin()));
  EXPECT_EQ(list(x.label()), list(y.label()));
  EXPECT_EQ(list(x.weight()), list(y.weight()));
  EXPECT_EQ(list(x.transitions()), list(y.transitions()));
  EXPECT_EQ(list(x.pair_begin()), list(y.pair_begin()));
  EXPECT_EQ(list(x.pair()), list(y.pair()));
  EXPECT_EQ(list(x.pair_weight()), list(y.pair_weight()));
  ASSERT_EQ(x.constraint().has_value(), y.constraint().has_value());
  if (x.constraint()) {
    EXPECT_EQ(x.constraint()->automaton().arcs, y.constraint()->automaton().arcs);
    EXPECT_EQ(x.constraint()->text(), y.constraint()->text());
  }
}

class ModelFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("regccrf_model_test." + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    path_ = folder_ / "model";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string put(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return path_;
  }
  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(ModelFile, WhatIsSavedIsLoaded) {
  for (std::int32_t attributes : {0, 1, 50, 3000}) {
    ModelParts parts = random_parts(static_cast<std::uint64_t>(attributes), attributes);
    if (attributes == 1) parts.constraint.reset();
    const Model model(std::move(parts));
    model.save(path_);
    expect_equal(model, Model::load(path_));
    expect_equal(model, Model::from_bytes(model.to_bytes()));
    EXPECT_EQ(read_file(path_), model.to_bytes());
    Model::load(path_).save(path_);  // over the file that is mapped
    expect_equal(model, Model::load(path_));
  }
}

// Older programs would leave the weights for pairs out without a word: such a model is of a version that they refuse.
TEST_F(ModelFile, WeightsForPairsAreKept) {
  const auto version = [](const Model& model) {
    return decode_safetensors(model.to_bytes(), "").metadata.at("version");
  };
  const Model model(with_pairs(random_parts(3))), plain(random_parts(3));
  model.save(path_);
  expect_equal(model, Model::load(path_));
  EXPECT_TRUE(Model::load(path_).has_pairs());
  EXPECT_EQ(version(model), "2");
  EXPECT_EQ(version(plain), "1");
  const std::string good = Model(with_pairs(random_parts(1, 2))).to_bytes();
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] ^= 4;
    EXPECT_NE(error_of([&] { Model::from_bytes(bad); }), "no error") << at;
  }
}

TEST_F(ModelFile, EveryFlippedBitIsFound) {
  const std::string good = Model(random_parts(1, 10)).to_bytes();
  std::mt19937 random(1);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
    const std::string error = error_of([&] { Model::from_bytes(bad); });
    if (error == "no error") {
      // The header's padding says nothing.
      expect_equal(Model::from_bytes(good), Model::from_bytes(bad));
    }
  }
}

TEST_F(ModelFile, EveryCutIsFound) {
  const std::string good = Model(random_parts(1, 5)).to_bytes();
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_NE(error_of([&] { Model::from_bytes(good.substr(0, length)); }), "no error") << length;
  }
  EXPECT_NE(error_of([&] { Model::load(put("")); }), "no error");
}

TEST_F(ModelFile, ForeignAndNewerFilesAreRefusedWithTheReason) {
  compile(Language::parse("O*")).save(path_);
  EXPECT_NE(error_of([&] { Model::load(path_); }).find("a compiled constraint, not a model"), std::string::npos);
  put("EU\tB\nrejects\tO\n");
  EXPECT_NE(error_of([&] { Model::load(path_); }).find("not a safetensors file"), std::string::npos);
  Safetensors other;
  other.tensors["weight"] = {"F32", {1}, std::string(4, '\0')};
  put(encode_safetensors(other));
  EXPECT_NE(error_of([&] { Model::load(path_); }).find("not a regccrf model"), std::string::npos);
  Safetensors newer = decode_safetensors(Model(random_parts(1)).to_bytes(), "");
  newer.metadata["version"] = "3";
  put(encode_safetensors(newer));
  EXPECT_NE(error_of([&] { Model::load(path_); }).find("version 3"), std::string::npos);
  EXPECT_NE(error_of([&] { Model::load(folder_ / "absent"); }).find("cannot open"), std::string::npos);
  EXPECT_NE(error_of([&] { Model::load(folder_); }).find("folder"), std::string::npos);
}

TEST_F(ModelFile, AFullDiskLeavesTheOldFile) {
  const Model old(random_parts(1));
  old.save(path_);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{}, small{};
  getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  small.rlim_cur = 4096;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of([&] { Model(random_parts(2, 5000)).save(path_); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(error.find("cannot write"), std::string::npos);
  expect_equal(old, Model::load(path_));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "nothing else is left";
}

TEST(Model, PartsThatDoNotFitAreErrors) {
  const auto making = [](const std::function<void(ModelParts&)>& spoil) {
    return error_of([&] {
      ModelParts parts = random_parts(1);
      spoil(parts);
      Model model(std::move(parts));
    });
  };
  EXPECT_EQ(making([](ModelParts&) {}), "no error");
  EXPECT_NE(making([](ModelParts& p) { p.weight[3] = std::numeric_limits<double>::quiet_NaN(); }).find("finite"),
            std::string::npos);
  EXPECT_NE(making([](ModelParts& p) { p.transitions[3] = std::numeric_limits<double>::infinity(); }).find("finite"),
            std::string::npos);
  EXPECT_NE(making([](ModelParts& p) { p.transitions.pop_back(); }).find("transitions"), std::string::npos);
  EXPECT_NE(making([](ModelParts& p) { p.label[0] = 3; }), "no error");
  EXPECT_NE(making([](ModelParts& p) { p.label.pop_back(); }), "no error");
  EXPECT_NE(making([](ModelParts& p) { p.begin.pop_back(); }), "no error");
  EXPECT_NE(making([](ModelParts& p) { p.begin[0] = 1; }), "no error");
  const auto spoiling_pairs = [&](const std::function<void(ModelParts&)>& spoil) {
    return making([&](ModelParts& p) {
      p = with_pairs(std::move(p));
      spoil(p);
    });
  };
  EXPECT_EQ(spoiling_pairs([](ModelParts&) {}), "no error");
  EXPECT_NE(spoiling_pairs([](ModelParts& p) { p.pair[0] = 9; }).find("pairs of attribute"), std::string::npos);
  EXPECT_NE(spoiling_pairs([](ModelParts& p) { p.pair.pop_back(); }), "no error");
  EXPECT_NE(spoiling_pairs([](ModelParts& p) { p.pair_begin.pop_back(); }), "no error");
  EXPECT_NE(spoiling_pairs([](ModelParts& p) { p.pair_begin.clear(); }), "no error");
  EXPECT_NE(spoiling_pairs([](ModelParts& p) { p.pair_weight[0] = std::numeric_limits<double>::infinity(); }),
            "no error");
  EXPECT_NE(
      making([](ModelParts& p) { p.constraint = compile(Language::parse("(B | O | I)*")); }).find("fit_constraint"),
      std::string::npos);
}

TEST(Model, DecodingObeysTheConstraintUnlessToldOtherwise) {
  const Model model(random_parts(1));
  EXPECT_FALSE(model.decoding().accepts(std::vector<Label>{2}));
  EXPECT_TRUE(model.with_constraint(model.constraint(), Constrain::none).decoding().accepts(std::vector<Label>{2}));
  EXPECT_TRUE(model.with_constraint(std::nullopt, Constrain::none).decoding().accepts(std::vector<Label>{2}));
}

TEST(FitConstraint, MatchesLabelsByName) {
  const Constraint constraint = compile(Language::parse("(O | B I* | X O)*", Labels({"B", "I", "O", "X", "Y"})));
  std::vector<std::string> missing;
  const Constraint fitted = fit_constraint(constraint, Labels({"Z", "O", "I", "B"}), &missing);
  EXPECT_EQ(missing, std::vector<std::string>{"X"}) << "Y is in no sequence";
  EXPECT_TRUE(Language::from_automaton(fitted.automaton(), fitted.labels())
                  .equals(Language::parse("(O | B I*)*", Labels({"Z", "O", "I", "B"}))));
  EXPECT_NE(error_of([&] {
              fit_constraint(compile(Language::parse("X O+")), bio());
            }).find("check how the labels are spelled"),
            std::string::npos);
}

TEST(Emissions, AreSumsOfWeights) {
  const Model model(random_parts(3));
  std::mt19937 random(4);
  for (const bool valued : {false, true}) {
    Dataset data;
    for (int p = 0; p < 20; ++p) {
      for (std::size_t n = random() % 6; n > 0; --n) {
        data.attribute.push_back(static_cast<std::int32_t>(random() % 50));
        if (valued) data.value.push_back(static_cast<float>(random() % 100) / 10);
      }
      data.item.push_back(static_cast<std::int64_t>(data.attribute.size()));
    }
    data.position.push_back(20);
    std::vector<double> h(15 * 3);
    emissions<double>(model, data, 5, 20, h);
    std::vector<float> single(15 * 3);
    emissions<float>(model, data, 5, 20, single);
    for (std::size_t t = 0; t < 15; ++t) {
      for (Label a = 0; a < 3; ++a) {
        double expected = 0;
        for (auto i = data.item[t + 5]; i < data.item[t + 6]; ++i) {
          const auto n = static_cast<std::size_t>(data.attribute[static_cast<std::size_t>(i)]);
          for (auto f = model.begin()[n]; f < model.begin()[n + 1]; ++f) {
            const auto at = static_cast<std::size_t>(f);
            if (model.label()[at] == a)
              expected += model.weight()[at] * (valued ? data.value[static_cast<std::size_t>(i)] : 1);
          }
        }
        EXPECT_NEAR(h[t * 3 + static_cast<std::size_t>(a)], expected, 1e-12);
        EXPECT_NEAR(single[t * 3 + static_cast<std::size_t>(a)], expected, 1e-4);
      }
    }
    EXPECT_NE(error_of([&] { emissions<double>(model, data, 0, 21, h); }), "no error");
  }
}

}  // namespace
}  // namespace regccrf
