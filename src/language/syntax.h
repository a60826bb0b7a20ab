// Syntax: a pattern or .lang file as it was written. Words are not yet labels or names, templates are not yet applied:
// that is expand.cc's work.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/budget.h"

namespace regccrf {

// A text and its name in errors.
struct Source {
  std::string name;
  std::string text;
};

// Where something stands, for error messages.
struct Place {
  std::shared_ptr<const Source> source;
  std::size_t begin = 0;
};

// Throws Error: `name:line:column: message`, the line, a caret below it, and the hint.
[[noreturn]] void fail_at(const Place& place, const std::string& message, const std::string& hint = "");

// Throws Error unless the text is UTF-8 without control characters.
void check_text(const std::shared_ptr<const Source>& source);
std::size_t utf8_length(std::string_view text, std::size_t i);  // of the valid UTF-8 character at `i`, or 0

// `B-{r}` has the pieces "B-" and {r}.
struct Piece {
  bool is_name = false;  // {name}: to be substituted
  std::string text;
};

struct Word {
  Place place;
  std::vector<Piece> pieces;
  bool quoted = false;
  std::size_t end = 0;  // offset behind it

  bool plain() const { return !quoted && pieces.size() == 1 && !pieces[0].is_name; }
};

// The elements of a set: words to be written out, and names of other sets.
struct SetSyntax {
  Place place;
  struct Item {
    Word word;
    bool is_set_name = false;
  };
  std::vector<Item> items;
};

struct Bounds {
  std::uint32_t least = 0, most = 0;
};

struct Syntax;
using SyntaxPtr = std::unique_ptr<const Syntax>;

struct Syntax {
  enum class Kind {
    kWord,
    kAny,
    kOneOf,
    kNoneOf,
    kEmpty,
    kConcat,
    kUnion,
    kIntersect,
    kNot,
    kRepeat,
    kQuantifier,
    kCall,
    kSet
  };

  Kind kind = Kind::kEmpty;
  Place place;
  Word word;                     // kWord; kCall: the name; kQuantifier: the variable
  std::vector<Word> members;     // kOneOf, kNoneOf
  std::vector<SyntaxPtr> parts;  // operands, arguments, or the quantifier's body
  std::vector<Bounds> bounds;    // kRepeat: A{2}* has two, innermost first; one node, so that the tree stays shallow
  bool all = false;              // kQuantifier: all (intersection) rather than any (union)
  SetSyntax set;                 // kQuantifier, kSet

  struct Span {
    std::size_t begin, end;
  };
  std::vector<Span> spans;  // kIntersect: where each operand is written
};

struct Definition {
  std::string name;
  Place place;
  std::vector<std::string> parameters;
  bool is_template = false;
  bool is_set = false;
  SetSyntax set;
  SyntaxPtr pattern;
};

// A whole text. A bare pattern is the one definition `language`.
struct Module {
  std::map<std::string, Definition> definitions;
};

// Reads `text`, and the files that it includes relative to `origin`. What the module holds is counted by `meter`.
Module parse_module(std::string_view text, const std::string& origin, Meter& meter);

}  // namespace regccrf
