// Tagger: labels for sentences. It collects sentences, as rows or attribute by attribute, and decodes them together:
// the best legal sequences, their probabilities, marginals, and the probability of all legal sequences.
//
//   Model model = Model::load("ner.model");
//   Tagger tagger(model, Extractor::from_text(model.extractor()));
//   Sentence sentence = Sentence::of_rows({{"Ada"}, {"met"}, {"Babbage"}});  // one row for each word
//   tagger.add(sentence);
//   Path best = tagger.decode()[0].paths[0];
//   std::vector<std::string> labels = model.labels().names(best.labels);
//
// A tagger is for one thread. Models and extractors can be shared.
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

// What to do if no label sequence is legal for a sentence: none of its length is in the language, or none agrees with
// the forced labels.
enum class NoSequence {
  error,  // an Error names the sentence
  free,   // decode it without the constraint
  empty   // leave it without labels
};

struct TagOptions {
  int k_best = 1;
  bool scores = false;         // probabilities of sequences, and marginals
  bool all_marginals = false;  // marginals of every label, not only of those of the best sequence
  bool language_mass = false;
  int forced_column = -1;  // from 0; labels in it are kept, except empty ones and _
  NoSequence no_sequence = NoSequence::error;
  int threads = 1;  // of one decode(); 0: as many as the machine has
};

struct Tagged {
  std::vector<Path> paths;        // best first; with scores, Path::score is log P(sequence); empty: nothing is legal
  std::vector<double> marginals;  // [T] of the best sequence's labels, with scores
  std::vector<double> all_marginals;  // [T, K], on request; zeros if nothing is legal
  double language_mass = 0;           // P(L | x), on request
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
  void force(Label label);  // only this label at the current position
  void next() override;
  void end();

  void forget();  // drops what was collected

  std::int64_t positions() const;  // collected so far
  std::int64_t known() const;      // how many attributes of all decoded sentences the model has
  // Decodes all collected sentences, in order; the next add() starts a new collection. Valid until the next call.
  const std::vector<Tagged>& decode();
  // Why sentence i of the last decode() has no legal sequence.
  std::string reason(std::int64_t i) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace regccrf
