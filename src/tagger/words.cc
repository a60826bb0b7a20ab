// Built-in features of words, so that no template is needed to begin. At each position:
//   w=Bank lower=bank shape=Xxxx short=Xx prefix=B … prefix=Bank suffix=k … suffix=Bank
//   digit, hyphen, capital, capitals (all of it)          what is in the word
//   w[-2]=… w[-1]=… w[1]=… w[2]=…                           neighbours, in lower case
//   w[-1|0]=the|bank w[0|1]=bank|of                        bigrams of words, in lower case
//   short[-1]=… short[1]=…                                  neighbours' shapes
//   c2[-1]=… c2[0]=… c2[1]=…                                other columns as they are, by number from 1
//   list=NAME list[-1]=NAME list[1]=NAME                   the word, or a neighbour, is in a list
//   e0, e1, …                                              the word's vector, as values
//   first, last, bias                                      place in the sentence; always
#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/hash.h"
#include "base/lines.h"
#include "base/numbers.h"
#include "base/utf8.h"
#include "regccrf/error.h"
#include "regccrf/names.h"
#include "tagger/extractor.h"

namespace regccrf {
namespace {

constexpr std::size_t kAffix = 4;  // characters of the longest prefix and suffix
constexpr int kMostColumns = 10'000;

// A word vector for each of many words.
class Embeddings {
 public:
  explicit Embeddings(const std::string& path) {
    LineReader lines(path);
    for (Line line; lines.next(line);) {
      checksum_ = hash_bytes(line.text) ^ (checksum_ * 31);
      if (is_header(line.text, lines.number()) || is_blank(line.text)) continue;
      add(line.text, path + ", line " + std::to_string(lines.number()));
    }
    if (words_.size() == 0)
      throw Error("[embeddings] " + path + " contains no vectors; its lines must be `word v1 v2 …`");
    for (std::size_t i = 0; i < dimensions_; ++i) names_.push_back("e" + std::to_string(i));
  }

  std::size_t dimensions() const { return dimensions_; }
  std::int32_t size() const { return words_.size(); }
  std::string checksum() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(checksum_));
    return text;
  }
  void extract(std::string_view word, std::string_view in_lower_case, AttributeSink& sink) const {
    auto number = words_.find(word);
    if (!number) number = words_.find(in_lower_case);
    if (!number) return;
    const float* vector = values_.data() + static_cast<std::size_t>(*number) * dimensions_;
    for (std::size_t i = 0; i < dimensions_; ++i) sink.attribute(names_[i], vector[i]);
  }

 private:
  // word2vec's first line: how many words, how many dimensions.
  static bool is_header(std::string_view line, std::int64_t number) {
    const std::size_t blank = line.find(' ');
    if (number != 1 || blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos)
      return false;
    const auto words = parse_number(line.substr(0, blank)), dimensions = parse_number(line.substr(blank + 1));
    return words && dimensions && *words >= 1 && *dimensions >= 1;
  }

  void add(std::string_view line, const std::string& where) {
    const auto is_separator = [](char c) { return c == ' ' || c == '\t'; };
    while (!line.empty() && is_separator(line.back())) line.remove_suffix(1);
    const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
    const std::string_view word = line.substr(0, end);
    const std::size_t before = values_.size();
    for (std::size_t at = end; at < line.size();) {
      while (is_separator(line[at])) ++at;
      const std::size_t next = std::min(line.find_first_of(" \t", at), line.size());
      const auto value = parse_number(line.substr(at, next - at));
      if (!value)
        throw Error("[embeddings] " + where + ": '" + std::string(line.substr(at, next - at)) + "' is not a number");
      values_.push_back(static_cast<float>(*value));
      at = next;
    }
    const std::size_t count = values_.size() - before;
    if (dimensions_ == 0) dimensions_ = count;
    if (count != dimensions_ || count == 0) {
      throw Error("[embeddings] " + where + ": has " + std::to_string(count) +
                  " numbers, and the lines before it have " + std::to_string(dimensions_));
    }
    if (words_.find(word)) {
      values_.resize(before);  // the first vector of a word stands
    } else {
      words_.add(word);
    }
  }

  Names words_;
  std::vector<float> values_;  // [words, dimensions]
  std::size_t dimensions_ = 0;
  std::vector<std::string> names_;
  std::uint64_t checksum_ = 0;
};

struct Word {
  std::string_view text;
  std::string lower;
  std::string shape, short_shape;
  std::array<std::size_t, kAffix> prefix{}, suffix{};  // bytes of each; 0: the word is shorter
  bool digit = false, hyphen = false, capital = false, capitals = false;
};

char shape_of(char32_t c) {
  if (is_upper(c)) return 'X';
  if (is_lower(c)) return 'x';
  if (c >= '0' && c <= '9') return 'd';
  return c < 0x80 ? static_cast<char>(c) : 'x';  // a letter of an alphabet without case, most likely
}

