// CRF++ feature templates. A line `U01:%x[-1,0]/%x[0,0]` gives one attribute a position: its text with every
// %x[row,column] replaced by that column of the row so far away. Rows before the first are _B-1, _B-2, …, rows behind
// the last _B+1, … A line `B` lets the model see neighbouring labels. A line `B01:%x[0,0]` gives an attribute that
// weighs a label and the one before it together, at every position but the first; `*01:%x[0,0]`, as Wapiti has it, is
// both a U and a B. Wapiti's small u and b are the same as U and B. # begins a comment line.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "regccrf/error.h"
#include "tagger/extractor.h"

namespace regccrf {
namespace {

// Text, then a field. The last piece of a template has no field.
struct Piece {
  std::string text;
  int row = 0;
  int column = -1;  // -1: none
};
using Template = std::vector<Piece>;

constexpr int kFarthest = 1000;  // rows and columns that a macro may name

class TemplateParser {
 public:
  TemplateParser(std::string_view line, std::string place) : rest_(line), place_(std::move(place)) {}

  Template parse() {
    Template pieces;
    for (;;) {
      const std::size_t percent = rest_.find('%');
      pieces.push_back({std::string(rest_.substr(0, percent))});
      if (percent == std::string_view::npos) return pieces;
      rest_.remove_prefix(percent);
      pieces.back().row = macro(pieces.back().column);
    }
  }

 private:
  int macro(int& column) {
    const std::string shown(rest_.substr(0, 12));
    const auto wrong = [&] { return Error(place_ + "'" + shown + "' is not %x[row,column], as in %x[-1,0]"); };
    if (!rest_.starts_with("%x[")) throw wrong();
    rest_.remove_prefix(3);
    int row = 0;
    if (!number(row) || !take(',') || !number(column) || !take(']')) throw wrong();
    if (column < 0 || column > kFarthest || row < -kFarthest || row > kFarthest) {
      throw Error(place_ + "'" + shown + "': rows go from -1000 to 1000 and columns from 0 to 1000");
    }
    return row;
  }
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool number(int& value) {
    take('+');
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }

  std::string_view rest_;
  std::string place_;
};

class Templates : public Extractor::Impl {
 public:
  Templates(const std::string& text, const std::string& origin) : text_(text) {
    std::string_view rest = text;
    for (int number = 1; !rest.empty(); ++number) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      add_line(rest.substr(0, end), "[template] " + origin + ", line " + std::to_string(number) + ": ");
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (templates_.empty()) throw Error("[template] " + origin + ": there is no template; one looks like U01:%x[0,0]");
  }

  nlohmann::json json() const override { return {{"kind", "template"}, {"text", text_}}; }
  int columns() const override { return columns_; }
  bool uses(int column) const override {
    for (const Template& pieces : templates_) {
      for (const Piece& piece : pieces) {
        if (piece.column == column) return true;
      }
    }
    return false;
  }
  bool transitions() const override { return transitions_; }
  // The first letter of a template is the first letter of its attributes.
  Weighs weighs(std::string_view attribute) const override {
    const char first = attribute.empty() ? 'U' : attribute[0];
    return first == '*' ? Weighs::both : first == 'B' || first == 'b' ? Weighs::pair : Weighs::label;
  }
  std::string summary() const override {
    const auto pairs = std::count_if(templates_.begin(), templates_.end(),
                                     [&](const Template& pieces) { return weighs(pieces[0].text) != Weighs::label; });
    return std::to_string(templates_.size()) + (templates_.size() == 1 ? " template" : " templates") +
           (pairs > 0 ? ", " + std::to_string(pairs) + " for pairs of labels" : "");
  }

  void extract(const Sentence& sentence, AttributeSink& sink) const override {
    std::string name;
    for (std::int64_t t = 0; t < sentence.size(); ++t) {
      for (const Template& pieces : templates_) {
        if (t == 0 && weighs(pieces[0].text) == Weighs::pair) continue;  // there is no label before it
        name.clear();
        for (const Piece& piece : pieces) {
          name += piece.text;
          if (piece.column >= 0) append_field(sentence, t + piece.row, piece.column, name);
        }
        sink.attribute(name, 1);
      }
      sink.next();
    }
  }

 private:
  void add_line(std::string_view line, const std::string& place) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    if (!is_utf8(line)) throw Error(place + "not UTF-8; convert the templates first");
    if (line.empty() || line[0] == '#') return;
    Template pieces = TemplateParser(line, place).parse();
    if (std::string_view("UuBb*").find(line[0]) == std::string_view::npos)
      throw Error(place + "'" + std::string(line) + "': a template begins with U, B or *, a comment with #");
    const bool bare = pieces.size() == 1, pair = weighs(line) != Weighs::label;
    if (bare && pair) {  // the same at every position: plain transitions
      transitions_ = true;
      if (line[0] != '*') return;
      pieces[0].text = "U" + pieces[0].text;
    }
    for (const Piece& piece : pieces) columns_ = std::max(columns_, piece.column + 1);
    templates_.push_back(std::move(pieces));
  }

  static void append_field(const Sentence& sentence, std::int64_t row, int column, std::string& name) {
    if (row < 0) {
      name += "_B-" + std::to_string(-row);
    } else if (row >= sentence.size()) {
      name += "_B+" + std::to_string(row - sentence.size() + 1);
    } else {
      name += sentence.field(row, column);
    }
  }

  std::string text_;
  std::vector<Template> templates_;
  int columns_ = 1;
  bool transitions_ = false;
};

}  // namespace

std::shared_ptr<const Extractor::Impl> template_extractor(const std::string& text, const std::string& origin) {
  return std::make_shared<Templates>(text, origin);
}

}  // namespace regccrf
