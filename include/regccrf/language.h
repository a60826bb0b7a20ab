// Language: a set of label sequences, described by a pattern, a .lang file, an automaton, or other languages. A value:
// operations give new languages, and an automaton is built only when one is needed. Safe to share between threads.
//
//   Language spans = Language::parse("(O | B-PER I-PER*)*");
//   Language two = spans & Language::parse("exactly(2, B-PER)", spans.labels());
//   std::vector<std::string> sequence = {"B-PER", "O"};
//   bool legal = two.accepts(sequence).accepted;  // false: it has one B-PER
//
// The pattern syntax is in docs/language.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regccrf/automaton.h"
#include "regccrf/constraint.h"
#include "regccrf/error.h"
#include "regccrf/labels.h"

namespace regccrf {

// Limits of every construction. If one is exceeded, a LimitError names the operation, the limit and how to raise it.
struct Limits {
  std::int64_t states = 200'000;   // of any automaton under construction
  std::int64_t arcs = 10'000'000;  // likewise
  double seconds = 60;             // of one call, including reading the text
  std::int64_t memory = 1'000;     // megabytes (10^6 bytes) of one call at a time
  // Multiplications of a time step. If a conjunction takes more, its rules are kept beside a base (Rules).
  std::int64_t products = 1'000'000;
};

// What compile() does with the rules of a conjunction (constraint.h).
enum class Rules {
  automatic,  // one automaton if it stays within Limits::products; otherwise rules are kept
  all,        // every rule that would make the automaton larger is kept
  none,       // one automaton; LimitError if it exceeds the other limits
};

class Language {
 public:
  // The one-sequence language { () } over no labels.
  Language();

  // `text` is a pattern or the contents of a .lang file. Without `labels`, the alphabet is what the text declares with
  // `labels = …`, or else the labels that it mentions. `origin` names the text in errors; includes are read relative
  // to it.
  static Language parse(std::string_view text, const std::optional<Labels>& labels = {},
                        const std::string& origin = "pattern", const Limits& limits = {});
  // A .lang file, an OpenFst binary acceptor or a compiled constraint, which are recognised by their content, or AT&T
  // text, which is recognised by its name (*.att). `symbols` is an OpenFst symbol table for automata that have none.
  static Language load(const std::string& path, const std::optional<Labels>& labels = {},
                       const std::string& symbols = "", const Limits& limits = {});
  static Language from_automaton(Automaton automaton, const Labels& labels, const std::string& text = "");
  static Language from_constraint(const Constraint& constraint);  // what it accepts; kept rules are operands
  static Language everything(const Labels& labels);               // all sequences
  static Language nothing(const Labels& labels);                  // none
  static Language sequence(std::span<const std::string> names, const Labels& labels);

  const Labels& labels() const;
  const std::string& text() const;                   // what it was parsed from, empty otherwise
  Language with_labels(const Labels& labels) const;  // the same sequences over more labels, matched by name

  // If the sides have different labels, the result has the labels of both, matched by name. Only `&` is an Error then:
  // a label that one side lacks is in none of its sequences.
  friend Language operator|(const Language& x, const Language& y);
  friend Language operator&(const Language& x, const Language& y);
  friend Language operator-(const Language& x, const Language& y);
  friend Language operator+(const Language& x, const Language& y);  // concatenation
  Language operator!() const;                                       // within all sequences over labels()
  Language star() const;
  Language repeat(std::uint32_t least, std::optional<std::uint32_t> most) const;
  Language reverse() const;

  Membership accepts(std::span<const Label> sequence, const Limits& limits = {}) const;
  Membership accepts(std::span<const std::string> sequence, const Limits& limits = {}) const;

  bool empty(const Limits& limits = {}) const;
  bool equals(const Language& other, const Limits& limits = {}) const;
  bool includes(const Language& other, const Limits& limits = {}) const;  // every sequence of other is in this one
  std::optional<std::vector<Label>> shortest(const Limits& limits = {}) const;

  std::string count(std::size_t length, const Limits& limits = {}) const;  // exact, in decimal
  // `many` sequences of this length, each equally likely. Error if there is none.
  std::vector<std::vector<Label>> random(std::size_t length, std::size_t many, std::uint64_t seed,
                                         const Limits& limits = {}) const;
  // The first `most` sequences, shorter before longer, then by label ids.
  std::vector<std::vector<Label>> enumerate(std::size_t most, const Limits& limits = {}) const;
  // Those of one length, by label ids.
  std::vector<std::vector<Label>> enumerate_length(std::size_t length, std::size_t most,
                                                   const Limits& limits = {}) const;

  // An automaton for it: trimmed, not necessarily unambiguous.
  const Automaton& automaton(const Limits& limits = {}) const;

  struct Impl;
  const Impl& impl() const { return *impl_; }  // internal

 private:
  explicit Language(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// Every accepted sequence has exactly one accepting path.
bool is_unambiguous(const Automaton& automaton, const Limits& limits = {});

// The cheapest of several unambiguous automata, within `limits`; or a base and rules, as `rules` says. Error for an
// empty language.
Constraint compile(const Language& language, const Limits& limits = {}, Rules rules = Rules::automatic);

}  // namespace regccrf
