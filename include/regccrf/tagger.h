// Tagger: labels for sentences. Collects sentences, by their rows or attribute by attribute, and decodes them in one
// go: the best legal sequences, their probabilities, marginals, and how much of the model's mass is legal.
//
//   Model model = Model::load("ner.model");
//   Tagger tagger(model, Extractor::from_text(model.extractor()));
//   Sentence sentence = Sentence::of_rows({{"Ada"}, {"met"}, {"Babbage"}});  // one row for each word
//   tagger.add(sentence);
//   Path best = tagger.decode()[0].paths[0];
//   std::vector<std::string> labels = model.labels().names(best.labels);
//
// A tagger is scratch memory and serves one thread; models and extractors are shared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "regccrf/extract.h"
#include "regccrf/inference.h"
#include "regccrf/model.h"
#include "regccrf/sentences.h"

namespace regccrf {

// What to do with a sentence for which no sequence is legal: no sequence of that length is in the language, or none
// agrees with the forced labels.
enum class NoSequence {
  error,  // an Error names the sentence
  free,   // decode it without the constraint
  empty   // leave it without labels
};

struct TagOptions {
  int k_best = 1;
  bool scores = false;         // probabilities of sequences, and marginals
  bool all_marginals = false;  // marginals of every label, not only of the best sequence's
  bool language_mass = false;
  int forced_column = -1;  // from 0; the labels in it stay, unless it is empty or _
  NoSequence no_sequence = NoSequence::error;
  int threads = 1;  // of one decode(); 0: as many as the machine has
};

struct Tagged {
  std::vector<Path> paths;        // best first; with scores, Path::score is log P(sequence); empty: nothing is legal
  std::vector<double> marginals;  // [T] of the best sequence's labels, with scores
  std::vector<double> all_marginals;  // [T, K], where asked for; zeros where nothing is legal
  double language_mass = 0;           // P(L | x), where asked for
  bool free = false;                  // decoded without the constraint
};

class Tagger : public AttributeSink {
 public:
  Tagger(Model model, Extractor extractor, TagOptions options = {});
  ~Tagger() override;
  Tagger(Tagger&&) noexcept;
  Tagger& operator=(Tagger&&) noexcept;

  const Model& model() const;

  void add(Sentence& sentence);  // splits it, too

  // Piece by piece: attributes, then next(); end() after a sentence's last position.
  void attribute(std::string_view name, float value) override;
  void force(Label label);  // no other one at the present position
  void next() override;
  void end();

  void forget();  // what was collected

  std::int64_t positions() const;  // collected so far
  std::int64_t known() const;      // attributes that the model has, of all sentences decoded
  // Every sentence collected, in order. Begins afresh. Holds until the next call.
  const std::vector<Tagged>& decode();
  // Why sentence i of the last decode() has no legal sequence.
  std::string reason(std::int64_t i) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace regccrf