Word look_at(std::string_view text) {
  Word word;
  word.text = text;
  std::vector<std::size_t> begin;  // of each character
  bool letters = false, all_upper = true;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    begin.push_back(at);
    at += c.length;
    append_character(word.lower, lower(c.code));
    const char shape = shape_of(c.code);
    word.shape.push_back(shape);
    if (word.short_shape.empty() || word.short_shape.back() != shape) word.short_shape.push_back(shape);
    word.digit |= shape == 'd';
    word.hyphen |= shape == '-';
    word.capital |= begin.size() == 1 && shape == 'X';
    letters |= shape == 'X' || shape == 'x';
    all_upper &= shape != 'x';
  }
  word.capitals = letters && all_upper;
  begin.push_back(text.size());
  for (std::size_t n = 1; n <= kAffix && n < begin.size(); ++n) {
    word.prefix[n - 1] = begin[n];
    word.suffix[n - 1] = text.size() - begin[begin.size() - 1 - n];
  }
  return word;
}

class Words : public Extractor::Impl {
 public:
  explicit Words(const WordFeatures& features) : features_(features) {
    need_column(features_.word);
    for (int column : features_.columns) need_column(column);
    for (const WordList& list : features_.lists) {
      auto& words = lists_.emplace_back();
      for (const std::string& word : list.words) words.insert(lower(word));
    }
    if (!features_.embeddings.empty()) embeddings_ = std::make_shared<Embeddings>(features_.embeddings);
  }

  nlohmann::json json() const override {
    nlohmann::json json = {{"kind", "words"}, {"word", features_.word}, {"columns", features_.columns}};
    for (const WordList& list : features_.lists) json["lists"].push_back({{"name", list.name}, {"words", list.words}});
    if (embeddings_) {
      json["embeddings"] = {{"path", features_.embeddings},
                            {"words", embeddings_->size()},
                            {"dimensions", embeddings_->dimensions()},
                            {"checksum", embeddings_->checksum()}};
    }
    return json;
  }
  int columns() const override { return columns_; }
  bool uses(int column) const override {
    return column == features_.word ||
           std::find(features_.columns.begin(), features_.columns.end(), column) != features_.columns.end();
  }
  std::string summary() const override {
    std::string text = "word features";
    if (!features_.columns.empty())
      text += " with " + std::to_string(features_.columns.size()) +
              (features_.columns.size() == 1 ? " more column" : " more columns");
    for (const WordList& list : features_.lists)
      text += ", list " + list.name + " (" + std::to_string(list.words.size()) + " words)";
    if (embeddings_)
      text += ", " + std::to_string(embeddings_->size()) + " vectors of " + std::to_string(embeddings_->dimensions()) +
              " numbers";
    return text;
  }
  const Embeddings* embeddings() const { return embeddings_.get(); }

  void extract(const Sentence& sentence, AttributeSink& sink) const override {
    std::vector<Word> words;
    words.reserve(static_cast<std::size_t>(sentence.size()));
    for (std::int64_t t = 0; t < sentence.size(); ++t) words.push_back(look_at(sentence.field(t, features_.word)));
    std::string name;
    for (std::int64_t t = 0; t < sentence.size(); ++t) {
      word_itself(words[at(t)], name, sink);
      neighbours(words, t, name, sink);
      other_columns(sentence, t, name, sink);
      lists(words, t, name, sink);
      if (embeddings_) embeddings_->extract(words[at(t)].text, words[at(t)].lower, sink);
      sink.next();
    }
  }

 private:
  static std::size_t at(std::int64_t t) { return static_cast<std::size_t>(t); }

  void need_column(int column) {
    if (column < 0 || column >= kMostColumns)
      throw Error("[words] there is no column " + std::to_string(column + std::int64_t{1}) + "; columns count from 1");
    columns_ = std::max(columns_, column + 1);
  }

  static void put(std::string_view key, std::string_view value, std::string& name, AttributeSink& sink) {
    name.assign(key).append(value);
    sink.attribute(name, 1);
  }

  static void word_itself(const Word& word, std::string& name, AttributeSink& sink) {
    sink.attribute("bias", 1);
    put("w=", word.text, name, sink);
    put("lower=", word.lower, name, sink);
    put("shape=", word.shape, name, sink);
    put("short=", word.short_shape, name, sink);
    for (std::size_t n = 0; n < kAffix && word.prefix[n] > 0; ++n) {
      put("prefix=", word.text.substr(0, word.prefix[n]), name, sink);
      put("suffix=", word.text.substr(word.text.size() - word.suffix[n]), name, sink);
    }
    if (word.digit) sink.attribute("digit", 1);
    if (word.hyphen) sink.attribute("hyphen", 1);
    if (word.capital) sink.attribute("capital", 1);
    if (word.capitals) sink.attribute("capitals", 1);
  }

