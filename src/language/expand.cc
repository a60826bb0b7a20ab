// Syntax tree → expression.
//
// A word in a pattern is looked up in this order: a name bound by a quantifier or a template's parameter, a definition
// of the file, a label. Arguments of templates are expanded where they are used, in the scope they were written in, so
// that `ARG0` may be a part of labels (`B-{r}`) without being one.
//
// Where the alphabet is not declared, the text is expanded twice: once to see which labels it mentions, once for real.
#include "language/expand.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/spelling.h"
#include "language/builtins.h"
#include "regccrf/error.h"

namespace regccrf {
namespace {

constexpr int kDeepestCalls = 200;
constexpr int kDeepestNesting = 1'000;  // an unoptimised build needs some 4 KB of stack for each
constexpr std::int64_t kMostSteps = 4'000'000;
constexpr std::size_t kMostConjuncts = 10'000;    // whose texts are kept for messages
constexpr std::size_t kLongestLabel = 1'000'000;  // characters
constexpr int kFewLabels = 12;                    // an error lists them

// A name's meaning in one scope: a text (quantifiers), or an argument with the scope it was written in (templates).
struct Scope {
  const Scope* outer = nullptr;
  std::string name;
  std::string text;
  const Syntax* argument = nullptr;
  const Scope* argument_scope = nullptr;
  mutable bool used = false;  // somebody asked for it
};

const Scope* find(const Scope* scope, const std::string& name) {
  while (scope && scope->name != name) scope = scope->outer;
  if (scope) scope->used = true;
  return scope;
}

class Expander {
 public:
  // Without `labels`, labels are collected as they are met.
  Expander(const Module& module, const std::optional<Labels>& labels, const Budget& budget)
      : module_(module), labels_(labels), budget_(budget), meter_(budget, "expand") {}

  ExprPtr language(const Definition& definition) {
    whole_ = definition.pattern.get();
    return named_pattern(definition);
  }
  std::vector<Conjunct> conjuncts() const { return conjuncts_; }
  std::vector<Conjunct> nested() const { return nested_; }
  Labels collected() const { return Labels(collected_); }
  std::int64_t bytes() const { return meter_.held(); }
  std::vector<std::string> declared_labels(const Definition& definition) { return elements(definition.set, nullptr); }

 private:
  int label_count() const { return labels_ ? labels_->size() : static_cast<int>(collected_.size()); }

  // Every part that is written out is paid for here, at the price of the memory that it takes.
  void step(const Place& place, std::int64_t parts = 1) {
    steps_ += parts;
    meter_.step(parts);
    if (steps_ > kMostSteps)
      fail_at(place, "the pattern is too large: more than 4,000,000 parts once it is written out");
  }

  void step_for_labels(const Place& place, std::int64_t copies = 1) { step(place, copies * (1 + label_count() / 16)); }

  void step_for_text(const Place& place, const std::string& text) {
    if (text.size() > kLongestLabel) fail_at(place, "a label of more than 1,000,000 characters");
    step(place, 1 + static_cast<std::int64_t>(text.size() / 16));
  }

  static std::int64_t bytes_of_name(const std::string& name) {
    return 2 * static_cast<std::int64_t>(name.size()) + 150;
  }

  // Counts an expression that is new, that is, held by nobody else.
  void count(const ExprPtr& expr) {
    if (expr.use_count() == 1) meter_.hold_more(bytes_of_node(*expr));
  }

  // … and its parts, other than those that are known.
  void count_all(const Expr& expr, std::set<const Expr*>& known) {
    if (!known.insert(&expr).second) return;
    meter_.hold_more(bytes_of_node(expr));
    for (const ExprPtr& part : expr.parts) count_all(*part, known);
  }

  static std::int64_t bytes_of_node(const Expr& expr) {
    return static_cast<std::int64_t>(sizeof(Expr)) + 32 + bytes_of(expr.labels) + 2 * bytes_of(expr.parts);
  }

