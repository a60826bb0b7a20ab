// The Language value: an expression over labels, and the automata that questions about it need, built when first asked
// for and kept.
#include "regccrf/language.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <utility>

#include "automaton/automaton.h"
#include "base/file.h"
#include "base/safetensors.h"
#include "language/algebra.h"
#include "language/build.h"
#include "language/clash.h"
#include "language/count.h"
#include "language/expand.h"
#include "language/fst_file.h"
#include "language/language.h"
#include "regccrf/automaton_file.h"
#include "regccrf/constraint.h"

namespace regccrf {

Budget budget_of(const Limits& limits) {
  constexpr double megabyte = 1e6, most = 9e18;
  const double bytes = std::min(static_cast<double>(limits.memory) * megabyte, most);
  return {limits.states, limits.arcs, static_cast<std::int64_t>(bytes), limits.seconds};
}

namespace {

std::shared_ptr<Language::Impl> make_impl(Labels labels, ExprPtr expr, std::string text = "") {
  auto impl = std::make_shared<Language::Impl>();
  impl->labels = std::move(labels);
  impl->expr = std::move(expr);
  impl->text = std::move(text);
  return impl;
}

// Labels of x, then those of y that x lacks.
Labels joined(const Labels& x, const Labels& y) {
  if (x == y) return x;
  std::vector<std::string> names = x.names();
  for (const std::string& name : y.names()) {
    if (!x.find(name)) names.push_back(name);
  }
  return Labels(std::move(names));
}

// The names of x that y lacks, separated by commas.
std::string lacking(const Labels& x, const Labels& y) {
  std::string names;
  for (const std::string& name : x.names()) {
    if (!y.find(name)) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

void refuse_other_labels(const Labels& x, const Labels& y) {
  const std::string left = lacking(x, y), right = lacking(y, x);
  if (left.empty() && right.empty()) return;
  throw Error(
      "[intersection] the languages have different labels: " +
      (left.empty() ? "" : "the right one does not know " + left) + (left.empty() || right.empty() ? "" : ", ") +
      (right.empty() ? "" : "the left one does not know " + right) +
      ". Sequences with these would all be lost. Give both patterns the same labels, or use with_labels(), which "
      "adds labels and no sequences");
}

ExprPtr expr_over(const Language& language, const Labels& labels) {
  if (language.labels() == labels) return language.impl().expr;
  return relabelled(language.impl().expr, labels.ids(language.labels().names()));
}

std::string with_ending(std::size_t n, const char* word) {
  return std::to_string(n) + " " + word + (n == 1 ? "" : "s");
}

}  // namespace

Budget Language::Impl::budget(const Limits& limits) const {
  Budget result = budget_of(limits);
  *result.held += bytes;
  if (result.deadline != Budget::Clock::time_point::max())
    result.deadline -= std::chrono::duration_cast<Budget::Clock::duration>(std::chrono::duration<double>(seconds));
  return result;
}

const Automaton& Language::Impl::built(const Budget& budget) const {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!automaton) automaton = std::make_unique<const Automaton>(build(*expr, budget));
  return *automaton;
}

const Unambiguous& Language::Impl::cheapest(const Budget& budget) const {
  const std::lock_guard<std::mutex> lock(mutex);
  try {
    if (!unambiguous) unambiguous = std::make_unique<const Unambiguous>(cheapest_unambiguous(*expr, budget));
  } catch (const EmptyLanguage&) {
    throw Error("[compile] " + why_empty(budget));
  }
  return *unambiguous;
}

std::string Language::Impl::why_empty(const Budget& budget) const {
  return "the language is empty: no label sequence is legal" + describe_clash(conjuncts, budget);
}

Language::Language() : Language(make_impl(Labels(), empty_sequence())) {}
Language::Language(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Language Language::parse(std::string_view text, const std::optional<Labels>& labels, const std::string& origin,
                         const Limits& limits) {
  const auto start = Budget::Clock::now();
  const Budget budget = budget_of(limits);
  Meter meter(budget, "parse");
  Expanded expanded = expand(parse_module(text, origin, meter), labels, budget);
  auto impl = make_impl(std::move(expanded.labels), std::move(expanded.expr), std::string(text));
  impl->conjuncts = std::move(expanded.conjuncts);
  impl->nested = std::move(expanded.nested);
  impl->bytes = expanded.bytes;
  impl->seconds = std::chrono::duration<double>(Budget::Clock::now() - start).count();
  return Language(std::move(impl));
}

Language Language::load(const std::string& path, const std::optional<Labels>& labels, const std::string& symbols,
                        const Limits& limits) {
  const std::string bytes = read_file(path);
  const auto over_labels = [&](const Language& language) { return labels ? language.with_labels(*labels) : language; };
  if (looks_like_safetensors(bytes)) {
    return over_labels(from_constraint(Constraint::load(path)));
  }
  const std::string ending = std::filesystem::path(path).extension().string();
  const bool is_text = ending == ".att";
  if (!looks_like_fst(bytes) && !is_text && ending != ".fst") return parse(bytes, labels, path, limits);
  const LabelledAutomaton file = is_text ? read_att(path, symbols, limits) : read_fst(path, symbols, limits);
  return over_labels(from_automaton(file.automaton, file.labels));
}

Language Language::from_automaton(Automaton automaton, const Labels& labels, const std::string& text) {
  normalize(automaton, labels.size());
  return Language(
      make_impl(labels, automaton_expr(std::make_shared<const Automaton>(without_useless_states(automaton))), text));
}

Language Language::from_constraint(const Constraint& constraint) {
  const auto expr_of = [](const Automaton& automaton) {
    return automaton_expr(std::make_shared<const Automaton>(automaton));
  };
  if (constraint.rules() == 0) return from_automaton(constraint.automaton(), constraint.labels());
  const Constraint base = constraint.base();
  std::vector<ExprPtr> parts = {expr_of(base.automaton())};
  std::vector<Conjunct> conjuncts = {{parts[0], "the base"}};
  for (const Rule& rule : constraint.memory_list()) {
    std::string text;
    for (const std::string& one : rule.texts) text += (text.empty() ? "" : " & ") + one;
    parts.push_back(expr_of(rule.automaton));
    conjuncts.push_back({parts.back(), text});
  }
  auto impl = make_impl(constraint.labels(), intersect(parts));
  impl->conjuncts = std::move(conjuncts);
  return Language(std::move(impl));
}

Language Language::everything(const Labels& labels) {
  return Language(make_impl(labels, all_sequences(labels.size())));
}
Language Language::nothing(const Labels& labels) { return Language(make_impl(labels, regccrf::nothing())); }

Language Language::sequence(std::span<const std::string> names, const Labels& labels) {
  std::vector<ExprPtr> parts;
  for (Label a : labels.ids(names)) parts.push_back(one_of({a}));
  return Language(make_impl(labels, concat(std::move(parts))));
}

const Labels& Language::labels() const { return impl_->labels; }
const std::string& Language::text() const { return impl_->text; }

Language Language::with_labels(const Labels& labels) const {
  return Language(make_impl(labels, expr_over(*this, labels), impl_->text));
}

Language operator|(const Language& x, const Language& y) {
  const Labels labels = joined(x.labels(), y.labels());
  return Language(make_impl(labels, unite({expr_over(x, labels), expr_over(y, labels)})));
}
Language operator&(const Language& x, const Language& y) {
  refuse_other_labels(x.labels(), y.labels());
  const Labels labels = joined(x.labels(), y.labels());
  return Language(make_impl(labels, intersect(std::vector<ExprPtr>{expr_over(x, labels), expr_over(y, labels)})));
}
Language operator-(const Language& x, const Language& y) {
  const Labels labels = joined(x.labels(), y.labels());
  return Language(make_impl(labels, minus(expr_over(x, labels), expr_over(y, labels))));
}
Language operator+(const Language& x, const Language& y) {
  const Labels labels = joined(x.labels(), y.labels());
  return Language(make_impl(labels, concat({expr_over(x, labels), expr_over(y, labels)})));
}
Language Language::operator!() const { return Language(make_impl(labels(), complement(impl_->expr, labels().size()))); }
Language Language::star() const { return Language(make_impl(labels(), regccrf::star(impl_->expr))); }
Language Language::reverse() const { return Language(make_impl(labels(), reversed(impl_->expr))); }

Language Language::repeat(std::uint32_t least, std::optional<std::uint32_t> most) const {
  if (most && *most < least) {
    throw Error("[repeat] the repetition {" + std::to_string(least) + "," + std::to_string(*most) +
                "} is impossible: the smaller bound comes first");
  }
  return Language(make_impl(labels(), regccrf::repeat(impl_->expr, least, most.value_or(Expr::kUnbounded))));
}

const Automaton& Language::automaton(const Limits& limits) const { return impl_->built(impl_->budget(limits)); }

Membership Language::accepts(std::span<const Label> sequence, const Limits& limits) const {
  if (const Constraint* constraint = impl_->with_rules(limits)) return constraint->accepts(sequence);
  return Tracer(automaton(limits)).trace(sequence.data(), sequence.size());
}
Membership Language::accepts(std::span<const std::string> sequence, const Limits& limits) const {
  return accepts(labels().ids(sequence), limits);
}

bool Language::empty(const Limits& limits) const { return accepts_nothing(automaton(limits)); }

bool Language::equals(const Language& other, const Limits& limits) const {
  const Labels labels = joined(this->labels(), other.labels());
  return equivalent(with_labels(labels).automaton(limits), other.with_labels(labels).automaton(limits),
                    impl_->budget(limits));
}

bool Language::includes(const Language& other, const Limits& limits) const { return (other - *this).empty(limits); }

std::optional<std::vector<Label>> Language::shortest(const Limits& limits) const {
  return shortest_sequence(automaton(limits));
}

std::string Language::count(std::size_t length, const Limits& limits) const {
  impl_->refuse_rules("count", limits);
  const Budget budget = impl_->budget(limits);
  if (accepts_nothing(impl_->built(budget))) return "0";
  return count_sequences(impl_->cheapest(budget).automaton, length, budget);
}

std::vector<std::vector<Label>> Language::random(std::size_t length, std::size_t many, std::uint64_t seed,
                                                 const Limits& limits) const {
  impl_->refuse_rules("random", limits);
  const Budget budget = impl_->budget(limits);
  const std::optional<std::vector<Label>> shortest_one = shortest(limits);
  if (!shortest_one) throw Error("[random] " + impl_->why_empty(budget));
  auto sequences = random_sequences(impl_->cheapest(budget).automaton, length, many, seed, budget);
  if (sequences.empty() && many > 0) {
    throw Error("[random] the language has no sequence of length " + std::to_string(length) + " (its shortest has " +
                with_ending(shortest_one->size(), "label") + ")");
  }
  return sequences;
}

std::vector<std::vector<Label>> Language::enumerate(std::size_t most, const Limits& limits) const {
  const Automaton& a = automaton(limits);
  const Budget budget = impl_->budget(limits);
  std::vector<std::vector<Label>> result;
  if (accepts_nothing(a)) return result;
  for (std::size_t length = 0; result.size() < most; ++length) {
    for (auto& sequence : list_sequences(a, length, most - result.size(), budget))
      result.push_back(std::move(sequence));
    if (!has_longer(a, length)) break;
  }
  return result;
}

std::vector<std::vector<Label>> Language::enumerate_length(std::size_t length, std::size_t most,
                                                           const Limits& limits) const {
  return list_sequences(automaton(limits), length, most, impl_->budget(limits));
}

bool is_unambiguous(const Automaton& automaton, const Limits& limits) {
  const std::int64_t most_pairs = limits.states * 100;
  const std::optional<bool> answer = test_unambiguous(without_useless_states(automaton), most_pairs, budget_of(limits));
  if (!answer) {
    throw LimitError("[is_unambiguous] needs more than " + std::to_string(most_pairs) +
                     " pairs of states; raise Limits::states");
  }
  return *answer;
}

}  // namespace regccrf
