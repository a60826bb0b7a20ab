// The built-in templates, as expressions.
//
// Where X is one label of a set, each is written as an unambiguous regular expression: the sequence is cut at its Xs,
// and N is everything else. Where X is a longer pattern, an occurrence is a piece of the sequence, and the definition
// is by complement: at_most(n, X) is "no n + 1 occurrences one behind the other".
#include "language/builtins.h"

#include <algorithm>

#include "regccrf/error.h"

namespace regccrf {
namespace {

using Arguments = BuiltinArguments;
constexpr std::uint32_t kMany = Expr::kUnbounded;

bool one_label(const ExprPtr& x) { return x->kind == Expr::Kind::kOneOf; }

ExprPtr any_label(const Arguments& in) {
  return all_sequences(in.labels)->parts.empty() ? nothing() : all_sequences(in.labels)->parts[0];
}

ExprPtr none_of(const Arguments& in, const std::vector<ExprPtr>& sets) {
  std::vector<Label> rest;
  for (Label a = 0; a < in.labels; ++a) {
    const auto holds = [a](const ExprPtr& set) {
      return std::binary_search(set->labels.begin(), set->labels.end(), a);
    };
    if (std::none_of(sets.begin(), sets.end(), holds)) rest.push_back(a);
  }
  return one_of(std::move(rest));
}

ExprPtr without(const ExprPtr& x, const ExprPtr& y) {
  std::vector<Label> rest;
  std::set_difference(x->labels.begin(), x->labels.end(), y->labels.begin(), y->labels.end(), std::back_inserter(rest));
  return one_of(std::move(rest));
}

ExprPtr everything(const Arguments& in) { return star(any_label(in)); }
ExprPtr contains(const ExprPtr& x, const Arguments& in) { return concat({everything(in), x, everything(in)}); }
ExprPtr lacks(const ExprPtr& x, const Arguments& in) { return complement(contains(x, in), in.labels); }

ExprPtr at_least(std::uint32_t n, const ExprPtr& x, const Arguments& in) {
  if (n == 0) return everything(in);
  const ExprPtr before = one_label(x) ? star(none_of(in, {x})) : everything(in);
  return concat({repeat(concat({before, x}), n, n), everything(in)});
}

ExprPtr at_most(std::uint32_t n, const ExprPtr& x, const Arguments& in) {
  if (!one_label(x)) return complement(at_least(n + 1, x, in), in.labels);
  const ExprPtr others = star(none_of(in, {x}));
  return concat({others, repeat(concat({x, others}), 0, n)});
}

ExprPtr apply_bio(const Arguments& in) {
  std::vector<ExprPtr> options = {in.label("O")};
  for (const std::string& type : in.set)
    options.push_back(concat({in.label("B-" + type), star(in.label("I-" + type))}));
  return star(unite(std::move(options)));
}

ExprPtr apply_bioes(const Arguments& in) {
  std::vector<ExprPtr> options = {in.label("O")};
  for (const std::string& type : in.set) {
    options.push_back(in.label("S-" + type));
    options.push_back(concat({in.label("B-" + type), star(in.label("I-" + type)), in.label("E-" + type)}));
  }
  return star(unite(std::move(options)));
}

ExprPtr apply_at_most(const Arguments& in) { return at_most(in.number, in.patterns[0], in); }
ExprPtr apply_at_least(const Arguments& in) { return at_least(in.number, in.patterns[0], in); }

ExprPtr apply_exactly(const Arguments& in) {
  const ExprPtr& x = in.patterns[0];
  if (!one_label(x)) return intersect({at_least(in.number, x, in), at_most(in.number, x, in)});
  const ExprPtr others = star(none_of(in, {x}));
  return concat({repeat(concat({others, x}), in.number, in.number), others});
}

ExprPtr apply_before(const Arguments& in) {
  const ExprPtr &x = in.patterns[0], &y = in.patterns[1];
  if (!one_label(x) || !one_label(y)) return complement(concat({lacks(x, in), y, everything(in)}), in.labels);
  const ExprPtr neither = star(none_of(in, {x, y}));
  return concat({neither, repeat(concat({without(x, y), everything(in)}), 0, 1)});
}

ExprPtr apply_requires(const Arguments& in) {
  const ExprPtr &x = in.patterns[0], &y = in.patterns[1];
  if (!one_label(x) || !one_label(y)) return unite({lacks(x, in), contains(y, in)});
  return unite({star(none_of(in, {x, y})), concat({star(none_of(in, {y})), y, everything(in)})});
}

bool disjoint(const std::vector<ExprPtr>& sets) {
  std::vector<Label> all;
  for (const ExprPtr& set : sets) all.insert(all.end(), set->labels.begin(), set->labels.end());
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) == all.end();
}

// N* (X [X N]*)? (Y [Y N]*)? …
ExprPtr in_turn(const Arguments& in) {
  const ExprPtr others = none_of(in, in.patterns);
  std::vector<ExprPtr> parts = {star(others)};
  for (const ExprPtr& x : in.patterns) parts.push_back(repeat(concat({x, star(unite({x, others}))}), 0, 1));
  return concat(std::move(parts));
}

// For each pattern but the first, none of those before it may come behind it: an intersection, since the complement of
// the union of all wrong orders has to be determinised at once, and explodes.
ExprPtr apply_ordered(const Arguments& in) {
  if (std::all_of(in.patterns.begin(), in.patterns.end(), one_label) && disjoint(in.patterns)) return in_turn(in);
  std::vector<ExprPtr> rules, earlier;
  for (const ExprPtr& later : in.patterns) {
    const ExprPtr wrong = concat({everything(in), later, everything(in), unite(earlier), everything(in)});
    if (!earlier.empty()) rules.push_back(complement(wrong, in.labels));
    earlier.push_back(later);
  }
  return rules.empty() ? everything(in) : intersect(std::move(rules));
}

ExprPtr apply_once_contiguous(const Arguments& in) {
  const ExprPtr& x = in.patterns[0];
  if (!one_label(x)) return concat({lacks(x, in), star(x), lacks(x, in)});
  const ExprPtr others = star(none_of(in, {x}));
  return concat({others, repeat(concat({repeat(x, 1, kMany), others}), 0, 1)});
}

using Signature = Builtin::Signature;
const Builtin kBuiltins[] = {
    {"bio", "bio(S)", Signature::kSet, apply_bio},
    {"bioes", "bioes(S)", Signature::kSet, apply_bioes},
    {"at_most", "at_most(n, X)", Signature::kNumberPattern, apply_at_most},
    {"at_least", "at_least(n, X)", Signature::kNumberPattern, apply_at_least},
    {"exactly", "exactly(n, X)", Signature::kNumberPattern, apply_exactly},
    {"before", "before(X, Y)", Signature::kTwoPatterns, apply_before},
    {"requires", "requires(X, Y)", Signature::kTwoPatterns, apply_requires},
    {"ordered", "ordered(X, Y, …)", Signature::kManyPatterns, apply_ordered},
    {"once_contiguous", "once_contiguous(X)", Signature::kPattern, apply_once_contiguous},
};

}  // namespace

const Builtin* find_builtin(std::string_view name) {
  const auto* it =
      std::find_if(std::begin(kBuiltins), std::end(kBuiltins), [&](const Builtin& b) { return b.name == name; });
  return it == std::end(kBuiltins) ? nullptr : it;
}

std::vector<std::string> builtin_names() {
  std::vector<std::string> names;
  for (const Builtin& builtin : kBuiltins) names.push_back(builtin.name);
  return names;
}

}  // namespace regccrf
