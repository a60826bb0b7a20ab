// What `crfsuite dump` prints, back into a model. Sections LABELS, ATTRIBUTES, TRANSITIONS and STATE_FEATURES; a
// feature's line is `  (type) NAME --> LABEL: weight`. Names may hold any of these signs: a line is cut where both
// sides are known names.
#include <algorithm>
#include <charconv>

#include "base/lines.h"
#include "base/numbers.h"
#include "regccrf/crfsuite.h"
#include "regccrf/error.h"
#include "regccrf/extract.h"
#include "tagger/crfsuite_text.h"

namespace regccrf {
namespace {

constexpr std::string_view kArrow = " --> ";

class DumpReader {
 public:
  explicit DumpReader(const std::string& path) : path_(path), lines_(path) {}

  ModelParts read() {
    for (Line line; lines_.next(line);) {
      const std::string_view text = line.text;
      if (lines_.number() == 1 && text.starts_with(kCrfsuiteModel)) {
        throw Error("[import] " + path_ + " is CRFsuite's model itself, and its dump is needed: crfsuite dump " +
                    path_ + " | regccrf import -m NEW.model");
      }
      if (text == "}") {
        section_.clear();
      } else if (text.ends_with(" = {")) {
        section_ = text.substr(0, text.size() - 4);
        seen_ += section_ == "LABELS" || section_ == "ATTRIBUTES" || section_ == "TRANSITIONS" ||
                 section_ == "STATE_FEATURES";
      } else if (section_ == "LABELS") {
        add_name(text, labels_);
      } else if (section_ == "ATTRIBUTES") {
        add_name(text, attributes_);
      } else if (section_ == "TRANSITIONS") {
        add_feature(text, labels_, transitions_);
      } else if (section_ == "STATE_FEATURES") {
        add_feature(text, attributes_, features_);
      }
    }
    if (seen_ < 4 || !section_.empty() || labels_.size() == 0) {
      throw Error("[import] " + path_ +
                  " is not what `crfsuite dump MODEL` prints, or is cut short: it has LABELS, ATTRIBUTES, "
                  "TRANSITIONS and STATE_FEATURES, each in braces");
    }
    return parts();
  }

 private:
  struct Feature {
    std::int32_t from;
    Label to;
    double weight;
    friend bool operator<(const Feature& x, const Feature& y) {
      return x.from != y.from ? x.from < y.from : x.to < y.to;
    }
  };

  [[noreturn]] void refuse(std::string_view line, const std::string& why) const {
    throw Error("[import] " + path_ + ", line " + std::to_string(lines_.number()) + ": '" + std::string(line) +
                "': " + why);
  }

  // "    12: name"
  void add_name(std::string_view line, Names& names) {
    const std::size_t colon = line.find(": ");
    const std::size_t begin = line.find_first_not_of(' ');
    int number = -1;
    if (colon != std::string_view::npos && begin < colon)
      std::from_chars(line.data() + begin, line.data() + colon, number);
    if (number != names.size())
      refuse(line, "expected name number " + std::to_string(names.size()) + ", as in `    0: name`");
    if (names.add(line.substr(colon + 2)) != number) refuse(line, "this name came before");
  }

  // "  (0) name --> label: 1.25"
  void add_feature(std::string_view line, const Names& sources, std::vector<Feature>& features) {
    const std::size_t begin = line.find(") "), colon = line.rfind(": ");
    if (begin == std::string_view::npos || colon == std::string_view::npos || colon < begin + 2)
      refuse(line, "not a feature");
    const auto weight = parse_number(line.substr(colon + 2));
    if (!weight) refuse(line, "the weight is not a number");
    const std::string_view names = line.substr(begin + 2, colon - begin - 2);
    for (std::size_t at = names.find(kArrow); at != std::string_view::npos; at = names.find(kArrow, at + 1)) {
      const auto from = sources.find(names.substr(0, at));
      const auto to = labels_.find(names.substr(at + kArrow.size()));
      if (!from || !to) continue;
      features.push_back({*from, *to, *weight});
      return;
    }
    refuse(line, "not `NAME --> LABEL: weight` with names that were listed before");
  }

  ModelParts parts() {
    ModelParts parts;
    std::vector<std::string> names;
    for (std::int32_t a = 0; a < labels_.size(); ++a) names.emplace_back(labels_.name(a));
    parts.labels = Labels(std::move(names));
    parts.extractor = Extractor::attributes().text();
    const auto K = static_cast<std::size_t>(labels_.size());
    parts.transitions.assign(K * K, 0);
    for (const Feature& f : transitions_)
      parts.transitions[static_cast<std::size_t>(f.from) * K + static_cast<std::size_t>(f.to)] = f.weight;
    std::stable_sort(features_.begin(), features_.end());
    parts.begin.assign(static_cast<std::size_t>(attributes_.size()) + 1, 0);
    for (const Feature& f : features_) {
      ++parts.begin[static_cast<std::size_t>(f.from) + 1];
      parts.label.push_back(f.to);
      parts.weight.push_back(f.weight);
    }
    for (std::size_t i = 1; i < parts.begin.size(); ++i) parts.begin[i] += parts.begin[i - 1];
    parts.attributes = std::move(attributes_);
    return parts;
  }

  std::string path_;
  LineReader lines_;
  std::string section_;
  int seen_ = 0;  // sections
  Names labels_, attributes_;
  std::vector<Feature> transitions_, features_;
};

}  // namespace

ModelParts import_crfsuite(const std::string& path) { return DumpReader(path).read(); }

}  // namespace regccrf
