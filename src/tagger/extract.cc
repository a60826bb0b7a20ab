// The kinds of extractors told apart, and the simplest of them: attributes as CRFsuite's format gives them.
#include "regccrf/extract.h"

#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "base/utf8.h"
#include "regccrf/error.h"
#include "tagger/crfsuite_text.h"
#include "tagger/extractor.h"

namespace regccrf {
namespace {

class Attributes : public Extractor::Impl {
 public:
  nlohmann::json json() const override { return {{"kind", "attributes"}}; }
  Format format() const override { return Format::crfsuite; }
  int columns() const override { return 1; }
  bool uses(int column) const override { return column > 0; }
  std::string summary() const override { return "attributes as they are"; }

  void extract(const Sentence& sentence, AttributeSink& sink) const override {
    std::string scratch;
    for (std::int64_t t = 0; t < sentence.size(); ++t) {
      const int fields = sentence.fields(t);
      const std::string_view row = sentence.row(t);
      const bool plain = row.find(':') == row.npos && row.find('\\') == row.npos;  // names alone, as they are
      for (int i = 1; i < fields; ++i) {
        const std::string_view field = sentence.field(t, i);
        if (plain) {
          sink.attribute(field, 1);
          continue;
        }
        const std::size_t colon = colon_of(field);
        const float value = colon + 1 >= field.size() ? 1.0F : value_of(sentence, t, field, colon);
        sink.attribute(unescape(field.substr(0, colon), scratch), value);
      }
      sink.next();
    }
  }

 private:
  static float value_of(const Sentence& sentence, std::int64_t t, std::string_view field, std::size_t colon) {
    const auto value = parse_number(field.substr(colon + 1));
    if (value && std::isfinite(static_cast<float>(*value))) return static_cast<float>(*value);
    throw Error("[read] " + sentence.where(t) + ": '" + std::string(field) + "': '" +
                std::string(field.substr(colon + 1)) +
                "' is not a number; a value comes after the attribute's only colon, and a colon in a name is "
                "written \\:");
  }
};

}  // namespace

Extractor::Extractor(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Extractor Extractor::attributes() { return Extractor(std::make_shared<Attributes>()); }
Extractor Extractor::words(const WordFeatures& features) { return Extractor(word_extractor(features)); }
Extractor Extractor::from_template(const std::string& text, const std::string& origin) {
  return Extractor(template_extractor(text, origin));
}

std::string Extractor::text() const {
  try {
    return impl_->json().dump();
  } catch (const nlohmann::json::exception&) {
    throw Error("[extract] " + summary() + ": a name or a path is not UTF-8, but a model needs UTF-8");
  }
}

Extractor Extractor::from_text(const std::string& text, const std::string& embeddings) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    const std::string kind = json.at("kind").get<std::string>();
    if (kind == "attributes") return attributes();
    if (kind == "template") return from_template(json.at("text").get<std::string>());
    if (kind == "words") return Extractor(word_extractor(json, embeddings));
    throw Error("[load] the model extracts attributes by '" + kind + "', which this version does not know");
  } catch (const nlohmann::json::exception& error) {
    throw Error(std::string("[load] the model's extractor is damaged: ") + error.what());
  }
}

Format Extractor::format() const { return impl_->format(); }
int Extractor::columns() const { return impl_->columns(); }
bool Extractor::uses(int column) const { return impl_->uses(column); }
bool Extractor::transitions() const { return impl_->transitions(); }
Weighs Extractor::weighs(std::string_view attribute) const { return impl_->weighs(attribute); }
std::vector<Weighs> Extractor::weighs(const Names& attributes) const {
  std::vector<Weighs> all;
  for (std::int32_t i = 0; i < attributes.size(); ++i) all.push_back(weighs(attributes.name(i)));
  return all;
}
std::string Extractor::summary() const { return impl_->summary(); }

void Extractor::extract(const Sentence& sentence, AttributeSink& sink) const {
  if (sentence.format == Format::crfsuite && format() != Format::crfsuite) {
    throw Error("[extract] " + sentence.where(0) + ": CRFsuite's attributes, and " + summary() + " needs columns");
  }
  for (std::int64_t t = 0; t < sentence.size(); ++t) {
    if (sentence.fields(t) >= columns()) continue;
    throw Error("[extract] " + sentence.where(t) + ": has " + std::to_string(sentence.fields(t)) +
                (sentence.fields(t) == 1 ? " column" : " columns") + ", but the features use column " +
                std::to_string(columns()));
  }
  impl_->extract(sentence, sink);
}

}  // namespace regccrf
