// Extractor: how a sentence becomes attributes. Three kinds:
//   from_template  CRF++ feature templates over columns: `U01:%x[-1,0]/%x[0,0]`, `B`, `B01:%x[0,0]`
//   words          built-in features: the word, its lower case, shape, affixes and neighbours; on request other
//                  columns, word lists and word vectors (docs/tagging.md lists them all)
//   attributes     those of a file in CRFsuite's format, unchanged
// Immutable and safe to share between threads. Its text goes into the model, so that tagging does what training did.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regccrf/names.h"
#include "regccrf/sentences.h"

namespace regccrf {

// What an attribute has weights for: a label, a label together with the one before it, or both. At the first position
// of a sequence there is no label before, and weights for pairs do not count.
enum class Weighs : std::uint8_t { label, pair, both };

// Receives a sentence's attributes, position after position.
class AttributeSink {
 public:
  virtual ~AttributeSink() = default;
  virtual void attribute(std::string_view name, float value) = 0;  // one more, at the current position
  virtual void next() = 0;                                         // the current position is complete
};

// A list of words; upper and lower case are the same. A word that is in it has the attribute `list=NAME`. A word whose
// neighbour is in it has `list[-1]=NAME` or `list[1]=NAME`.
struct WordList {
  std::string name;
  std::vector<std::string> words;
  static WordList load(const std::string& name, const std::string& path);  // one word a line
};

struct WordFeatures {
  int word = 0;                   // the column that holds the word, from 0
  std::vector<int> columns = {};  // further columns, from 0, which are used as they are
  std::vector<WordList> lists = {};
  // Lines `word v1 v2 …` (GloVe; word2vec's text, whose first line is `words dimensions`, too): attributes e0, e1, …
  // with the vector's numbers as their values. The model keeps the file's path and a checksum, not its content.
  std::string embeddings = {};
};

class Extractor {
 public:
  static Extractor attributes();
  static Extractor words(const WordFeatures& features);
  static Extractor from_template(const std::string& text, const std::string& origin = "template");

  std::string text() const;  // all that from_text() needs, as JSON
  // The extractor whose text() this is. `embeddings`: where the file of word vectors is now; empty: where it was.
  static Extractor from_text(const std::string& text, const std::string& embeddings = "");

  Format format() const;        // what it reads
  int columns() const;          // how many columns it needs at least
  bool uses(int column) const;  // whether it uses this column, from 0
  bool transitions() const;     // whether there are transition scores; false for a template without `B`
  Weighs weighs(std::string_view attribute) const;            // what this attribute has weights for
  std::vector<Weighs> weighs(const Names& attributes) const;  // the same for all of them
  std::string summary() const;                                // one line for people

  // `sentence` must have been split. Error if it is in the wrong format, if a row has too few columns, or if a value of
  // CRFsuite's format is not a number.
  void extract(const Sentence& sentence, AttributeSink& sink) const;

  struct Impl;

 private:
  explicit Extractor(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace regccrf
