// Dataset: sequences as a linear model sees them. A position has attributes (`word=Bank`, `shape=Xx`), each with a
// value, mostly 1. If the data is annotated it also has a gold label, which is the correct one. Attributes and labels
// are numbers here; Names has their names.
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

constexpr Label kUnknownLabel = -1;  // the correct label is not known: every label is possible

struct Dataset {
  std::vector<std::int64_t> position{0};  // [sequences + 1] where each sequence's positions begin
  std::vector<std::int64_t> item{0};      // [positions + 1] where each position's attributes begin
  std::vector<std::int32_t> attribute;    // [items]
  std::vector<float> value;               // [items], or empty: every value is 1
  std::vector<Label> gold;                // [positions], or empty: no label is known
  std::vector<double> weight;             // [sequences] how often each counts, or empty: once

  // Where each sequence is from, for messages; empty if it is from no file.
  std::vector<std::string> files;
  std::vector<std::int32_t> file;  // [sequences] into files
  std::vector<std::int64_t> line;  // [sequences] of its first row, from 1

  std::int64_t sequences() const { return static_cast<std::int64_t>(position.size()) - 1; }
  std::int64_t positions() const { return position.back(); }
  std::int64_t length(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return position[at + 1] - position[at];
  }
  std::string origin(std::int64_t i) const;  // "train.conll, line 12", or "sequence 2" (from 0)
};

struct ReadOptions {
  bool gold = true;          // there are labels: in CRFsuite's format the first field, in columns `label_column`
  int label_column = -1;     // from 0; -1: the last
  std::string unknown = {};  // a label with this name is unknown; empty: there are none
  bool grow = true;          // new attributes get a number; otherwise they are left out
};

// Collects sequences, from files or piece by piece. Both lists of names must outlive it. A label that is not yet in
// `labels` always gets the next number.
class DatasetBuilder : public AttributeSink {
 public:
  DatasetBuilder(Names& attributes, Names& labels, ReadOptions options = {});
  ~DatasetBuilder() override;
  DatasetBuilder(DatasetBuilder&&) noexcept;
  DatasetBuilder& operator=(DatasetBuilder&&) noexcept;

  void read(SentenceReader& reader, const Extractor& extractor);  // the rest of the file
  void add(Sentence& sentence, const Extractor& extractor);

  // Piece by piece: a position's attributes, then next(label), or next() if no position has a label; end()
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
