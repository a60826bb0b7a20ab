// Smart constructors for expressions. Each checks the nesting bound, so every later walk may recurse safely.
#include "language/expr.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "language/algebra.h"
#include "regccrf/error.h"

namespace regccrf {
namespace {

using Kind = Expr::Kind;

constexpr int kDeepest = 2'000;
constexpr std::int64_t kMostPositions = std::int64_t{1} << 40;  // where counting saturates
constexpr std::size_t kMostParts = 5'000'000;

std::uint64_t combine(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdull;
}

std::int64_t saturate(std::int64_t n) { return std::min(n, kMostPositions); }

std::int64_t count_positions(const Expr& expr) {
  switch (expr.kind) {
    case Kind::kOneOf:
      return 1;
    case Kind::kAutomaton:
      return expr.automaton->states();
    case Kind::kRepeat: {
      const std::int64_t copies = expr.most == Expr::kUnbounded ? std::max<std::int64_t>(1, expr.least) : expr.most;
      const std::int64_t each = expr.parts[0]->positions;
      return each > 0 && copies > kMostPositions / each ? kMostPositions : saturate(copies * each);
    }
    default: {
      std::int64_t sum = 0;
      for (const ExprPtr& part : expr.parts) sum = saturate(sum + part->positions);
      return sum;
    }
  }
}

bool is_nullable(const Expr& expr) {
  const auto part = [](const ExprPtr& p) { return p->nullable; };
  switch (expr.kind) {
    case Kind::kEmpty:
      return true;
    case Kind::kNothing:
    case Kind::kOneOf:
      return false;
    case Kind::kUnion:
      return std::any_of(expr.parts.begin(), expr.parts.end(), part);
    case Kind::kConcat:
    case Kind::kIntersect:
      return std::all_of(expr.parts.begin(), expr.parts.end(), part);
    case Kind::kRepeat:
      return expr.least == 0 || expr.parts[0]->nullable;
    case Kind::kMinus:
      return expr.parts[0]->nullable && !expr.parts[1]->nullable;
    case Kind::kAutomaton:
      return expr.automaton->accepting[expr.automaton->start];
  }
  return false;
}

ExprPtr finish(Expr expr) {
  std::uint64_t hash = combine(static_cast<std::uint64_t>(expr.kind), expr.least);
  hash = combine(hash, expr.most);
  for (Label a : expr.labels) hash = combine(hash, static_cast<std::uint64_t>(a) + 1);
  if (expr.automaton) hash = combine(hash, reinterpret_cast<std::uintptr_t>(expr.automaton.get()));
  for (const ExprPtr& part : expr.parts) {
    hash = combine(hash, part->hash);
    expr.depth = std::max(expr.depth, part->depth + 1);
  }
  if (expr.depth > kDeepest) {
    throw LimitError("[language] nested more than " + std::to_string(kDeepest) +
                     " deep; write the pattern flatter, or compile a part of it first");
  }
  expr.hash = hash;
  expr.positions = count_positions(expr);
  expr.nullable = is_nullable(expr);
  return std::make_shared<const Expr>(std::move(expr));
}

ExprPtr make(Kind kind, std::vector<ExprPtr> parts) {
  Expr expr;
  expr.kind = kind;
  expr.parts = std::move(parts);
  return finish(std::move(expr));
}

// Parts of the same kind are opened: (a | b) | c has three parts.
std::vector<ExprPtr> flattened(Kind kind, const std::vector<ExprPtr>& parts) {
  std::vector<ExprPtr> flat;
  for (const ExprPtr& part : parts) {
    if (part->kind == kind) {
      flat.insert(flat.end(), part->parts.begin(), part->parts.end());
    } else {
      flat.push_back(part);
    }
    if (flat.size() > kMostParts) {
      throw LimitError("[language] the pattern has more than " + std::to_string(kMostParts) +
                       " parts once it is written out");
    }
  }
  return flat;
}

std::vector<ExprPtr> without_duplicates(const std::vector<ExprPtr>& parts) {
  std::vector<ExprPtr> kept;
  std::unordered_multimap<std::uint64_t, const Expr*> seen;
  for (const ExprPtr& part : parts) {
    const auto [first, last] = seen.equal_range(part->hash);
    if (std::any_of(first, last, [&](const auto& entry) { return same(*entry.second, *part); })) continue;
    seen.emplace(part->hash, part.get());
    kept.push_back(part);
  }
  return kept;
}

bool has_nothing(const std::vector<ExprPtr>& parts) {
  return std::any_of(parts.begin(), parts.end(), [](const ExprPtr& part) { return part->kind == Kind::kNothing; });
}

}  // namespace

ExprPtr nothing() { return make(Kind::kNothing, {}); }
ExprPtr empty_sequence() { return make(Kind::kEmpty, {}); }

ExprPtr one_of(std::vector<Label> labels) {
  std::sort(labels.begin(), labels.end());
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  if (labels.empty()) return nothing();
  Expr expr;
  expr.kind = Kind::kOneOf;
  expr.labels = std::move(labels);
  return finish(std::move(expr));
}

ExprPtr concat(std::vector<ExprPtr> parts) {
  parts = flattened(Kind::kConcat, parts);
  if (has_nothing(parts)) return nothing();
  std::erase_if(parts, [](const ExprPtr& part) { return part->kind == Kind::kEmpty; });
  if (parts.empty()) return empty_sequence();
  return parts.size() == 1 ? parts[0] : make(Kind::kConcat, std::move(parts));
}

ExprPtr unite(std::vector<ExprPtr> parts) {
  parts = flattened(Kind::kUnion, parts);
  std::vector<Label> labels;  // single labels of all alternatives, as one set in the place of the first
  std::vector<ExprPtr> kept;
  std::size_t place = 0;
  for (const ExprPtr& part : parts) {
    if (part->kind == Kind::kNothing) continue;
    if (part->kind != Kind::kOneOf) {
      kept.push_back(part);
      continue;
    }
    if (labels.empty()) place = kept.size();
    labels.insert(labels.end(), part->labels.begin(), part->labels.end());
  }
  if (!labels.empty()) kept.insert(kept.begin() + static_cast<std::ptrdiff_t>(place), one_of(std::move(labels)));
  kept = without_duplicates(kept);
  if (kept.empty()) return nothing();
  return kept.size() == 1 ? kept[0] : make(Kind::kUnion, std::move(kept));
}

ExprPtr repeat(ExprPtr part, std::uint32_t least, std::uint32_t most) {
  if (most == 0 || part->kind == Kind::kEmpty) return empty_sequence();
  if (part->kind == Kind::kNothing) return least == 0 ? empty_sequence() : nothing();
  if (least == 1 && most == 1) return part;
  const bool is_star = part->kind == Kind::kRepeat && part->least == 0 && part->most == Expr::kUnbounded;
  if (is_star) return part;
  Expr expr;
  expr.kind = Kind::kRepeat;
  expr.parts = {std::move(part)};
  expr.least = least;
  expr.most = most;
  return finish(std::move(expr));
}

ExprPtr intersect(std::vector<ExprPtr> parts) {
  parts = without_duplicates(flattened(Kind::kIntersect, parts));
  if (has_nothing(parts)) return nothing();
  return parts.size() == 1 ? parts[0] : make(Kind::kIntersect, std::move(parts));
}

ExprPtr minus(ExprPtr whole, ExprPtr without) {
  if (without->kind == Kind::kNothing || whole->kind == Kind::kNothing) return whole;
  return make(Kind::kMinus, {std::move(whole), std::move(without)});
}

ExprPtr automaton_expr(std::shared_ptr<const Automaton> automaton) {
  Expr expr;
  expr.kind = Kind::kAutomaton;
  expr.automaton = std::move(automaton);
  return finish(std::move(expr));
}

ExprPtr all_sequences(int labels) {
  std::vector<Label> all(static_cast<std::size_t>(labels));
  for (int a = 0; a < labels; ++a) all[a] = a;
  return star(one_of(std::move(all)));
}

ExprPtr complement(ExprPtr part, int labels) {
  const ExprPtr all = all_sequences(labels);
  const bool twice = part->kind == Kind::kMinus && same(*part->parts[0], *all);  // !!p is p
  return twice ? part->parts[1] : minus(all, std::move(part));
}

namespace {

// Rebuilds an expression from its leaves, visiting each shared part once.
template <class Leaf, class Inner>
ExprPtr rebuild(const ExprPtr& expr, std::unordered_map<const Expr*, ExprPtr>& done, const Leaf& leaf,
                const Inner& order) {
  if (const auto it = done.find(expr.get()); it != done.end()) return it->second;
  std::vector<ExprPtr> parts;
  for (const ExprPtr& part : expr->parts) parts.push_back(rebuild(part, done, leaf, order));
  order(*expr, parts);
  ExprPtr result;
  switch (expr->kind) {
    case Kind::kConcat:
      result = concat(std::move(parts));
      break;
    case Kind::kUnion:
      result = unite(std::move(parts));
      break;
    case Kind::kRepeat:
      result = repeat(parts[0], expr->least, expr->most);
      break;
    case Kind::kIntersect:
      result = intersect(std::move(parts));
      break;
    case Kind::kMinus:
      result = minus(parts[0], parts[1]);
      break;
    default:
      result = leaf(expr);
      break;
  }
  return done[expr.get()] = result;
}

}  // namespace

ExprPtr reversed(const ExprPtr& expr) {
  std::unordered_map<const Expr*, ExprPtr> done;
  const auto leaf = [](const ExprPtr& e) {
    if (e->kind != Kind::kAutomaton) return e;
    return automaton_expr(std::make_shared<const Automaton>(reverse(*e->automaton, Budget())));
  };
  const auto order = [](const Expr& e, std::vector<ExprPtr>& parts) {
    if (e.kind == Kind::kConcat) std::reverse(parts.begin(), parts.end());
  };
  return rebuild(expr, done, leaf, order);
}

ExprPtr relabelled(const ExprPtr& expr, const std::vector<Label>& to) {
  std::unordered_map<const Expr*, ExprPtr> done;
  const auto leaf = [&to](const ExprPtr& e) {
    if (e->kind == Kind::kOneOf) {
      std::vector<Label> labels = e->labels;
      for (Label& a : labels) a = to[a];
      return one_of(std::move(labels));
    }
    if (e->kind != Kind::kAutomaton) return e;
    Automaton automaton = *e->automaton;
    for (Arc& arc : automaton.arcs) arc.label = to[arc.label];
    std::sort(automaton.arcs.begin(), automaton.arcs.end());
    return automaton_expr(std::make_shared<const Automaton>(std::move(automaton)));
  };
  return rebuild(expr, done, leaf, [](const Expr&, std::vector<ExprPtr>&) {});
}

namespace {

// `seen` holds the pairs that were compared already: shared parts would otherwise be compared once per path to them.
bool alike(const Expr& x, const Expr& y, std::set<std::pair<const Expr*, const Expr*>>& seen) {
  if (&x == &y) return true;
  if (x.hash != y.hash || x.kind != y.kind || x.least != y.least || x.most != y.most || x.labels != y.labels ||
      x.automaton != y.automaton || x.parts.size() != y.parts.size()) {
    return false;
  }
  if (!x.parts.empty() && !seen.emplace(&x, &y).second) return true;  // had they differed, we would not be here
  for (std::size_t i = 0; i < x.parts.size(); ++i) {
    if (!alike(*x.parts[i], *y.parts[i], seen)) return false;
  }
  return true;
}

}  // namespace

bool same(const Expr& x, const Expr& y) {
  std::set<std::pair<const Expr*, const Expr*>> seen;
  return alike(x, y, seen);
}

}  // namespace regccrf