  // --- words and sets -----------------------------------------------------------------------------------------------
  ExprPtr label(const std::string& name, const Word& word) {
    if (labels_) {
      const auto id = labels_->find(name);
      if (!id) unknown_label(name, word);
      return one_of({*id});
    }
    const auto [it, added] = collected_ids_.emplace(name, static_cast<Label>(collected_.size()));
    if (added) {
      meter_.hold_more(bytes_of_name(name));
      collected_.push_back(name);
    }
    return one_of({it->second});
  }

  [[noreturn]] void unknown_label(const std::string& name, const Word& word) const {
    std::vector<std::string> known = labels_->names();
    for (const auto& [defined, definition] : module_.definitions) known.push_back(defined);
    std::string message = "unknown label " + name;
    if (const auto near = nearest(name, known)) message += ": did you mean " + *near + "?";
    const std::string& text = word.place.source->text;
    const char behind = word.end < text.size() ? text[word.end] : 0;
    std::string hint;
    const std::vector<std::string> pieces = split_into_labels(name);
    if (!pieces.empty()) {
      hint = "labels are whole words, separated by spaces:";
      for (const std::string& piece : pieces) hint += " " + piece;
    } else if ((behind == '*' || behind == '+' || behind == '?' || behind == '.') && begins_a_label(name)) {
      hint = std::string(1, behind) +
             (behind == '.' ? " is any whole label and no part of one"
                            : " repeats the label before it and is not a wildcard") +
             "; for all labels with the same beginning, write: any r in {…}: " + name + "{r}";
    }
    if (labels_->size() <= kFewLabels) {
      hint += hint.empty() ? "the labels are:" : "\n  the labels are:";
      for (const std::string& label : labels_->names()) {
        const bool has_space = label.find(' ') != std::string::npos;
        hint += has_space ? " \"" + label + "\"" : " " + label;
      }
    }
    fail_at(word.place, message, hint);
  }

  bool begins_a_label(const std::string& name) const {
    const std::vector<std::string>& names = labels_->names();
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& label) { return label.compare(0, name.size(), name) == 0; });
  }

  // `name` as a run of known labels, for those who write BIO for B I O.
  std::vector<std::string> split_into_labels(const std::string& name) const {
    const std::size_t longest = 200;
    if (name.size() > longest) return {};
    std::vector<std::optional<std::vector<std::string>>> split(name.size() + 1);
    split[0] = std::vector<std::string>{};
    for (std::size_t i = 0; i < name.size(); ++i) {
      if (!split[i]) continue;
      for (std::size_t n = 1; i + n <= name.size(); ++n) {
        if (split[i + n] || !labels_->find(name.substr(i, n))) continue;
        split[i + n] = split[i];
        split[i + n]->push_back(name.substr(i, n));
      }
    }
    return split[name.size()].value_or(std::vector<std::string>{});
  }

  // The text that a word stands for when it is a part of labels.
  std::string text_of(const Word& word, const Scope* scope) {
    if (word.plain()) {
      const Scope* bound = find(scope, word.pieces[0].text);
      return bound ? text_of(*bound, word.place) : word.pieces[0].text;
    }
    std::string text;
    for (const Piece& piece : word.pieces) {
      text += piece.is_name ? value(piece.text, word.place, scope) : piece.text;
      step_for_text(word.place, text);
    }
    return text;
  }

  std::string text_of(const Scope& bound, const Place& place) {
    if (!bound.argument) return bound.text;
    if (bound.argument->kind != Syntax::Kind::kWord) {
      fail_at(place, bound.name + " is a pattern here, but a single word is needed",
              "it was given as the argument in line " + line_of(bound.argument->place));
    }
    return text_of(bound.argument->word, bound.argument_scope);
  }

