// A state of the marked automaton is a state and the label by which it was entered (see pairs.h). So a sequence has as
// many paths as before: unambiguous stays unambiguous, and nothing has to be trimmed.
#include "constraint/pairs.h"

#include <algorithm>
#include <map>
#include <utility>

#include "automaton/automaton.h"

namespace regccrf {
namespace {

constexpr std::int64_t kMostProducts = 50'000'000;  // of a step: 400 MB for an array of them

// [Q] the distinct labels by which each state is entered, ascending.
std::vector<std::vector<Label>> labels_into(const Automaton& automaton) {
  std::vector<std::vector<Label>> into(automaton.accepting.size());
  for (const Arc& arc : automaton.arcs) into[static_cast<std::size_t>(arc.to)].push_back(arc.label);
  for (std::vector<Label>& labels : into) {
    std::sort(labels.begin(), labels.end());
    labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  }
  return into;
}

// An upper bound: a label into a state may have come after every label into every state before it.
void check_size(const Constraint& constraint) {
  const double K = constraint.labels().size(), products = static_cast<double>(constraint.size().products) * (K + 1);
  if (products <= static_cast<double>(kMostProducts)) return;
  throw LimitError("[pairs] weights for pairs of labels that depend on the input (B templates with %x) need up to " +
                   std::to_string(static_cast<std::int64_t>(products)) + " products a position for these " +
                   std::to_string(constraint.labels().size()) + " labels, and " + std::to_string(kMostProducts) +
                   " is the limit; write a plain B, and U templates for what the input says");
}

class Marking {
 public:
  explicit Marking(const Automaton& automaton, int K)
      : automaton_(automaton), marked_{K}, begin_(arcs_by_state(automaton)), into_(labels_into(automaton)) {}

  Automaton run() {
    result_.start = find(automaton_.start, kNone);
    leave(automaton_.start, kNone);
    for (State q = 0; q < automaton_.states(); ++q) {
      for (const Label a : into_[static_cast<std::size_t>(q)]) leave(q, a);
    }
    std::sort(result_.arcs.begin(), result_.arcs.end());
    return std::move(result_);
  }

 private:
  static constexpr Label kNone = -1;  // no label came before

  void leave(State q, Label a) {
    const State from = find(q, a);
    for (std::int64_t i = begin_[q]; i < begin_[q + 1]; ++i) {
      const Arc& arc = automaton_.arcs[static_cast<std::size_t>(i)];
      const Label marked = a == kNone ? marked_.first(arc.label) : marked_.pair(a, arc.label);
      result_.arcs.push_back({from, marked, find(arc.to, arc.label)});
    }
  }

  State find(State q, Label a) {
    const auto [at, is_new] = number_.try_emplace({q, a}, result_.states());
    if (is_new) result_.accepting.push_back(automaton_.accepting[static_cast<std::size_t>(q)]);
    return at->second;
  }

  const Automaton& automaton_;
  MarkedLabels marked_;
  std::vector<std::int64_t> begin_;
  std::vector<std::vector<Label>> into_;
  std::map<std::pair<State, Label>, State> number_;
  Automaton result_;
};

Rule ignoring_marks(const Rule& rule, int K) {
  const MarkedLabels marked{K};
  Rule result{{rule.automaton.start, rule.automaton.accepting, {}}, rule.texts};
  for (const Arc& arc : rule.automaton.arcs) {
    result.automaton.arcs.push_back({arc.from, marked.first(arc.label), arc.to});
    for (Label a = 0; a < K; ++a) result.automaton.arcs.push_back({arc.from, marked.pair(a, arc.label), arc.to});
  }
  return result;
}

// Numbers: users never see them.
Labels names_of(const MarkedLabels& marked) {
  std::vector<std::string> names;
  for (int i = 0; i < marked.size(); ++i) names.push_back(std::to_string(i));
  return Labels(std::move(names));
}

}  // namespace

Constraint over_pairs(const Constraint& constraint) {
  check_size(constraint);
  const int K = constraint.labels().size();
  const Constraint base = constraint.base();
  const Constraint marked = Constraint::from_unambiguous(Marking(base.automaton(), K).run(), names_of({K}),
                                                         constraint.method(), constraint.text());
  std::vector<Rule> rules;
  for (const Rule& rule : constraint.memory_list()) rules.push_back(ignoring_marks(rule, K));
  return Constraint::with_rules(marked, std::move(rules));
}

}  // namespace regccrf
