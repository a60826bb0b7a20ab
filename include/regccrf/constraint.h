// Constraint: a language compiled for inference (language.h: compile). Immutable, unambiguous, trimmed, laid out for
// the kernels; cheap to copy and safe to share between threads. It loads from a file without the automata engine.
//
// A conjunction of many rules may be too large to be multiplied out. Its constraint then has two parts: a base, which
// is an automaton, and rules, small automata that are kept beside it. A sequence is legal where the base and every rule
// accept it. Decoding is exact all the same (docs/rules.md).
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

struct Topology;   // src/constraint/topology.h: the view that kernels take
class RuleTables;  // src/constraint/rule.h: the rules as inference reads them
class Deferred;

// A rule that is kept beside the base. Several rules may share one: "at most one A" and "B only after A" both need to
// know whether there was an A.
struct Rule {
  Automaton automaton;             // deterministic and trimmed: a label without an arc breaks the rule
  std::vector<std::string> texts;  // how the rules are written, for messages
};

class Constraint {
 public:
  // The one-state language of all sequences: an ordinary CRF.
  static Constraint unconstrained(const Labels& labels);
  // Takes an automaton that is already unambiguous. Its states are renumbered and otherwise stay. Error if it is
  // ambiguous, accepts nothing, or has states on no accepting path; LimitError if it is too large to tell.
  static Constraint from_automaton(Automaton automaton, const Labels& labels, std::string method = "given",
                                   std::string text = "");

  // As from_automaton, for an automaton that is known to be unambiguous and trimmed. That is not tested.
  static Constraint from_unambiguous(Automaton automaton, const Labels& labels, std::string method = "given",
                                     std::string text = "");
  // The sequences of `base`, which keeps no rules, that obey every rule. Error for a rule that is not deterministic.
  static Constraint with_rules(const Constraint& base, std::vector<Rule> rules);

  const Labels& labels() const;
  const Automaton& automaton() const;  // Error where rules are kept: there is no single automaton then
  const Size& size() const;            // of the base
  bool deterministic() const;
  const std::string& method() const;  // how it was made unambiguous
  const std::string& text() const;    // the pattern or .lang text that it was compiled from, where known

  int rules() const;        // how many rules are kept; 0: everything is multiplied out
  int memories() const;     // how many automata they share
  Constraint base() const;  // this constraint without its rules
  std::span<const Rule> memory_list() const;

  // Where rules are kept, `position` is the first at which the base alone, or one rule alone, cannot be obeyed any
  // more, and `possible` what all of them allow there.
  Membership accepts(std::span<const Label> sequence) const;

  void save(const std::string& path) const;         // whole or not at all
  static Constraint load(const std::string& path);  // Error for a file that is damaged, not ours or of a newer version
  std::string to_bytes() const;                     // what save() writes
  static Constraint from_bytes(std::string_view bytes);

  const Topology& topology() const;  // lives as long as this constraint or a copy of it; Error where rules are kept
  const RuleTables& rule_tables() const;  // likewise; Error where there are none
  const Deferred& products() const;       // what inference/rules keeps here: the base times some of the rules

 private:
  struct Impl;
  struct RulesImpl;
  explicit Constraint(std::shared_ptr<const Impl> impl, std::shared_ptr<const RulesImpl> rules = nullptr);
  std::shared_ptr<const Impl> impl_;        // the base
  std::shared_ptr<const RulesImpl> rules_;  // null: none
};

}  // namespace regccrf
