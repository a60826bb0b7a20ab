// The LibTorch module: its values are the library's, its gradients are those of finite differences.
#include "regccrf/torch.h"

#include <gtest/gtest.h>

#include <functional>

#include "regccrf/language.h"

namespace regccrf {
namespace {

Constraint bio() { return compile(Language::parse("(O | B I*)*")); }

RegCCRF module(RegCCRFOptions options = {}) {
  torch::manual_seed(3);
  RegCCRF crf(bio(), options);
  crf->to(torch::kDouble);
  return crf;
}

const torch::Tensor kTags = torch::tensor({{1, 0}, {2, 1}, {0, -100}});         // [T, B]: B I O, O B
const torch::Tensor kSomeOutside = torch::tensor({{0, 0}, {2, 1}, {0, -100}});  // O I O, O B
const torch::Tensor kMask = torch::tensor({{1, 1}, {1, 1}, {1, 0}});

torch::Tensor random_emissions() {
  torch::manual_seed(5);
  return torch::randn({3, 2, 3}, torch::kDouble);
}

// The largest difference between a gradient and finite differences of `value`.
template <class Value>
double gradient_error(const torch::Tensor& x, const torch::Tensor& gradient, const Value& value) {
  torch::NoGradGuard no_grad;
  double worst = 0;
  torch::Tensor flat = x.view(-1);
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const double step = 1e-5, before = flat[i].item<double>();
    flat[i] = before + step;
    const double above = value();
    flat[i] = before - step;
    const double below = value();
    flat[i] = before;
    worst = std::max(worst, std::abs((above - below) / (2 * step) - gradient.view(-1)[i].item<double>()));
  }
  return worst;
}

TEST(TorchRegCCRF, LogProbIsTheLibrarys) {
  RegCCRF crf = module();
  const torch::Tensor h = random_emissions().select(1, 0).contiguous();
  const std::vector<Label> gold{1, 2, 0};
  const auto memory = [](const torch::Tensor& x) {
    return std::span<const double>(x.data_ptr<double>(), static_cast<std::size_t>(x.numel()));
  };
  const Scores scores = Scores(memory(h), memory(crf->transitions))
                            .with_start_end(memory(crf->start_transitions), memory(crf->end_transitions));
  const double expected = -nll(bio(), scores, gold).values[0];
  EXPECT_NEAR(crf->log_prob(random_emissions(), kTags, kMask)[0].item<double>(), expected, 1e-12);
  for (const char* reduction : {"none", "sum", "mean", "token_mean"}) {
    EXPECT_TRUE(torch::equal(crf->nll(random_emissions(), kTags, kMask, reduction),
                             -crf->forward(random_emissions(), kTags, kMask, reduction)));
  }
}

TEST(TorchRegCCRF, GradientsAreThoseOfFiniteDifferences) {
  for (const char* reduction : {"sum", "mean", "token_mean"}) {
    RegCCRF crf = module({.outside = OutsideGold::skip});
    torch::Tensor h = random_emissions().requires_grad_();
    const auto value = [&] { return crf(h, kTags, kMask, reduction) + crf(h, kSomeOutside, kMask, reduction); };
    value().backward();
    EXPECT_LT(gradient_error(h, h.grad(), [&] { return value().template item<double>(); }), 1e-8);
    for (const torch::Tensor& parameter : crf->parameters()) {
      EXPECT_LT(gradient_error(parameter, parameter.grad(), [&] { return value().template item<double>(); }), 1e-8);
    }
  }
}

TEST(TorchRegCCRF, LogPartitionAndMarginalsBelongTogether) {
  RegCCRF crf = module({.batch_first = true});
  torch::Tensor h = random_emissions().transpose(0, 1).contiguous().requires_grad_();
  crf->log_partition(h, kMask.t()).sum().backward();
  EXPECT_TRUE(torch::allclose(h.grad(), crf->marginals(h, kMask.t())));
}

TEST(TorchRegCCRF, DecodesInsideTheLanguage) {
  RegCCRF crf = module({.start_end = false});
  const torch::Tensor h = torch::zeros({3, 1, 3});
  h.select(2, 2).fill_(9);  // I I I is not legal
  EXPECT_EQ(crf->decode(h), (std::vector<std::vector<Label>>{{1, 2, 2}}));
}

TEST(TorchRegCCRF, EntropyMassAndAllowedSetsHaveTheirGradients) {
  RegCCRF crf = module();
  torch::Tensor h = random_emissions().requires_grad_();
  torch::Tensor allowed = torch::ones({3, 2, 3}, torch::kBool);
  allowed[0][0][0] = false;
  const std::function<torch::Tensor()> values[] = {[&] { return crf->entropy(h, kMask).sum(); },
                                                   [&] { return crf->language_mass(h, kMask).sum(); },
                                                   [&] { return crf(h, allowed, kMask); }};
  for (const auto& value : values) {
    h.mutable_grad() = torch::Tensor();
    value().backward();
    EXPECT_GT(h.grad().abs().max().item<double>(), 1e-3);
    EXPECT_LT(gradient_error(h, h.grad(), [&] { return value().item<double>(); }), 1e-8);
  }
}

TEST(TorchRegCCRF, KBestBeginsWithTheBestAndSamplesAreLegal) {
  RegCCRF crf = module();
  const torch::Tensor h = random_emissions();
  const auto best = crf->decode(h, kMask);
  const auto three = crf->k_best(h, 3, kMask);
  const auto drawn = crf->sample(h, {.count = 20, .seed = 1}, kMask);
  for (std::size_t i = 0; i < best.size(); ++i) {
    EXPECT_EQ(three[i][0].labels, best[i]);
    EXPECT_GE(three[i][0].score, three[i][1].score);
    EXPECT_TRUE(bio().accepts(crf->posterior_decode(h, kMask)[i]).accepted);
    for (const Path& path : drawn[i]) EXPECT_TRUE(bio().accepts(path.labels).accepted);
  }
}

TEST(TorchRegCCRF, TheSameWeightsUnderAnotherConstraint) {
  RegCCRF crf = module();
  const torch::Tensor h = torch::zeros({3, 1, 3}, torch::kDouble);
  h.select(2, 2).fill_(9);
  crf->set_constraint(Constraint::unconstrained(crf->constraint().labels()));
  EXPECT_EQ(crf->decode(h), (std::vector<std::vector<Label>>{{2, 2, 2}}));
  EXPECT_THROW(crf->set_constraint(Constraint::unconstrained(Labels({"A"}))), Error);
}

TEST(TorchRegCCRF, HalfPrecisionIsComputedInFloat) {
  RegCCRF crf(bio());
  torch::Tensor h = random_emissions().to(torch::kBFloat16).requires_grad_();
  const torch::Tensor value = crf(h, kTags, kMask);
  EXPECT_EQ(value.scalar_type(), torch::kFloat);
  value.backward();
  EXPECT_EQ(h.grad().scalar_type(), torch::kBFloat16);
}

TEST(TorchRegCCRF, ErrorsSayWhere) {
  RegCCRF crf = module();
  EXPECT_THROW(crf(torch::zeros({3, 2}), kTags), Error);
  EXPECT_THROW(crf(random_emissions(), kTags.t()), Error);
  EXPECT_THROW(crf(random_emissions(), kTags, kMask, "average"), Error);
  try {
    crf(random_emissions(), torch::full({3, 2}, 2));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("leave the language at position 0"), std::string::npos) << error.what();
  }
}

