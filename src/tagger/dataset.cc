// Collecting sequences: a builder takes attributes as an extractor finds them, and numbers them.
#include "regccrf/dataset.h"

#include <utility>

#include "base/utf8.h"
#include "regccrf/error.h"
#include "tagger/crfsuite_text.h"

namespace regccrf {
std::string Dataset::origin(std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  if (at >= line.size()) return "sequence " + std::to_string(i);
  const std::string& path = files[static_cast<std::size_t>(file[at])];
  return (path == "-" ? "standard input" : path) + ", line " + std::to_string(line[at]);
}

struct DatasetBuilder::Impl : AttributeSink {
  Impl(Names& names, Names& label_names, ReadOptions how)
      : attributes(names), labels(label_names), options(std::move(how)) {}

  void add(Sentence& sentence, const Extractor& extractor);
  void add_gold(const Sentence& sentence, const Extractor& extractor);
  Label gold(std::string_view label) const;
  void attribute(std::string_view name, float value) override;
  void next() override { data.item.push_back(static_cast<std::int64_t>(data.attribute.size())); }
  void end(double weight);

  Names& attributes;
  Names& labels;
  ReadOptions options;
  Dataset data;
};

DatasetBuilder::DatasetBuilder(Names& attributes, Names& labels, ReadOptions options)
    : impl_(std::make_unique<Impl>(attributes, labels, std::move(options))) {}
DatasetBuilder::~DatasetBuilder() = default;
DatasetBuilder::DatasetBuilder(DatasetBuilder&&) noexcept = default;
DatasetBuilder& DatasetBuilder::operator=(DatasetBuilder&&) noexcept = default;

void DatasetBuilder::read(SentenceReader& reader, const Extractor& extractor) {
  Sentence sentence;
  while (reader.next(sentence)) impl_->add(sentence, extractor);
}

void DatasetBuilder::add(Sentence& sentence, const Extractor& extractor) { impl_->add(sentence, extractor); }
void DatasetBuilder::attribute(std::string_view name, float value) { impl_->attribute(name, value); }
void DatasetBuilder::next() { impl_->next(); }
void DatasetBuilder::next(std::string_view label) {
  impl_->data.gold.push_back(impl_->gold(label));
  impl_->next();
}
void DatasetBuilder::end(double weight) { impl_->end(weight); }
Dataset DatasetBuilder::take() { return std::exchange(impl_->data, Dataset()); }

void DatasetBuilder::Impl::add(Sentence& sentence, const Extractor& extractor) {
  if (sentence.size() == 0) return;
  sentence.split();
  extractor.extract(sentence, *this);
  if (options.gold) add_gold(sentence, extractor);
  if (data.files.empty() || data.files.back() != sentence.path) data.files.push_back(sentence.path);
  data.file.push_back(static_cast<std::int32_t>(data.files.size()) - 1);
  data.line.push_back(sentence.line);
  end(sentence.weight);
}

void DatasetBuilder::Impl::add_gold(const Sentence& sentence, const Extractor& extractor) {
  const bool is_crfsuite = sentence.format == Format::crfsuite;
  std::string scratch;
  for (std::int64_t t = 0; t < sentence.size(); ++t) {
    const int last = sentence.fields(t) - 1;
    const int column = is_crfsuite ? 0 : options.label_column < 0 ? last : options.label_column;
    if (column > last) {
      throw Error("[read] " + sentence.where(t) + ": has " + std::to_string(last + 1) +
                  " columns, and the label is expected in column " + std::to_string(column + 1));
    }
    if (extractor.uses(column)) {
      throw Error("[read] " + sentence.where(t) + ": column " + std::to_string(column + 1) + " has the label, but " +
                  extractor.summary() + " would use it as input; is the label's column missing?" +
                  (last == 0 && sentence.field(t, column).find(',') != std::string_view::npos
                       ? " Columns are separated by tabs or blanks, not by commas"
                       : ""));
    }
    const std::string_view field = sentence.field(t, column);
    try {
      data.gold.push_back(gold(is_crfsuite ? unescape(field.substr(0, colon_of(field)), scratch) : field));
    } catch (const Error& error) {
      throw Error("[read] " + sentence.where(t) + ": " + error.what());
    }
  }
}

void DatasetBuilder::Impl::attribute(std::string_view name, float value) {
  if (options.grow) {
    data.attribute.push_back(attributes.add(name));
  } else {
    const auto known = attributes.find(name);
    if (!known) return;
    data.attribute.push_back(*known);
  }
  if (value != 1 && data.value.empty()) data.value.assign(data.attribute.size() - 1, 1);
  if (value != 1 || !data.value.empty()) data.value.push_back(value);
}

Label DatasetBuilder::Impl::gold(std::string_view label) const {
  if (!options.unknown.empty() && label == options.unknown) return kUnknownLabel;
  if (const auto known = labels.find(label)) return *known;
  if (label.empty()) throw Error("the label is empty");
  if (!is_utf8(label)) throw Error("the label is not UTF-8; convert the file");
  return labels.add(label);
}

void DatasetBuilder::Impl::end(double weight) {
  data.position.push_back(static_cast<std::int64_t>(data.item.size()) - 1);
  if (weight != 1 && data.weight.empty()) data.weight.assign(static_cast<std::size_t>(data.sequences()) - 1, 1);
  if (weight != 1 || !data.weight.empty()) data.weight.push_back(weight);
}

Dataset read_dataset(const std::vector<std::string>& paths, Format format, const Extractor& extractor,
                     Names& attributes, Names& labels, const ReadOptions& options) {
  DatasetBuilder builder(attributes, labels, options);
  for (const std::string& path : paths) {
    SentenceReader reader(path, format);
    if (reader.columns() > 0 && reader.format() != extractor.format()) {
      const bool wants_columns = extractor.format() == Format::columns;
      throw Error("[read] " + path + " looks like " + (wants_columns ? "CRFsuite's attributes" : "columns") + ", and " +
                  extractor.summary() + " needs " + (wants_columns ? "columns" : "CRFsuite's attributes") +
                  "; --format says which it is");
    }
    builder.read(reader, extractor);
  }
  return builder.take();
}

}  // namespace regccrf
