// A BiLSTM with a RegCCRF on top, in C++. It trains on synthetic sentences, and tags new ones. A name is one or more
// words, and a sentence has at most one place, which the words alone do not show.
#include <regccrf/language.h>
#include <regccrf/torch.h>

#include <cstdio>
#include <random>

namespace {

constexpr int kWords = 6;  // for each label
constexpr int kHidden = 16;

struct TaggerImpl : torch::nn::Module {
  explicit TaggerImpl(const regccrf::Constraint& constraint)
      : embed(register_module("embed", torch::nn::Embedding(kWords * constraint.labels().size(), kHidden))),
        lstm(register_module(
            "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(kHidden, kHidden).batch_first(true).bidirectional(true)))),
        emit(register_module("emit", torch::nn::Linear(2 * kHidden, constraint.labels().size()))),
        crf(register_module("crf", regccrf::RegCCRF(constraint, regccrf::RegCCRFOptions{.batch_first = true}))) {}

  torch::Tensor emissions(const torch::Tensor& words) {
    return emit(std::get<0>(lstm(embed(words))));
  }  // [B, T] → [B, T, K]

  torch::nn::Embedding embed;
  torch::nn::LSTM lstm;
  torch::nn::Linear emit;
  regccrf::RegCCRF crf;
};
TORCH_MODULE(Tagger);

struct Batch {
  torch::Tensor words, tags;  // [B, T]
};

// Sequences of the language, with a word for each label. One word in ten is that of a random label, so that the words
// are misleading.
Batch make_batch(const regccrf::Language& language, std::int64_t B, std::int64_t T, std::mt19937& random) {
  Batch batch{torch::empty({B, T}, torch::kLong), torch::empty({B, T}, torch::kLong)};
  const auto sequences = language.random(static_cast<std::size_t>(T), static_cast<std::size_t>(B), random());
  for (std::int64_t i = 0; i < B; ++i) {
    for (std::int64_t t = 0; t < T; ++t) {
      const int label = sequences[i][t],
                source = random() % 10 ? label : static_cast<int>(random() % language.labels().size());
      batch.tags[i][t] = label;
      batch.words[i][t] = static_cast<std::int64_t>(source * kWords + random() % kWords);
    }
  }
  return batch;
}

}  // namespace

int main() {
  torch::manual_seed(0);
  torch::set_num_threads(1);
  std::mt19937 random(0);
  const auto language = regccrf::Language::parse("(O | B-PER I-PER* | B-LOC I-LOC*)* & at_most(1, B-LOC)");
  Tagger tagger(regccrf::compile(language));
  torch::optim::Adam optimizer(tagger->parameters(), 0.02);

  float first = 0, last = 0;
  for (int step = 0; step < 80; ++step) {
    const Batch batch = make_batch(language, 16, 8, random);
    const torch::Tensor loss = tagger->crf->nll(tagger->emissions(batch.words), batch.tags, torch::Tensor(), "mean");
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    last = loss.item<float>();
    if (step == 0) first = last;
  }

  const Batch batch = make_batch(language, 100, 8, random);
  int right = 0, legal = 0;
  const auto best = tagger->crf->decode(tagger->emissions(batch.words));
  for (std::size_t i = 0; i < best.size(); ++i) {
    legal += tagger->crf->constraint().accepts(best[i]).accepted;
    for (std::size_t t = 0; t < best[i].size(); ++t) right += best[i][t] == batch.tags[i][t].item<std::int64_t>();
  }
  std::printf("loss %.2f -> %.2f; %d of 800 labels right, %d of 100 sequences legal\n", first, last, right, legal);
  return last < first / 2 && right > 680 && legal == 100 ? 0 : 1;
}