  static std::string line_of(const Place& place) {
    const std::string& text = place.source->text;
    return std::to_string(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place.begin), '\n') + 1);
  }

  std::string value(const std::string& name, const Place& place, const Scope* scope) {
    if (const Scope* bound = find(scope, name)) return text_of(*bound, place);
    std::vector<std::string> known;
    for (const Scope* s = scope; s; s = s->outer) known.push_back(s->name);
    std::string message = "{" + name + "}: no name " + name + " is bound here";
    if (const auto near = nearest(name, known)) message += ": did you mean {" + *near + "}?";
    fail_at(place, message, "names are bound by a quantifier (any " + name + " in …: …) or as a template's parameter");
  }

  // The elements of a set in the order of writing, without repetitions.
  std::vector<std::string> elements(const SetSyntax& set, const Scope* scope) {
    const Nested nested(nesting_);
    if (nesting_ > kDeepestNesting) fail_at(set.place, "sets are nested too deeply", "write the elements out");
    Meter taken(budget_, "expand");
    std::vector<std::string> result;
    std::set<std::string> seen;
    const auto add = [&](const std::string& element) {
      step_for_text(set.place, element);
      taken.hold_more(bytes_of_name(element));
      if (seen.insert(element).second) result.push_back(element);
    };
    for (const SetSyntax::Item& item : set.items) {
      if (item.is_set_name) {
        for (const std::string& element : set_named(item.word.pieces[0].text, item.word.place, scope)) add(element);
      } else {
        for (const std::string& element : spellings(item.word, scope)) add(element);
      }
    }
    return result;
  }

  // A set's element: {name} may be a bound name, or a set, whose elements are taken in turn.
  std::vector<std::string> spellings(const Word& word, const Scope* scope) {
    Meter taken(budget_, "expand");
    std::vector<std::string> result = {""};
    for (const Piece& piece : word.pieces) {
      std::vector<std::string> choices = {piece.text};
      if (piece.is_name) {
        const bool is_set = !find(scope, piece.text) && set_definition(piece.text);
        choices = is_set ? set_named(piece.text, word.place, scope)
                         : std::vector<std::string>{value(piece.text, word.place, scope)};
      }
      std::vector<std::string> longer;
      for (const std::string& start : result) {
        for (const std::string& choice : choices) {
          longer.push_back(start + choice);
          taken.hold_more(bytes_of_name(longer.back()));
          step_for_text(word.place, longer.back());
        }
      }
      result = std::move(longer);
    }
    return result;
  }

  const Definition* set_definition(const std::string& name) const {
    const auto it = module_.definitions.find(name);
    return it != module_.definitions.end() && it->second.is_set ? &it->second : nullptr;
  }

  std::vector<std::string> set_named(const std::string& name, const Place& place, const Scope* scope) {
    if (const Scope* bound = find(scope, name)) {
      if (!bound->argument) fail_at(place, name + " is " + bound->text + " here, but a set is needed");
      return set_of(*bound->argument, bound->argument_scope);
    }
    const Definition* definition = set_definition(name);
    if (!definition) no_such_set(name, place);
    if (const auto done = named_sets_.find(name); done != named_sets_.end()) return done->second;
    if (!open_sets_.insert(name).second) fail_at(definition->place, "the set " + name + " contains itself");
    std::vector<std::string> result = elements(definition->set, nullptr);
    open_sets_.erase(name);
    for (const std::string& element : result) meter_.hold_more(bytes_of_name(element));
    return named_sets_[name] = std::move(result);
  }

  [[noreturn]] void no_such_set(const std::string& name, const Place& place) const {
    if (module_.definitions.count(name))
      fail_at(place, name + " is a pattern, but a set is needed", "a set is written {A B C}");
    std::vector<std::string> known;
    for (const auto& [defined, definition] : module_.definitions) {
      if (definition.is_set) known.push_back(defined);
    }
    std::string message = "there is no set called " + name;
    if (const auto near = nearest(name, known)) message += ": did you mean " + *near + "?";
    fail_at(place, message,
            "a set is written in place, {" + name + "}, or defined in a line of its own, " + name + " = {A B C}");
  }

  // An argument where a set is wanted: {A B}, the name of a set, or {A}, which reads like a substitution.
  std::vector<std::string> set_of(const Syntax& argument, const Scope* scope) {
    if (argument.kind == Syntax::Kind::kSet) return elements(argument.set, scope);
    if (argument.kind != Syntax::Kind::kWord || argument.word.quoted || argument.word.pieces.size() != 1) {
      fail_at(argument.place, "a set is needed here", "a set is a name or {A B C}");
    }
    const Piece& piece = argument.word.pieces[0];
    if (!piece.is_name) return set_named(piece.text, argument.place, scope);
    if (const Scope* bound = find(scope, piece.text)) return {text_of(*bound, argument.place)};
    return set_definition(piece.text) ? set_named(piece.text, argument.place, scope)
                                      : std::vector<std::string>{piece.text};
  }

  // --- patterns -----------------------------------------------------------------------------------------------------
  ExprPtr pattern(const Syntax& syntax, const Scope* scope) {
    ExprPtr result = uncounted(syntax, scope);
    count(result);
    return result;
  }

  ExprPtr uncounted(const Syntax& syntax, const Scope* scope) {
    using Kind = Syntax::Kind;
    step(syntax.place);
    const Nested nested(nesting_);
    if (nesting_ > kDeepestNesting)
      fail_at(syntax.place, "nested too deeply once it is written out", "write the pattern flatter");
    switch (syntax.kind) {
      case Kind::kWord:
        return word(syntax.word, scope);
      case Kind::kAny:
        return one_of(all_but({}, syntax.place));
      case Kind::kOneOf:
        return one_of(members(syntax, scope));
      case Kind::kNoneOf:
        return one_of(all_but(members(syntax, scope), syntax.place));
      case Kind::kEmpty:
        return empty_sequence();
      case Kind::kConcat:
        return concat(parts(syntax, scope));
      case Kind::kUnion:
        return unite(parts(syntax, scope));
      case Kind::kIntersect:
        return intersection(syntax, scope);
      case Kind::kNot:
        return negated(syntax, scope);
      case Kind::kRepeat:
        return repeated(syntax, scope);
      case Kind::kQuantifier:
        return quantifier(syntax, scope);
      case Kind::kCall:
        return call(syntax, scope);
      case Kind::kSet:
        fail_at(syntax.place, "a set can only be after = and in", "one label of several is [A B C]");
    }
    return nothing();
  }

  ExprPtr intersection(const Syntax& syntax, const Scope* scope) {
    std::vector<ExprPtr> operands = parts(syntax, scope);
    std::vector<Conjunct>& list = &syntax == whole_ ? conjuncts_ : nested_;
    for (std::size_t i = 0; i < operands.size() && list.size() < kMostConjuncts; ++i) {
      list.push_back({operands[i], written(*syntax.place.source, syntax.spans[i]), scope != nullptr});
      meter_.hold_more(bytes_of_name(list.back().text));
    }
    return intersect(std::move(operands));
  }

  // On one line, without comments.
  static std::string written(const Source& source, const Syntax::Span& span) {
    std::string text;
    bool comment = false;
    for (const char c : std::string_view(source.text).substr(span.begin, span.end - span.begin)) {
      comment = c != '\n' && (comment || c == '#');
      const bool blank = comment || c == ' ' || c == '\t' || c == '\r' || c == '\n';
      if (!blank) text += c;
      if (blank && !text.empty() && text.back() != ' ') text += ' ';
    }
    if (text.ends_with(' ')) text.pop_back();
    return text;
  }

  ExprPtr negated(const Syntax& syntax, const Scope* scope) {
    const ExprPtr part = pattern(*syntax.parts[0], scope);
    step_for_labels(syntax.place);
    ExprPtr result = complement(part, label_count());
    std::set<const Expr*> known = {part.get()};
    if (result.use_count() == 1) count_all(*result, known);  // else it is what `part` negates
    return result;
  }

  ExprPtr repeated(const Syntax& syntax, const Scope* scope) {
    ExprPtr result = pattern(*syntax.parts[0], scope);
    for (const Bounds& bounds : syntax.bounds) result = repeat(std::move(result), bounds.least, bounds.most);
    return result;
  }

  std::vector<ExprPtr> parts(const Syntax& syntax, const Scope* scope) {
    std::vector<ExprPtr> result;
    for (const SyntaxPtr& part : syntax.parts) result.push_back(pattern(*part, scope));
    return result;
  }

  std::vector<Label> members(const Syntax& syntax, const Scope* scope) {
    std::vector<Label> result;
    for (const Word& member : syntax.members) {
      step(member.place);
      result.push_back(label(text_of(member, scope), member)->labels[0]);
    }
    return result;
  }

  std::vector<Label> all_but(std::vector<Label> excluded, const Place& place) {
    step_for_labels(place);
    std::sort(excluded.begin(), excluded.end());
    std::vector<Label> result;
    for (Label a = 0; a < label_count(); ++a) {
      if (!std::binary_search(excluded.begin(), excluded.end(), a)) result.push_back(a);
    }
    return result;
  }

  ExprPtr word(const Word& word, const Scope* scope) {
    if (!word.plain()) return label(text_of(word, scope), word);
    const std::string& name = word.pieces[0].text;
    if (const Scope* bound = find(scope, name)) {
      return bound->argument ? pattern(*bound->argument, bound->argument_scope) : label(bound->text, word);
    }
    const auto it = module_.definitions.find(name);
    if (it == module_.definitions.end()) return label(name, word);
    if (it->second.is_set) {
      fail_at(word.place, name + " is a set, but a pattern is needed",
              "for one of its elements, as a label, write: any x in " + name + ": x");
    }
    if (it->second.is_template)
      fail_at(word.place, name + " is a template", "it needs arguments: " + usage(it->second));
    return named_pattern(it->second);
  }

  static std::string usage(const Definition& definition) {
    std::string text = definition.name + "(";
    for (std::size_t i = 0; i < definition.parameters.size(); ++i) text += (i ? ", " : "") + definition.parameters[i];
    return text + ")";
  }

  ExprPtr named_pattern(const Definition& definition) {
    if (const auto done = named_.find(definition.name); done != named_.end()) return done->second;
    Entered entered(*this, definition);
    ExprPtr result = pattern(*definition.pattern, nullptr);
    named_[definition.name] = result;
    return result;
  }

  ExprPtr quantifier(const Syntax& syntax, const Scope* scope) {
    std::vector<ExprPtr> choices;
    for (const std::string& element : elements(syntax.set, scope)) {
      const Scope inner{scope, syntax.word.pieces[0].text, element, nullptr, nullptr};
      choices.push_back(pattern(*syntax.parts[0], &inner));
      if (!inner.used) check_spelling(inner.name, *syntax.parts[0]);
    }
    if (!syntax.all) return unite(std::move(choices));
    return choices.empty() ? all_sequences(label_count()) : intersect(std::move(choices));
  }

  ExprPtr call(const Syntax& syntax, const Scope* scope) {
    const std::string& name = syntax.word.pieces[0].text;
    if (const auto it = module_.definitions.find(name); it != module_.definitions.end() && it->second.is_template) {
      return apply(it->second, syntax, scope);
    }
    if (const Builtin* builtin = find_builtin(name)) return apply(*builtin, syntax, scope);
    std::vector<std::string> known = builtin_names();
    for (const auto& [defined, definition] : module_.definitions) {
      if (definition.is_template) known.push_back(defined);
    }
    std::string message = "there is no template called " + name;
    if (const auto near = nearest(name, known)) message += ": did you mean " + *near + "?";
    fail_at(syntax.place, message,
            name == "^" ? "a pattern describes whole sequences, so ^ and $ are not needed"
                        : "for the label " + name + " followed by a group, put a space before the (");
  }

  ExprPtr apply(const Definition& definition, const Syntax& syntax, const Scope* scope) {
    check_count(syntax, definition.parameters.size(), usage(definition));
    Entered entered(*this, definition);
    std::vector<Scope> scopes(definition.parameters.size());
    const Scope* inner = nullptr;
    for (std::size_t i = 0; i < scopes.size(); ++i) {
      scopes[i] = {inner, definition.parameters[i], "", syntax.parts[i].get(), scope};
      inner = &scopes[i];
    }
    ExprPtr result = pattern(*definition.pattern, inner);
    for (const Scope& parameter : scopes) {
      if (!parameter.used) check_spelling(parameter.name, *definition.pattern);
    }
    return result;
  }

  // A name that is not used, and stands bare as a part of a label: somebody wrote B-r for B-{r}.
  static void check_spelling(const std::string& name, const Syntax& body) {
    const auto check = [&](const Word& word) {
      for (const Piece& piece : word.pieces) {
        if (word.quoted || piece.is_name || !has_part(piece.text, name)) continue;
        fail_at(word.place, name + " is not used, and this is the label " + piece.text,
                "inside a label a name is written in braces, as in B-{" + name + "}");
      }
    };
    check(body.word);
    for (const Word& member : body.members) check(member);
    for (const SyntaxPtr& part : body.parts) check_spelling(name, *part);
  }

  // B-r has the parts B and r.
  static bool has_part(const std::string& text, const std::string& name) {
    const std::size_t at = text.find(name), end = at + name.size();
    const auto divides = [&](std::size_t i) { return text[i] == '-' || text[i] == '_'; };
    return at != std::string::npos && text != name && (at == 0 || divides(at - 1)) &&
           (end == text.size() || divides(end));
  }

  static void check_count(const Syntax& syntax, std::size_t wanted, const std::string& how) {
    if (syntax.parts.size() == wanted) return;
    fail_at(syntax.place,
            syntax.word.pieces[0].text + " takes " + std::to_string(wanted) +
                (wanted == 1 ? " argument" : " arguments") + ", and " + std::to_string(syntax.parts.size()) +
                (syntax.parts.size() == 1 ? " is given" : " are given"),
            "usage: " + how);
  }

  ExprPtr apply(const Builtin& builtin, const Syntax& syntax, const Scope* scope) {
    using Signature = Builtin::Signature;
    BuiltinArguments in;
    in.label = [&](const std::string& name) { return label(name, syntax.word); };
    std::size_t first_pattern = 0;
    switch (builtin.signature) {
      case Signature::kSet:
        check_count(syntax, 1, builtin.usage);
        in.set = set_of(*syntax.parts[0], scope);
        first_pattern = 1;
        break;
      case Signature::kNumberPattern:
        check_count(syntax, 2, builtin.usage);
        in.number = number(*syntax.parts[0], scope, builtin);
        first_pattern = 1;
        break;
      case Signature::kPattern:
        check_count(syntax, 1, builtin.usage);
        break;
      case Signature::kTwoPatterns:
        check_count(syntax, 2, builtin.usage);
        break;
      case Signature::kManyPatterns:
        if (syntax.parts.size() < 2) check_count(syntax, 2, builtin.usage);
        break;
    }
    for (std::size_t i = first_pattern; i < syntax.parts.size(); ++i) {
      in.patterns.push_back(pattern(*syntax.parts[i], scope));
      if (in.patterns.back()->nullable) {
        fail_at(syntax.parts[i]->place,
                std::string("this can be the empty sequence, which ") + builtin.name + " cannot find",
                std::string("usage: ") + builtin.usage + ", where X is a label or a pattern of at least one");
      }
    }
    in.labels = label_count();
    const auto patterns = static_cast<std::int64_t>(in.patterns.size());
    for (std::int64_t i = 0; i < patterns; ++i)
      step_for_labels(syntax.place, patterns);  // ordered() takes them two by two
    ExprPtr result = builtin.apply(in);
    std::set<const Expr*> known;
    for (const ExprPtr& argument : in.patterns) known.insert(argument.get());
    count_all(*result, known);
    return result;
  }

  std::uint32_t number(const Syntax& syntax, const Scope* scope, const Builtin& builtin) {
    const std::uint32_t most = 10'000;
    const std::string text = syntax.kind == Syntax::Kind::kWord ? text_of(syntax.word, scope) : "";
    const bool digits = !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || std::stoul(text) > most) {
      fail_at(syntax.place, "a number from 0 to 10000 is needed here", std::string("usage: ") + builtin.usage);
    }
    return static_cast<std::uint32_t>(std::stoul(text));
  }

  struct Nested {
    explicit Nested(int& nesting) : count(nesting) { ++count; }
    ~Nested() { --count; }
    int& count;
  };

  // Guards against definitions that use themselves.
  struct Entered {
    Entered(Expander& expander, const Definition& definition) : owner(expander), name(definition.name) {
      if (definition.is_template ? owner.depth_ >= kDeepestCalls : !owner.open_names_.insert(name).second) {
        const std::string or_else =
            definition.is_template ? ", or calls are nested more than " + std::to_string(kDeepestCalls) + " deep" : "";
        fail_at(definition.place, name + " is defined by itself" + or_else, "repetition is written with * or {n,m}");
      }
      counted = true;
      is_template = definition.is_template;
      ++owner.depth_;
    }
    ~Entered() {
      if (!counted) return;
      --owner.depth_;
      if (!is_template) owner.open_names_.erase(name);
    }
    Expander& owner;
    std::string name;
    bool counted = false, is_template = false;
  };

  const Module& module_;
  std::optional<Labels> labels_;
  const Budget& budget_;
  Meter meter_;
  std::vector<std::string> collected_;
  std::unordered_map<std::string, Label> collected_ids_;
  std::map<std::string, ExprPtr> named_;
  std::map<std::string, std::vector<std::string>> named_sets_;
  std::set<std::string> open_names_, open_sets_;
  int depth_ = 0;                    // open templates and names
  int nesting_ = 0;                  // open patterns
  const Syntax* whole_ = nullptr;    // the language's own pattern …
  std::vector<Conjunct> conjuncts_;  // … and its operands, if it is a conjunction
  std::vector<Conjunct> nested_;     // operands of conjunctions within it
  std::int64_t steps_ = 0;
};

