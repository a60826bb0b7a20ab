// What `crfsuite dump` prints, back into a model. Sections LABELS, ATTRIBUTES, TRANSITIONS and STATE_FEATURES; a
// feature's line is `  (type) NAME --> LABEL: weight`. Names may hold any of these signs: a line is cut where both
// sides are known names. They may hold line ends, too. Then an entry goes on in the next line: a name until the next
// number or the section's end, a feature until it is whole.
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
constexpr const char* kNoFeature = "not `NAME --> LABEL: weight` with names that were listed before";
constexpr int kMostLines = 64;  // of a feature: what is none is not read on forever

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
        end_section();
      } else if (section_.empty() && text.ends_with(" = {")) {
        section_ = text.substr(0, text.size() - 4);
        seen_ += section_ == "LABELS" || section_ == "ATTRIBUTES" || section_ == "TRANSITIONS" ||
                 section_ == "STATE_FEATURES";
      } else if (section_ == "LABELS") {
        read_name(line, labels_);
      } else if (section_ == "ATTRIBUTES") {
        read_name(line, attributes_);
      } else if (section_ == "TRANSITIONS") {
        read_feature(line, labels_, transitions_);
      } else if (section_ == "STATE_FEATURES") {
        read_feature(line, attributes_, features_);
      }
    }
    if (seen_ < 4 || !section_.empty() || labels_.size() == 0) {
      throw Error("[import] " + path_ +
                  " is not what `crfsuite dump MODEL` prints, or is truncated: it has LABELS, ATTRIBUTES, "
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
    throw Error("[import] " + path_ + ", line " + std::to_string(lines_.number() - (entry_lines_ > 0)) + ": '" +
                std::string(line) + "': " + why);
  }

  void end_section() {
    if (section_ == "LABELS") add_name(labels_);
    if (section_ == "ATTRIBUTES") add_name(attributes_);
    if (entry_lines_ > 0) refuse(entry_, kNoFeature);
    section_.clear();
  }
  void end_entry() {
    entry_.clear();
    entry_lines_ = 0;
  }

  // "    12: name", or a piece of the name that began in an earlier line.
  void read_name(const Line& line, Names& names) {
    const std::size_t begin = line.text.find_first_not_of(' ');
    const std::size_t colon = line.text.find_first_not_of("0123456789", begin);
    const bool numbered = begin != colon && colon < line.text.size() && line.text.substr(colon, 2) == ": ";
    if (numbered) {
      add_name(names);
      int number = -1;
      std::from_chars(line.text.data() + begin, line.text.data() + colon, number);
      if (number != names.size()) refuse(line.text, expected_number(names));
      entry_ = line.text.substr(colon + 2);
    } else {
      if (entry_lines_ == 0) refuse(line.text, expected_number(names));
      entry_.append(entry_end_).append(line.text);
    }
    ++entry_lines_;
    entry_end_ = line.end;
  }
  static std::string expected_number(const Names& names) {
    return "expected name number " + std::to_string(names.size()) + ", as in `    0: name`";
  }

  void add_name(Names& names) {
    const int number = names.size();
    if (entry_lines_ > 0 && names.add(entry_) != number) refuse(entry_, "this name came before");
    end_entry();
  }

  // "  (0) name --> label: 1.25", or a piece of it.
  void read_feature(const Line& line, const Names& sources, std::vector<Feature>& features) {
    if (entry_lines_ > 0 && (line.text.starts_with("  (") || entry_lines_ == kMostLines)) refuse(entry_, kNoFeature);
    if (entry_lines_++ > 0) entry_.append(entry_end_);
    entry_.append(line.text);
    entry_end_ = line.end;
    if (add_feature(entry_, sources, features)) end_entry();
  }

  // Whether it is one.
  bool add_feature(std::string_view text, const Names& sources, std::vector<Feature>& features) {
    const std::size_t begin = text.find(") "), colon = text.rfind(": ");
    if (begin == std::string_view::npos || colon == std::string_view::npos || colon < begin + 2) return false;
    const auto weight = parse_number(text.substr(colon + 2));
    if (!weight) return false;
    const std::string_view names = text.substr(begin + 2, colon - begin - 2);
    for (std::size_t at = names.find(kArrow); at != std::string_view::npos; at = names.find(kArrow, at + 1)) {
      const auto from = sources.find(names.substr(0, at));
      const auto to = labels_.find(names.substr(at + kArrow.size()));
      if (!from || !to) continue;
      features.push_back({*from, *to, *weight});
      return true;
    }
    return false;
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
  std::string entry_, entry_end_;  // what was read of a name or a feature, and the line end behind it
  int entry_lines_ = 0;            // how many lines that was; 0: no entry is open
  int seen_ = 0;                   // sections
  Names labels_, attributes_;
  std::vector<Feature> transitions_, features_;
};

}  // namespace

ModelParts import_crfsuite(const std::string& path) { return DumpReader(path).read(); }

}  // namespace regccrf
