// Constraint: a language compiled for inference (language.h: compile). Immutable, unambiguous and trimmed; cheap to
// copy and safe to share between threads. A saved constraint can be loaded without the automata engine.
//
// A conjunction of many rules may be too large for one automaton. Its constraint then has two parts: a base, which is
// an automaton, and rules, small automata that are kept beside it. A sequence is legal if the base and every rule
// accept it. Decoding is exact in this case, too (docs/rules.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regccrf/automaton.h"
#include "regccrf/error.h"
#include "regccrf/labels.h"

namespace regccrf {

struct Topology;   // internal: src/constraint/topology.h
class RuleTables;  // internal: src/constraint/rule.h
class Deferred;    // internal: src/constraint/product.h

// A rule that is kept beside the base. Several rules may share an automaton: "at most one A" and "B only after A" both
// need to know whether there was an A.
struct Rule {
  Automaton automaton;             // deterministic and trimmed: a label without an arc breaks the rule
  std::vector<std::string> texts;  // how the rules are written, for messages
};

class Constraint {
 public:
  // The one-state language of all sequences: an ordinary CRF.
  static Constraint unconstrained(const Labels& labels);
  // From an automaton that is already unambiguous. Its states are renumbered, not merged. Error if it is ambiguous,
  // accepts nothing, or has states on no accepting path; LimitError if it is too large for this test.
  static Constraint from_automaton(Automaton automaton, const Labels& labels, std::string method = "given",
                                   std::string text = "");

  // As from_automaton, for an automaton that is known to be unambiguous and trimmed. That is not tested.
  static Constraint from_unambiguous(Automaton automaton, const Labels& labels, std::string method = "given",
                                     std::string text = "");
  // The sequences of `base`, which keeps no rules, that obey every rule. Error for a rule that is not deterministic.
  static Constraint with_rules(const Constraint& base, std::vector<Rule> rules);

  const Labels& labels() const;
  const Automaton& automaton() const;  // Error if rules are kept: there is no single automaton then
  const Size& size() const;            // of the base
  bool deterministic() const;
  const std::string& method() const;  // how it was made unambiguous
  const std::string& text() const;    // the pattern or .lang text that it was compiled from, if known

  int rules() const;        // how many rules are kept; 0: one automaton has everything
  int memories() const;     // how many automata the kept rules share
  Constraint base() const;  // this constraint without its rules
  std::span<const Rule> memory_list() const;

  // If rules are kept, `position` is the first at which the base alone, or one rule alone, cannot be obeyed any more,
  // and `possible` has the labels that all of them allow there.
  Membership accepts(std::span<const Label> sequence) const;

  void save(const std::string& path) const;  // an incomplete file is never left
  // Error if the file is damaged, is not a constraint, or is of a newer version.
  static Constraint load(const std::string& path);
  std::string to_bytes() const;  // what save() writes
  static Constraint from_bytes(std::string_view bytes);

  const Topology& topology() const;       // internal; Error if rules are kept
  const RuleTables& rule_tables() const;  // internal; Error if no rules are kept
  const Deferred& products() const;       // internal

 private:
  struct Impl;
  struct RulesImpl;
  explicit Constraint(std::shared_ptr<const Impl> impl, std::shared_ptr<const RulesImpl> rules = nullptr);
  std::shared_ptr<const Impl> impl_;        // the base
  std::shared_ptr<const RulesImpl> rules_;  // null: none
};

}  // namespace regccrf