TEST(TorchRegCCRF, GoldOutsideTheLanguageIsFoundAndMayBeSkipped) {
  RegCCRF crf = module({.outside = OutsideGold::skip});
  const torch::Tensor tags = torch::tensor({{1, 0}, {2, 2}, {0, 0}});  // B I O is legal, O I O is not
  const std::vector<Membership> found = crf->check(tags);
  EXPECT_TRUE(found[0].accepted);
  EXPECT_FALSE(found[1].accepted);
  EXPECT_EQ(found[1].position, 1u);
  EXPECT_TRUE(crf->check(kTags, kMask)[1].accepted);
  const torch::Tensor values = crf->log_prob(random_emissions(), tags);
  EXPECT_LT(values[0].item<double>(), 0);
  EXPECT_EQ(values[1].item<double>(), 0);
}

// Gold with "-" for masked; e to the sum of the losses where all scores are 0 and gold outside is skipped; and what the
// sum is divided by. As in tests/python/helpers.py.
struct ReductionCase {
  const char* name;
  std::vector<std::string> gold;
  double product, sequences, positions;
};
const ReductionCase kReductionCases[] = {
    {"none outside", {"BIO", "OB-"}, 13 * 5, 2, 5},
    {"some outside", {"OIO", "OB-"}, 5, 1, 2},
    {"all outside", {"OIO", "I--"}, 1, 1, 1},
    {"holes, some outside", {"B-I", "-IO", "OO-"}, 5 * 5, 2, 4},
    {"an empty sequence", {"---", "BIO"}, 13, 2, 3},
    {"all masked", {"---", "---"}, 1, 2, 1},
    {"an empty batch", {}, 1, 1, 1},
};

TEST(TorchRegCCRF, WhatIsSkippedCountsForNothing) {
  for (const bool batch_first : {false, true}) {
    RegCCRF crf = module({.batch_first = batch_first, .outside = OutsideGold::skip});
    for (torch::Tensor& parameter : crf->parameters()) torch::nn::init::zeros_(parameter);
    for (const ReductionCase& c : kReductionCases) {
      SCOPED_TRACE(c.name);
      torch::Tensor ids = torch::empty({static_cast<std::int64_t>(c.gold.size()), 3}, torch::kLong);
      for (std::size_t i = 0; i < c.gold.size(); ++i) {
        for (int t = 0; t < 3; ++t) ids[i][t] = static_cast<int>(std::string("OBI-").find(c.gold[i][t]));
      }
      if (!batch_first) ids = ids.t();
      const torch::Tensor h = torch::zeros({ids.size(0), ids.size(1), 3}, torch::kDouble);
      const torch::Tensor tags = ids.remainder(3), mask = ids.ne(3), sets = torch::one_hot(tags, 3).to(torch::kBool);
      for (const torch::Tensor& gold : {tags, sets}) {
        const double sum = std::log(c.product);
        EXPECT_NEAR(crf->nll(h, gold, mask, "sum").item<double>(), sum, 1e-12);
        EXPECT_NEAR(crf->nll(h, gold, mask, "mean").item<double>(), sum / c.sequences, 1e-12);
        EXPECT_NEAR(crf->nll(h, gold, mask, "token_mean").item<double>(), sum / c.positions, 1e-12);
      }
    }
  }
}

TEST(TorchRegCCRF, ParametersSaveAndLoad) {
  RegCCRF crf = module(), other = module();
  torch::nn::init::zeros_(other->transitions);
  std::stringstream stream;
  torch::save(crf, stream);
  torch::load(other, stream);
  EXPECT_TRUE(torch::equal(crf->transitions, other->transitions));
}

}  // namespace
}  // namespace regccrf
