// Names, and the collecting of sequences.
#include "regccrf/dataset.h"

#include <utility>

#include "tagger/crfsuite_text.h"
#include "tagger/name_table.h"
#include "base/utf8.h"
#include "regccrf/error.h"
#include "regccrf/extract.h"

namespace regccrf {
namespace {

void put(NameSlot slot, std::vector<NameSlot>& table) {
  const std::size_t mask = table.size() - 1;
  std::size_t at = slot.hash & mask;
  while (table[at].number >= 0) at = (at + 1) & mask;
  table[at] = slot;
}

}  // namespace

Names::Names() : begin_{0}, table_(16) {}

std::optional<std::int32_t> Names::find(std::string_view sought) const {
  return find_name(sought, hash_name(sought), table_, [&](std::int32_t number) { return name(number); });
}

std::int32_t Names::add(std::string_view new_name) {
  const std::uint32_t hash = hash_name(new_name);
  const auto known = find_name(new_name, hash, table_, [&](std::int32_t number) { return name(number); });
  if (known) return *known;
  if (size() == INT32_MAX - 1) throw Error("[names] more than 2,147,483,646 different attributes");
  if (static_cast<std::size_t>(size()) * 2 >= table_.size()) grow();
  put({hash, size()}, table_);
  text_.append(new_name);
  begin_.push_back(static_cast<std::int64_t>(text_.size()));
  return size() - 1;
}

void Names::grow() {
  std::vector<NameSlot> larger(table_.size() * 2);
  for (const NameSlot& slot : table_) {
    if (slot.number >= 0) put(slot, larger);
  }
  table_ = std::move(larger);
}

std::string Dataset::origin(std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  if (at >= line.size()) return "sequence " + std::to_string(i + 1);
  const std::string& path = files[static_cast<std::size_t>(file[at])];
  return (path == "-" ? "standard input" : path) + ", line " + std::to_string(line[at]);
}

DatasetBuilder::DatasetBuilder(Names& attributes, Names& labels, ReadOptions options)
    : attributes_(attributes), labels_(labels), options_(std::move(options)) {}

void DatasetBuilder::read(SentenceReader& reader, const Extractor& extractor) {
  Sentence sentence;
  while (reader.next(sentence)) add(sentence, extractor);
}

void DatasetBuilder::add(Sentence& sentence, const Extractor& extractor) {
  if (sentence.size() == 0) return;
  sentence.split();
  extractor.extract(sentence, *this);
  if (options_.gold) add_gold(sentence, extractor);
  if (data_.files.empty() || data_.files.back() != sentence.path) data_.files.push_back(sentence.path);
  data_.file.push_back(static_cast<std::int32_t>(data_.files.size()) - 1);
  data_.line.push_back(sentence.line);
  end(sentence.weight);
}

void DatasetBuilder::add_gold(const Sentence& sentence, const Extractor& extractor) {
  const bool attributes = sentence.format == Format::crfsuite;
  std::string scratch;
  for (std::int64_t t = 0; t < sentence.size(); ++t) {
    const int last = sentence.fields(t) - 1;
    const int column = attributes ? 0 : options_.label_column < 0 ? last : options_.label_column;
    if (column > last) {
      throw Error("[read] " + sentence.where(t) + ": has " + std::to_string(last + 1) +
                  " columns, and the label is sought in column " + std::to_string(column + 1));
    }
    if (extractor.uses(column)) {
      throw Error("[read] " + sentence.where(t) + ": column " + std::to_string(column + 1) + " holds the label, and " +
                  extractor.summary() + " would use it as input; is the label's column missing?");
    }
    const std::string_view field = sentence.field(t, column);
    try {
      data_.gold.push_back(gold(attributes ? unescape(field.substr(0, colon_of(field)), scratch) : field));
    } catch (const Error& error) {
      throw Error("[read] " + sentence.where(t) + ": " + error.what());
    }
  }
}

void DatasetBuilder::attribute(std::string_view name, float value) {
  if (options_.grow) {
    data_.attribute.push_back(attributes_.add(name));
  } else {
    const auto known = attributes_.find(name);
    if (!known) return;
    data_.attribute.push_back(*known);
  }
  if (value != 1 && data_.value.empty()) data_.value.assign(data_.attribute.size() - 1, 1);
  if (value != 1 || !data_.value.empty()) data_.value.push_back(value);
}

void DatasetBuilder::next() { data_.item.push_back(static_cast<std::int64_t>(data_.attribute.size())); }

void DatasetBuilder::next(std::string_view label) {
  data_.gold.push_back(gold(label));
  next();
}

Label DatasetBuilder::gold(std::string_view label) const {
  if (!options_.unknown.empty() && label == options_.unknown) return kUnknownLabel;
  if (const auto known = labels_.find(label)) return *known;
  if (label.empty()) throw Error("the label is empty");
  if (!is_utf8(label)) throw Error("the label is not UTF-8; convert the file");
  return labels_.add(label);
}

void DatasetBuilder::end(double weight) {
  data_.position.push_back(static_cast<std::int64_t>(data_.item.size()) - 1);
  if (weight != 1 && data_.weight.empty()) data_.weight.assign(static_cast<std::size_t>(data_.sequences()) - 1, 1);
  if (weight != 1 || !data_.weight.empty()) data_.weight.push_back(weight);
}

Dataset DatasetBuilder::take() { return std::exchange(data_, Dataset()); }

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