void check_names(const Module& module) {
  for (const auto& [name, definition] : module.definitions) {
    if (definition.is_template && find_builtin(name))
      fail_at(definition.place, name + " is built in", "give the template another name");
    const bool reserved = name == "language" || name == "labels";
    if (reserved && definition.is_template) fail_at(definition.place, name + " cannot have parameters");
    if (name == "labels" && !definition.is_set)
      fail_at(definition.place, "labels must be a set", "labels = {O B-PER I-PER}");
    if (name == "language" && definition.is_set) {
      fail_at(definition.place, "language must be a pattern, and this is a set", "one label of several is [A B C]");
    }
  }
}

const Definition& language_of(const Module& module) {
  const auto it = module.definitions.find("language");
  if (it != module.definitions.end()) return it->second;
  const Definition& first = module.definitions.begin()->second;
  fail_at(first.place, "the file has no definition `language = …`", "it says which of the patterns is the language");
}

std::optional<Labels> declared(const Module& module, const Budget& budget) {
  const auto it = module.definitions.find("labels");
  if (it == module.definitions.end()) return std::nullopt;
  return Labels(Expander(module, Labels(), budget).declared_labels(it->second));
}

}  // namespace

Expanded expand(const Module& module, const std::optional<Labels>& given, const Budget& budget) {
  check_names(module);
  const Definition& language = language_of(module);
  std::optional<Labels> labels = declared(module, budget);
  if (labels && given) {
    for (const std::string& name : labels->names()) {
      if (!given->find(name)) {
        fail_at(module.definitions.at("labels").place,
                "the declared label " + name + " is not among the labels that were given");
      }
    }
  }
  if (given) labels = given;
  if (!labels) {
    Expander collector(module, std::nullopt, budget);
    collector.language(language);
    budget.check_time("expand");
    labels = collector.collected();
  }
  Expander expander(module, labels, budget);
  ExprPtr expr = expander.language(language);
  return {std::move(expr), *labels, expander.conjuncts(), expander.nested(), expander.bytes()};
}

}  // namespace regccrf
