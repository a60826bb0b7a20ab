// Dataset: sequences as a linear model sees them. At each position some attributes hold (`word=Bank`, `shape=Xx`), each
// with a value, mostly 1, and a gold label (the right one, from the annotation), where it is known. Attributes are
// names outside and numbers inside.
//
//   Names attributes, labels;
//   Dataset data = read_dataset({"train.conll"}, Format::columns, Extractor::words({}), attributes, labels);
//   std::int64_t sequences = data.sequences();
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "regccrf/extract.h"
#include "regccrf/labels.h"
#include "regccrf/names.h"
#include "regccrf/sentences.h"

namespace regccrf {

constexpr Label kUnknownLabel = -1;  // gold that is not known: every label may stand here

struct Dataset {
  std::vector<std::int64_t> position{0};  // [sequences + 1] where each sequence's positions begin
  std::vector<std::int64_t> item{0};      // [positions + 1] where each position's attributes begin
  std::vector<std::int32_t> attribute;    // [items]
  std::vector<float> value;               // [items], or empty: every value is 1
  std::vector<Label> gold;                // [positions], or empty: nothing is known
  std::vector<double> weight;             // [sequences] how often each counts, or empty: once

  // Where each sequence came from, for messages; empty where it came from no file.
  std::vector<std::string> files;
  std::vector<std::int32_t> file;  // [sequences] into files
  std::vector<std::int64_t> line;  // [sequences] of its first row, from 1

  std::int64_t sequences() const { return static_cast<std::int64_t>(position.size()) - 1; }
  std::int64_t positions() const { return position.back(); }
  std::int64_t length(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return position[at + 1] - position[at];
  }
  std::string origin(std::int64_t i) const;  // "train.conll, line 12", or "sequence 3" (from 1)
};

struct ReadOptions {
  bool gold = true;          // there is gold: in CRFsuite's format the first field, in columns `label_column`
  int label_column = -1;     // from 0; -1: the last
  std::string unknown = {};  // gold spelled so is unknown; empty: there is none
  bool grow = true;          // attributes that are new get a number; else they are left out
};

// Collects sequences, from files or piece by piece. Both lists of names must outlive it. Labels always grow: one that
// is not yet in `labels` gets the next number.
class DatasetBuilder : public AttributeSink {
 public:
  DatasetBuilder(Names& attributes, Names& labels, ReadOptions options = {});
  ~DatasetBuilder() override;
  DatasetBuilder(DatasetBuilder&&) noexcept;
  DatasetBuilder& operator=(DatasetBuilder&&) noexcept;

  void read(SentenceReader& reader, const Extractor& extractor);  // everything that is left in the file
  void add(Sentence& sentence, const Extractor& extractor);

  // Piece by piece: a position's attributes, then next(label), or next() if there is no gold at any position; end()
  // after a sequence's last position.
  void attribute(std::string_view name, float value) override;
  void next() override;
  void next(std::string_view label);
  void end(double weight = 1);

  Dataset take();  // all that was collected

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Everything in some files.
Dataset read_dataset(const std::vector<std::string>& paths, Format format, const Extractor& extractor,
                     Names& attributes, Names& labels, const ReadOptions& options = {});

}  // namespace regccrf
