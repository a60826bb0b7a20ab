// The compiled constraint: an unambiguous automaton, checked once, and its topology; and the rules beside it.
#include "regccrf/constraint.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "automaton/automaton.h"
#include "base/deferred.h"
#include "base/file.h"
#include "constraint/constraint_file.h"
#include "constraint/rule.h"
#include "constraint/topology.h"

namespace regccrf {

struct Constraint::Impl {
  Impl(Automaton a, const Labels& l, std::string m, std::string t)
      : labels(l),
        automaton(std::move(a)),
        size(measure(automaton)),
        method(std::move(m)),
        text(std::move(t)),
        memory(automaton, labels.size()),
        topology(memory.view()) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Labels labels;
  Automaton automaton;
  Size size;
  std::string method;
  std::string text;
  TopologyMemory memory;
  Topology topology;
};

struct Constraint::RulesImpl {
  RulesImpl(std::vector<Rule> r, int labels) : rules(std::move(r)), tables(rules, labels) {}

  std::vector<Rule> rules;
  RuleTables tables;
  Deferred products;
};

namespace {

void check(const Automaton& automaton) {
  const std::vector<std::uint8_t> useful = useful_states(automaton);
  if (!useful[automaton.start]) throw Error("[constraint] the language is empty: no label sequence is legal");
  if (std::find(useful.begin(), useful.end(), 0) != useful.end()) {
    throw Error("[constraint] the automaton has states on no accepting path; trim it, or compile it from a Language");
  }
  const std::int64_t most_pairs = 50'000'000;
  const std::optional<bool> unambiguous = test_unambiguous(automaton, most_pairs);
  if (!unambiguous)
    throw LimitError("[constraint] the automaton is too large to test for ambiguity (over 50,000,000 pairs of states)");
  if (!*unambiguous)
    throw Error("[constraint] the automaton is ambiguous: some sequence has two paths; compile it from a Language");
  if (automaton.arcs.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw LimitError("[constraint] more than 2^31 - 1 arcs");
}

}  // namespace

Constraint Constraint::from_automaton(Automaton automaton, const Labels& labels, std::string method, std::string text) {
  normalize(automaton, labels.size());
  check(automaton);
  return from_unambiguous(std::move(automaton), labels, std::move(method), std::move(text));
}

Constraint Constraint::from_unambiguous(Automaton automaton, const Labels& labels, std::string method,
                                        std::string text) {
  number_states(automaton);
  return Constraint(std::make_shared<Impl>(std::move(automaton), labels, std::move(method), std::move(text)));
}

Constraint Constraint::with_rules(const Constraint& base, std::vector<Rule> rules) {
  if (base.rules_) throw Error("[constraint] the base keeps rules of its own");
  if (rules.empty()) return base;
  for (Rule& rule : rules) {
    normalize(rule.automaton, base.labels().size());
    const std::vector<std::uint8_t> useful = useful_states(rule.automaton);
    if (std::find(useful.begin(), useful.end(), 0) != useful.end())
      throw Error("[constraint] a rule's automaton has states on no accepting path");
  }
  return Constraint(base.impl_, std::make_shared<RulesImpl>(std::move(rules), base.labels().size()));
}

Constraint Constraint::unconstrained(const Labels& labels) {
  Automaton automaton;
  automaton.accepting = {1};
  for (Label a = 0; a < labels.size(); ++a) automaton.arcs.push_back({0, a, 0});
  return from_automaton(std::move(automaton), labels, "unconstrained");
}

Constraint::Constraint(std::shared_ptr<const Impl> impl, std::shared_ptr<const RulesImpl> rules)
    : impl_(std::move(impl)), rules_(std::move(rules)) {}

namespace {

Error no_single_automaton(int rules) {
  return Error("[constraint] it keeps " + std::to_string(rules) +
               " rules beside its base, but this needs one automaton; compile it with rules \"none\" "
               "(Rules::none, --rules none) where it is small enough to be multiplied out");
}

std::vector<Label> common(const std::vector<Label>& x, const std::vector<Label>& y) {
  std::vector<Label> both;
  std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
  return both;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : " & ") + text;
  return all;
}

}  // namespace

const Labels& Constraint::labels() const { return impl_->labels; }
const Automaton& Constraint::automaton() const {
  if (rules_) throw no_single_automaton(rules());
  return impl_->automaton;
}
const Size& Constraint::size() const { return impl_->size; }
bool Constraint::deterministic() const { return is_deterministic(impl_->automaton); }
const std::string& Constraint::method() const { return impl_->method; }
const std::string& Constraint::text() const { return impl_->text; }
const Topology& Constraint::topology() const {
  if (rules_) throw no_single_automaton(rules());
  return impl_->topology;
}

int Constraint::rules() const {
  std::size_t count = 0;
  for (const Rule& rule : memory_list()) count += rule.texts.size();
  return static_cast<int>(count);
}
int Constraint::memories() const { return static_cast<int>(memory_list().size()); }
Constraint Constraint::base() const { return Constraint(impl_); }
std::span<const Rule> Constraint::memory_list() const {
  return rules_ ? std::span<const Rule>(rules_->rules) : std::span<const Rule>();
}
const RuleTables& Constraint::rule_tables() const {
  if (!rules_) throw Error("[constraint] it keeps no rules: everything is multiplied out");
  return rules_->tables;
}
const Deferred& Constraint::products() const {
  if (!rules_) throw Error("[constraint] it keeps no rules: everything is multiplied out");
  return rules_->products;
}

Membership Constraint::accepts(std::span<const Label> sequence) const {
  Membership first = Tracer(impl_->automaton).trace(sequence.data(), sequence.size());
  for (const Rule& rule : memory_list()) {
    Membership other = Tracer(rule.automaton).trace(sequence.data(), sequence.size());
    if (other.accepted || (!first.accepted && first.position <= other.position)) continue;
    first = std::move(other);
    first.rule = joined(rule.texts);
  }
  if (first.accepted || !rules_) return first;
  first.possible = common(first.possible, Tracer(impl_->automaton).possible_after(sequence.data(), first.position));
  for (const Rule& rule : memory_list())
    first.possible = common(first.possible, Tracer(rule.automaton).possible_after(sequence.data(), first.position));
  return first;
}

void Constraint::save(const std::string& path) const { write_file(path, to_bytes()); }

std::string Constraint::to_bytes() const {
  const std::span<const Rule> rules = memory_list();
  return encode_constraint_file(
      {impl_->automaton, impl_->labels, impl_->method, impl_->text, {rules.begin(), rules.end()}});
}

namespace {

Constraint from_file(ConstraintFile file) {
  const Constraint base =
      Constraint::from_automaton(std::move(file.automaton), file.labels, std::move(file.method), std::move(file.text));
  return Constraint::with_rules(base, std::move(file.rules));
}

}  // namespace

Constraint Constraint::load(const std::string& path) {
  return from_file(decode_constraint_file(read_file(path), path));
}
Constraint Constraint::from_bytes(std::string_view bytes) {
  return from_file(decode_constraint_file(bytes, "constraint bytes"));
}

}  // namespace regccrf