  static void neighbours(const std::vector<Word>& words, std::int64_t t, std::string& name, AttributeSink& sink) {
    const auto T = static_cast<std::int64_t>(words.size());
    if (t >= 2) put("w[-2]=", words[at(t - 2)].lower, name, sink);
    if (t >= 1) {
      put("w[-1]=", words[at(t - 1)].lower, name, sink);
      put("short[-1]=", words[at(t - 1)].short_shape, name, sink);
      name.assign("w[-1|0]=").append(words[at(t - 1)].lower).append("|").append(words[at(t)].lower);
      sink.attribute(name, 1);
    } else {
      sink.attribute("first", 1);
    }
    if (t + 1 < T) {
      put("w[1]=", words[at(t + 1)].lower, name, sink);
      put("short[1]=", words[at(t + 1)].short_shape, name, sink);
      name.assign("w[0|1]=").append(words[at(t)].lower).append("|").append(words[at(t + 1)].lower);
      sink.attribute(name, 1);
    } else {
      sink.attribute("last", 1);
    }
    if (t + 2 < T) put("w[2]=", words[at(t + 2)].lower, name, sink);
  }

  void other_columns(const Sentence& sentence, std::int64_t t, std::string& name, AttributeSink& sink) const {
    for (int column : features_.columns) {
      for (std::int64_t away = -1; away <= 1; ++away) {
        if (t + away < 0 || t + away >= sentence.size()) continue;
        name.assign("c").append(std::to_string(column + 1)).append("[").append(std::to_string(away)).append("]=");
        name.append(sentence.field(t + away, column));
        sink.attribute(name, 1);
      }
    }
  }

  void lists(const std::vector<Word>& words, std::int64_t t, std::string& name, AttributeSink& sink) const {
    for (std::size_t i = 0; i < lists_.size(); ++i) {
      for (std::int64_t away = -1; away <= 1; ++away) {
        const std::int64_t row = t + away;
        if (row < 0 || row >= static_cast<std::int64_t>(words.size()) || !lists_[i].contains(words[at(row)].lower))
          continue;
        put(away == 0 ? "list=" : away < 0 ? "list[-1]=" : "list[1]=", features_.lists[i].name, name, sink);
      }
    }
  }

  WordFeatures features_;
  std::vector<std::unordered_set<std::string>> lists_;  // in lower case
  std::shared_ptr<const Embeddings> embeddings_;
  int columns_ = 1;
};

}  // namespace

WordList WordList::load(const std::string& name, const std::string& path) {
  WordList list{name, {}};
  LineReader lines(path);
  for (Line line; lines.next(line);) {
    std::string_view word = line.text;
    while (word.ends_with(' ') || word.ends_with('\t')) word.remove_suffix(1);
    while (word.starts_with(' ') || word.starts_with('\t')) word.remove_prefix(1);
    if (word.empty()) continue;
    if (!is_utf8(word))
      throw Error("[words] " + path + ", line " + std::to_string(lines.number()) +
                  ": not UTF-8; convert the list first");
    list.words.emplace_back(word);
  }
  if (list.words.empty()) throw Error("[words] " + path + ": the list has no words; it has one a line");
  return list;
}

std::shared_ptr<const Extractor::Impl> word_extractor(const WordFeatures& features) {
  return std::make_shared<Words>(features);
}

// Of a model, in which anything may stand.
static int column_of(const nlohmann::json& json) {
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > INT_MAX)
    throw Error("[load] the model's extractor is damaged: " + json.dump() + " is no number of a column");
  return json.get<int>();
}

std::shared_ptr<const Extractor::Impl> word_extractor(const nlohmann::json& json, const std::string& embeddings) {
  WordFeatures features;
  features.word = column_of(json.at("word"));
  for (const nlohmann::json& column : json.at("columns").get<std::vector<nlohmann::json>>())
    features.columns.push_back(column_of(column));
  if (json.contains("lists")) {
    for (const nlohmann::json& list : json["lists"]) {
      features.lists.push_back({list.at("name").get<std::string>(), list.at("words").get<std::vector<std::string>>()});
    }
  }
  if (!json.contains("embeddings")) {
    if (!embeddings.empty()) throw Error("[load] the model was trained without an embeddings file, and one is given");
    return word_extractor(features);
  }
  features.embeddings = embeddings.empty() ? json["embeddings"].at("path").get<std::string>() : embeddings;
  std::shared_ptr<const Words> words;
  try {
    words = std::make_shared<Words>(features);
  } catch (const Error& error) {
    throw Error(
        "[load] the model needs the embeddings file that it was trained with; --embeddings says where it is now (" +
        std::string(error.what()) + ")");
  }
  if (words->embeddings()->checksum() != json["embeddings"].at("checksum").get<std::string>()) {
    throw Error("[load] " + features.embeddings +
                " is not the embeddings file that the model was trained with: its content differs");
  }
  return words;
}

}  // namespace regccrf
