// Expr: a language as an expression over label sets, with all names, templates and quantifiers gone. Immutable and
// shared, so languages are cheap values. Build it with the functions below: they keep it flat and free of duplicates,
// which is what lets readable patterns stay unambiguous (a quantifier's union may repeat an alternative; an
// intersection an operand).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "regccrf/automaton.h"

namespace regccrf {

struct Expr;
using ExprPtr = std::shared_ptr<const Expr>;

struct Expr {
  enum class Kind {
    kNothing,    // no sequence
    kEmpty,      // the empty sequence
    kOneOf,      // one label of `labels`
    kConcat,     // of `parts`
    kUnion,      // of `parts`
    kRepeat,     // parts[0], `least` to `most` times
    kIntersect,  // of `parts`
    kMinus,      // parts[0] without parts[1]
    kAutomaton,  // what `automaton` accepts
  };
  static constexpr std::uint32_t kUnbounded = 0xffffffff;

  Kind kind = Kind::kNothing;
  std::vector<Label> labels;  // sorted, distinct
  std::vector<ExprPtr> parts;
  std::uint32_t least = 0, most = 0;
  std::shared_ptr<const Automaton> automaton;

  std::uint64_t hash = 0;
  bool nullable = false;       // holds the empty sequence
  int depth = 1;               // nesting; functions that recurse rely on its bound
  std::int64_t positions = 0;  // labels that the written-out expression has, saturating
};

ExprPtr nothing();
ExprPtr empty_sequence();
ExprPtr one_of(std::vector<Label> labels);
ExprPtr concat(std::vector<ExprPtr> parts);
ExprPtr unite(std::vector<ExprPtr> parts);
ExprPtr repeat(ExprPtr part, std::uint32_t least, std::uint32_t most);
inline ExprPtr star(ExprPtr part) { return repeat(std::move(part), 0, Expr::kUnbounded); }
ExprPtr intersect(std::vector<ExprPtr> parts);  // of at least one part
ExprPtr minus(ExprPtr whole, ExprPtr without);
ExprPtr automaton_expr(std::shared_ptr<const Automaton> automaton);

ExprPtr all_sequences(int labels);
ExprPtr complement(ExprPtr part, int labels);

ExprPtr reversed(const ExprPtr& expr);
ExprPtr relabelled(const ExprPtr& expr, const std::vector<Label>& to);  // label a becomes to[a]
bool same(const Expr& x, const Expr& y);                                // written alike, hence the same language

}  // namespace regccrf
