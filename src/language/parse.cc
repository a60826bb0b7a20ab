// Text → syntax tree. A recursive-descent parser without a separate lexer, since what a character means depends on
// where it stands: `{` opens a repetition, a substitution or a set.
//
//   union      := intersect ('|' intersect)*
//   intersect  := concat ('&' concat)*
//   concat     := unary+
//   unary      := '!' unary | atom ('*' | '+' | '?' | '{' n [',' [m]] '}')*
//   atom       := word | "text" | '.' | '[' ['^'] word* ']' | '(' [union] ')' | name'(' arguments ')'
//               | ('any' | 'all') name 'in' set ':' union
//   file       := ('include' "path" | name ['(' names ')'] '=' (set | union))*        each from column 1
//
// Interface: parse_module.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/utf8.h"
#include "language/syntax.h"
#include "regccrf/error.h"

namespace regccrf {
namespace {

constexpr std::size_t kDeepest = 500;  // nesting of groups, calls and quantifiers
constexpr std::size_t kDeepestInclude = 50;
constexpr std::size_t kMostIncludes = 1'000;  // in all: files that include others twice would double at each level
constexpr std::size_t kMostParameters = 100;  // of a template
constexpr std::uint32_t kMostRepeats = 1'000'000;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool is_label_character(char c) {
  if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f') return false;
  return std::string_view("()[]{}|&!*+?.,;=:#\"").find(c) == std::string_view::npos;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The files that are being read, outermost first, and how many were read so far.
struct Includes {
  std::vector<std::string> open;
  std::size_t count = 0;
};

class Parser {
 public:
  Parser(std::shared_ptr<const Source> source, Module& module, Includes& includes, Meter& meter)
      : source_(std::move(source)), text_(source_->text), module_(module), includes_(includes), meter_(meter) {
    meter_.hold_more(2 * static_cast<std::int64_t>(text_.size()));
  }

  void file() {
    skip_space();
    if (!at_definition()) {
      bare_pattern();
      return;
    }
    while (pos_ < text_.size()) {
      if (!at_definition()) fail("expected a definition, `name = …`, here", "a definition starts in column 1");
      starts_definition_here_ = true;
      word_at("include") && !followed_by_equals() ? include() : definition();
      skip_space();
    }
  }

 private:
  // --- characters ---------------------------------------------------------------------------------------------------
  Place here() const { return {source_, pos_}; }
  [[noreturn]] void fail(const std::string& message, const std::string& hint = "") const {
    fail_at(here(), message, hint);
  }

  // The next character, or 0 where the text or the current definition ends.
  char peek() {
    if (pos_ >= text_.size()) return 0;
    if (!starts_definition_here_ && at_definition()) return 0;
    return text_[pos_];
  }
  char at(std::size_t i) const { return i < text_.size() ? text_[i] : 0; }

  void skip_space() {
    while (pos_ < text_.size()) {
      if (text_[pos_] == '#') {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else if (is_space(text_[pos_])) {
        ++pos_;
      } else {
        return;
      }
    }
  }

  char next() {
    skip_space();
    return peek();
  }

  void expect(char c, const std::string& why, const std::string& hint = "") {
    if (next() != c) fail("expected " + std::string(1, c) + " " + why + found(), hint);
    ++pos_;
  }

  std::string found() {
    const char c = peek();
    if (c == 0) return pos_ >= text_.size() ? ", but the text ends here" : ", but the next definition starts here";
    return ", found " + std::string(text_.substr(pos_, utf8_length(text_, pos_)));
  }

  // --- definitions --------------------------------------------------------------------------------------------------
  std::size_t end_of_word(std::size_t i) const {
    while (i < text_.size() && is_label_character(text_[i])) ++i;
    return i;
  }
  std::size_t end_of_blanks(std::size_t i) const {
    while (i < text_.size() && is_space(text_[i])) ++i;
    return i;
  }
  bool word_at(std::string_view word) const {
    return text_.substr(pos_, word.size()) == word && !is_label_character(at(pos_ + word.size()));
  }
  bool word_in_front(std::string_view word) const {
    return text_.substr(0, word.size()) == word && !is_label_character(at(word.size()));
  }
  bool followed_by_equals() const { return at(end_of_blanks(end_of_word(pos_))) == '='; }

  // Column 1, and `name =`, `name(…) =` or `include "`.
  bool at_definition() const {
    if (pos_ > 0 && text_[pos_ - 1] != '\n') return false;
    std::size_t i = end_of_word(pos_);
    if (i == pos_) return false;
    const bool is_include = text_.substr(pos_, i - pos_) == "include" && at(end_of_blanks(i)) == '"';
    if (is_include) return true;
    if (at(i) == '(') {
      while (i < text_.size() && text_[i] != ')' && text_[i] != '\n') ++i;
      if (at(i) == ')') ++i;
    }
    return at(end_of_blanks(i)) == '=';
  }

  void bare_pattern() {
    if (pos_ >= text_.size()) fail("there is no pattern here", "() is the empty sequence");
    Definition definition;
    definition.name = "language";
    definition.place = here();
    definition.pattern = whole_pattern();
    add(std::move(definition));
    if (pos_ >= text_.size()) return;
    const std::string how = word_in_front("include")
                                ? "a file is included by its path in quotes: include \"spans.lang\""
                                : "a text with definitions cannot contain anything else";
    fail_at({source_, 0}, "expected a definition, `name = …`", how);
  }

  SyntaxPtr whole_pattern() {
    SyntaxPtr pattern = union_of();
    const char c = next();
    if (c == 0) return pattern;
    if (c == ')') fail("there is no ( for this )");
    if (c == '=') fail("unexpected =", "a definition, `name = …`, starts in column 1");
    if (c == '{')
      fail("unexpected {", "a repetition follows its item directly, as in B{2}; a set can only be after = and in");
    if (c == ',') fail("unexpected ,", "labels are separated by spaces");
    if (c == ':') fail("unexpected :", "a quantifier is written: any r in {A B}: B-{r}");
    if (c == ';') fail("unexpected ;", "a definition ends where the next one starts");
    fail("unexpected " + std::string(1, c),
         c == ']' ? "there is no [ for it" : "a label with this character in it is written in quotes");
  }

  std::string new_name(const char* what) {
    const std::size_t end = end_of_word(pos_);
    if (end == pos_) fail(std::string("expected ") + what + found());
    std::string name(text_.substr(pos_, end - pos_));
    if (is_digit(name[0])) fail("a name cannot start with a digit");
    pos_ = end;
    return name;
  }

  void definition() {
    Definition definition;
    definition.place = here();
    definition.name = new_name("a name");
    starts_definition_here_ = false;
    if (at(pos_) == '(') parameters(definition);
    expect('=', "after the name of a definition");
    definition.is_set = !definition.is_template && next() == '{';
    if (definition.is_set) {
      definition.set = set();
      if (next() != 0) fail("expected another set or the end of the definition" + found());
    } else {
      if (peek() == 0) fail("the definition of " + definition.name + " is empty", "() is the empty sequence");
      definition.pattern = whole_pattern();
    }
    add(std::move(definition));
  }

  void parameters(Definition& definition) {
    definition.is_template = true;
    ++pos_;
    do {
      skip_space();
      const std::string name = new_name("a parameter's name");
      if (std::find(definition.parameters.begin(), definition.parameters.end(), name) != definition.parameters.end()) {
        fail("the parameter " + name + " is given twice");
      }
      if (definition.parameters.size() == kMostParameters)
        fail("a template has at most " + std::to_string(kMostParameters) + " parameters");
      definition.parameters.push_back(name);
    } while (next() == ',' && ++pos_);
    expect(')', "or , after a parameter");
  }

  void add(Definition definition) {
    const std::string name = definition.name;
    const auto it = module_.definitions.find(name);
    const bool included_default = it != module_.definitions.end() && (name == "language" || name == "labels") &&
                                  it->second.place.source != source_;
    if (it != module_.definitions.end() && !included_default) {
      fail_at(definition.place, name + " is defined twice",
              "the first definition is in " + it->second.place.source->name);
    }
    module_.definitions[name] = std::move(definition);
  }

  // Definitions of the other file come as if they stood here. Its `language` is known by the file's name without
  // ending.
  void include() {
    starts_definition_here_ = false;
    const Place place = here();
    pos_ = end_of_word(pos_);
    next();
    const Word path_word = quoted();
    if (next() != 0) fail("expected the end of the line after include" + found());
    namespace fs = std::filesystem;
    const fs::path path = (fs::path(source_->name).parent_path() / path_word.pieces[0].text).lexically_normal();
    const std::string name = path.string();
    if (std::find(includes_.open.begin(), includes_.open.end(), name) != includes_.open.end())
      fail_at(place, name + " includes itself");
    if (includes_.open.size() >= kDeepestInclude) fail_at(place, "includes are nested more than 50 deep");
    if (++includes_.count > kMostIncludes) fail_at(place, "more than 1000 files are included in all");
    auto source = std::make_shared<Source>();
    source->name = name;
    try {
      source->text = without_mark(read_file(name));
    } catch (const Error&) {
      fail_at(place, "cannot read " + name, "the path is relative to the file that includes it");
    }
    check_text(source);
    Module included;
    includes_.open.push_back(name);
    Parser(source, included, includes_, meter_).file();
    includes_.open.pop_back();
    for (auto& [key, definition] : included.definitions) {
      if (key == "labels" && module_.definitions.count(key)) continue;  // the including file's stand
      definition.name = key == "language" ? path.stem().string() : key;
      add(std::move(definition));
    }
  }

  // --- patterns -----------------------------------------------------------------------------------------------------
  std::unique_ptr<Syntax> node(Syntax::Kind kind) {
    meter_.hold_more(sizeof(Syntax) + 2 * sizeof(SyntaxPtr) + 16);
    meter_.step();
    auto syntax = std::make_unique<Syntax>();
    syntax->kind = kind;
    syntax->place = here();
    return syntax;
  }

  // `item (separator item)*` as one node, or the item itself when it stands alone.
  template <class Item>
  SyntaxPtr list_of(Syntax::Kind kind, char separator, Item item) {
    auto list = node(kind);
    const auto take = [&] {
      next();
      const std::size_t begin = pos_;
      list->parts.push_back(item());
      if (kind == Syntax::Kind::kIntersect) list->spans.push_back({begin, pos_});
    };
    take();
    while (next() == separator) {
      ++pos_;
      take();
    }
    if (list->parts.size() == 1) return std::move(list->parts[0]);
    return list;
  }

  SyntaxPtr union_of() {
    if (++depth_ > kDeepest)
      fail("nested more than " + std::to_string(kDeepest) + " deep", "name a part of it, and use the name");
    SyntaxPtr result = list_of(Syntax::Kind::kUnion, '|', [this] { return intersection(); });
    --depth_;
    return result;
  }

  SyntaxPtr intersection() {
    return list_of(Syntax::Kind::kIntersect, '&', [this] { return concatenation(); });
  }

  bool starts_item(char c) const {
    return c == '(' || c == '[' || c == '.' || c == '"' || c == '!' || is_label_character(c);
  }

  SyntaxPtr concatenation() {
    auto list = node(Syntax::Kind::kConcat);
    while (true) {
      const char c = next();
      const bool substitution = c == '{' && !is_digit(at(pos_ + 1)) && is_label_character(at(pos_ + 1));
      if (!starts_item(c) && !substitution) break;
      list->parts.push_back(unary());
    }
    if (list->parts.empty()) nothing_here();
    if (list->parts.size() == 1) return std::move(list->parts[0]);
    return list;
  }

  [[noreturn]] void nothing_here() {
    const char c = peek();
    const bool repetition = c == '*' || c == '+' || c == '?' || (c == '{' && is_digit(at(pos_ + 1)));
    if (repetition)
      fail("nothing to repeat before " + std::string(1, c), "a label that contains it is written in quotes");
    if (c == '=') fail("unexpected =", "a definition, `name = …`, starts in column 1");
    if (c == ',') fail("unexpected ,", "labels are separated by spaces");
    fail("expected a label, ( or [" + found(), "an empty alternative is written ()");
  }

  SyntaxPtr unary() {
    const Place place = here();
    bool negated = false;
    while (next() == '!') {
      negated = !negated;
      ++pos_;
    }
    SyntaxPtr item = repeated(atom());
    if (!negated) return item;
    auto result = node(Syntax::Kind::kNot);
    result->place = place;
    result->parts.push_back(std::move(item));
    return result;
  }

  SyntaxPtr repeated(SyntaxPtr item) {
    auto result = node(Syntax::Kind::kRepeat);
    while (true) {
      const bool braces = at(pos_) == '{' && is_digit(at(pos_ + 1));
      const char c = braces ? '{' : next();
      if (!braces && c != '*' && c != '+' && c != '?') break;
      if (result->bounds.size() == kDeepest) fail("more than " + std::to_string(kDeepest) + " repetitions of one item");
      result->bounds.push_back(braces ? bounds() : sign(c));
    }
    if (result->bounds.empty()) return item;
    result->place = item->place;
    result->parts.push_back(std::move(item));
    return result;
  }

  Bounds sign(char c) {
    ++pos_;
    return {c == '+' ? 1u : 0u, c == '?' ? 1u : 0xffffffffu};
  }

  Bounds bounds() {
    const Place open = here();
    ++pos_;
    Bounds result;
    result.least = result.most = number();
    if (next() == ',') {
      ++pos_;
      result.most = is_digit(next()) ? number() : 0xffffffff;
    }
    if (next() != '}') fail("expected } after the repetition's bounds" + found(), "it is written {n}, {n,} or {n,m}");
    ++pos_;
    if (result.most < result.least) {
      fail_at(open,
              "the repetition {" + std::to_string(result.least) + "," + std::to_string(result.most) + "} is impossible",
              "the smaller bound comes first");
    }
    return result;
  }

  std::uint32_t number() {
    skip_space();
    const std::size_t begin = pos_;
    std::uint64_t value = 0;
    while (is_digit(peek())) {
      value = std::min<std::uint64_t>(value * 10 + static_cast<std::uint64_t>(text_[pos_] - '0'), kMostRepeats + 1);
      ++pos_;
    }
    if (value > kMostRepeats)
      fail_at({source_, begin}, "a repetition's bound is at most " + std::to_string(kMostRepeats));
    return static_cast<std::uint32_t>(value);
  }

  SyntaxPtr atom() {
    const char c = next();
    if (c == '(') return group();
    if (c == '[') return label_class();
    if (c == '.') {
      auto any = node(Syntax::Kind::kAny);
      ++pos_;
      return any;
    }
    if (c != '"' && c != '{' && !is_label_character(c)) nothing_here();
    if (quantifier_ahead()) return quantifier();
    auto result = node(Syntax::Kind::kWord);
    result->word = c == '"' ? quoted() : word();
    if (at(pos_) == '(' && !result->word.quoted) return call(std::move(result));
    return result;
  }

  SyntaxPtr group() {
    const Place open = here();
    ++pos_;
    if (next() == ')') {
      auto empty = node(Syntax::Kind::kEmpty);
      ++pos_;
      return empty;
    }
    SyntaxPtr inner = union_of();
    if (next() != ')') {
      if (peek() == 0) fail_at(open, "this ( is never closed");
      fail("expected ) or |" + found(),
           peek() == ',' ? "labels are separated by spaces; a call has no space before its (" : "");
    }
    ++pos_;
    return inner;
  }

  SyntaxPtr label_class() {
    const Place open = here();
    ++pos_;
    const bool negated = at(pos_) == '^';
    if (negated) ++pos_;
    auto result = node(negated ? Syntax::Kind::kNoneOf : Syntax::Kind::kOneOf);
    result->place = open;
    while (true) {
      const char c = next();
      if (c == ']') break;
      if (c == 0) fail_at(open, "this [ is never closed");
      if (c != '"' && c != '{' && !is_label_character(c)) {
        fail("unexpected " + std::string(1, c) + " between [ and ]",
             "labels are separated by spaces; one that has this character in it is written in quotes");
      }
      result->members.push_back(c == '"' ? quoted() : word());
    }
    if (result->members.empty()) fail_at(open, "no label between [ and ]", "any label is .");
    ++pos_;
    return result;
  }

  // A run of label characters and {name} substitutions.
  Word word() {
    if (at(pos_) == '{' && is_digit(at(pos_ + 1)))
      fail("there is nothing to repeat here", "a repetition is written directly after what is repeated");
    Word result;
    result.place = here();
    while (true) {
      const std::size_t end = end_of_word(pos_);
      if (end > pos_) {
        result.pieces.push_back({false, std::string(text_.substr(pos_, end - pos_))});
        pos_ = end;
      }
      if (at(pos_) != '{' || is_digit(at(pos_ + 1))) break;
      result.pieces.push_back(substitution());
    }
    if (result.pieces.empty())
      fail("unexpected {", "{name} substitutes a bound name; a label with { in it is written in quotes");
    result.end = pos_;
    return counted(std::move(result));
  }

  Word counted(Word word) {
    std::size_t bytes = 2 * sizeof(Word) + 16;
    for (const Piece& piece : word.pieces) bytes += 2 * sizeof(Piece) + piece.text.size() + 16;
    meter_.hold_more(static_cast<std::int64_t>(bytes));
    return word;
  }

  Piece substitution() {
    const Place open = here();
    ++pos_;
    skip_space();
    const std::size_t end = end_of_word(pos_);
    const std::string name(text_.substr(pos_, end - pos_));
    pos_ = end;
    if (name.empty() || next() != '}') {
      fail_at(open, "expected {name} here",
              "{name} in a label substitutes a bound name; a set can only be after = and in");
    }
    ++pos_;
    return {true, name};
  }

  Word quoted() {
    Word result;
    result.place = here();
    result.quoted = true;
    std::string text;
    for (++pos_; at(pos_) != '"'; ++pos_) {
      if (pos_ >= text_.size() || text_[pos_] == '\n') fail_at(result.place, "this \" is never closed");
      const bool escape = text_[pos_] == '\\';
      if (escape && at(pos_ + 1) != '"' && at(pos_ + 1) != '\\')
        fail("unknown escape", "inside quotes, \\\" and \\\\ are the escapes");
      if (escape) ++pos_;
      text.push_back(text_[pos_]);
    }
    ++pos_;
    if (text.empty()) fail_at(result.place, "a label cannot be empty", "() is the empty sequence");
    result.pieces.push_back({false, text});
    result.end = pos_;
    return counted(std::move(result));
  }

  // `any x in` or `all x in`; alone, any and all are labels.
  bool quantifier_ahead() const {
    if (!word_at("any") && !word_at("all")) return false;
    const std::size_t name = end_of_blanks(end_of_word(pos_)), name_end = end_of_word(name),
                      in = end_of_blanks(name_end);
    return name > pos_ + 3 && name_end > name && in > name_end && text_.substr(in, 2) == "in" &&
           !is_label_character(at(in + 2));
  }

  SyntaxPtr quantifier() {
    auto result = node(Syntax::Kind::kQuantifier);
    result->all = word_at("all");
    pos_ = end_of_blanks(end_of_word(pos_));
    result->word.place = here();
    result->word.pieces.push_back({false, new_name("a name")});
    pos_ = end_of_word(end_of_blanks(pos_));
    if (next() != '{' && !is_label_character(peek()))
      fail("expected a set after in" + found(), "a set is a name or {A B C}");
    result->set = set();
    expect(':', "after the set of a quantifier", "as in: any r in roles: B-{r}");
    result->parts.push_back(union_of());
    return result;
  }

  // One or more of `{A B-{r} …}` and names of sets.
  SetSyntax set() {
    SetSyntax result;
    result.place = here();
    while (true) {
      const char c = next();
      if (c == '{') {
        elements(result);
      } else if (is_label_character(c)) {
        SetSyntax::Item item;
        item.word = word();
        item.is_set_name = true;
        if (!item.word.plain()) {  // no set: what follows it, where a : was forgotten
          pos_ = item.word.place.begin;
          return result;
        }
        result.items.push_back(std::move(item));
      } else {
        return result;
      }
    }
  }

  void elements(SetSyntax& into) {
    const Place open = here();
    ++pos_;
    while (true) {
      const char c = next();
      if (c == '}') break;
      if (c == 0) fail_at(open, "this { is never closed");
      if (c != '"' && c != '{' && !is_label_character(c)) {
        fail("unexpected " + std::string(1, c) + " in a set",
             c == ')' ? "a } is missing before it"
                      : "elements are separated by spaces; one that has this character in it is written in quotes");
      }
      SetSyntax::Item item;
      item.word = c == '"' ? quoted() : word();
      into.items.push_back(std::move(item));
    }
    ++pos_;
  }

  SyntaxPtr call(std::unique_ptr<Syntax> result) {
    result->kind = Syntax::Kind::kCall;
    if (!result->word.plain()) {
      fail_at(result->word.place, "a label followed directly by ( is read as a call",
              "for a concatenation put a space before the (");
    }
    ++pos_;
    if (next() == ')') {
      ++pos_;
      return result;
    }
    while (true) {
      result->parts.push_back(argument());
      if (next() != ',') break;
      ++pos_;
    }
    if (next() != ')') {
      if (peek() == 0) fail_at(result->place, "the ( of this call is never closed");
      fail("expected , or ) in the call of " + result->word.pieces[0].text + found());
    }
    ++pos_;
    return result;
  }

  // A pattern, or a set in braces. `{r}` alone or in a label is a substitution.
  SyntaxPtr argument() {
    if (next() != '{') return union_of();
    const std::size_t inner = end_of_blanks(pos_ + 1);
    const std::size_t inner_end = end_of_word(inner);
    const bool is_substitution = inner_end > inner && !is_digit(at(inner)) && at(end_of_blanks(inner_end)) == '}';
    if (is_substitution) return union_of();
    auto result = node(Syntax::Kind::kSet);
    result->set = set();
    return result;
  }

  std::shared_ptr<const Source> source_;
  std::string_view text_;
  Module& module_;
  Includes& includes_;
  Meter& meter_;
  std::size_t pos_ = 0;
  std::size_t depth_ = 0;
  bool starts_definition_here_ = false;  // the definition at pos_ is being read, and does not end what came before
};

// `roles = core other` reads like a pattern until one knows that core and other are sets.
class UnionsOfSets {
 public:
  explicit UnionsOfSets(Module& module) : module_(module) {}

  void settle() {
    for (auto& [name, definition] : module_.definitions) is_set(definition, 0);
  }

 private:
  bool is_set(Definition& definition, std::size_t depth) {
    if (definition.is_set || definition.is_template || depth > kDeepest) return definition.is_set;
    if (!seen_.insert(definition.name).second) return false;
    const std::vector<Word> words = plain_words(*definition.pattern);
    const auto names_a_set = [&](const Word& word) {
      const auto it = module_.definitions.find(word.pieces[0].text);
      return it != module_.definitions.end() && is_set(it->second, depth + 1);
    };
    if (words.empty() || !std::all_of(words.begin(), words.end(), names_a_set)) return false;
    definition.is_set = true;
    definition.set.place = definition.pattern->place;
    for (const Word& word : words) definition.set.items.push_back({word, true});
    return true;
  }

  // The words of `a b c`; none where the pattern is anything else.
  static std::vector<Word> plain_words(const Syntax& pattern) {
    const auto is_plain = [](const Syntax& part) { return part.kind == Syntax::Kind::kWord && part.word.plain(); };
    if (is_plain(pattern)) return {pattern.word};
    std::vector<Word> words;
    if (pattern.kind != Syntax::Kind::kConcat) return words;
    for (const SyntaxPtr& part : pattern.parts) {
      if (!is_plain(*part)) return {};
      words.push_back(part->word);
    }
    return words;
  }

  Module& module_;
  std::set<std::string> seen_;
};

}  // namespace

Module parse_module(std::string_view text, const std::string& origin, Meter& meter) {
  auto source = std::make_shared<Source>();
  source->name = origin;
  source->text = without_mark(text);
  check_text(source);
  Module module;
  Includes includes{{origin}};
  Parser(source, module, includes, meter).file();
  UnionsOfSets(module).settle();
  return module;
}

}  // namespace regccrf
