// Wording (see errors.h).
#include "inference/errors.h"

#include <vector>

#include "automaton/lengths.h"
#include "constraint/rule.h"

namespace regccrf {

namespace {

std::string names(const Labels& labels, const std::vector<Label>& some) {
  std::string text;
  const std::size_t most = 12;
  for (std::size_t i = 0; i < some.size() && i < most; ++i) text += (i ? ", " : "") + labels.name(some[i]);
  if (some.size() > most) text += " and " + std::to_string(some.size() - most) + " more";
  return text.empty() ? "nothing but the end" : text;
}

}  // namespace

std::string at(const char* operation) { return std::string("[").append(operation).append("] "); }

std::string at(const char* operation, std::int64_t sequence) {
  return at(operation) + "sequence " + std::to_string(sequence);
}

void check_size(const char* operation, const char* what, std::size_t given, std::size_t expected, const char* shape) {
  if (given == expected) return;
  throw Error(at(operation) + what + " has " + std::to_string(given) + " entries, expected " +
              std::to_string(expected) + " (" + shape + ")");
}

std::string no_sequence_message(std::int64_t length, const Constraint& constraint, const std::string& otherwise) {
  const std::string start = "has length " + std::to_string(length);
  const Lengths lengths = lengths_around(constraint.base().automaton(), length);
  const std::int64_t least = constraint.memories() > 0 ? constraint.rule_tables().least_length() : 0;
  if (length < least) return start + ", and the rules ask for " + std::to_string(least) + " labels at least";
  if (lengths.has) return start + ", and " + otherwise;
  std::string around = "shortest: " + std::to_string(lengths.shortest);
  if (lengths.below > lengths.shortest) around += ", nearest below: " + std::to_string(lengths.below);
  if (lengths.below >= 0 && lengths.above >= 0) around += ", nearest above: " + std::to_string(lengths.above);
  return start + ", and the language has no sequence of that length (" + around + ")";
}

Error impossible_error(const char* operation, std::int64_t sequence, std::int64_t length,
                       const Constraint& constraint) {
  return Error(at(operation, sequence) + " " +
                   no_sequence_message(length, constraint,
                                       constraint.rules() > 0
                                           ? "no sequence of that length obeys all rules and has a finite score"
                                           : "every sequence of the language of that length has a score of -inf"),
               ErrorKind::impossible, {sequence, {}});
}

Error outside_error(const char* operation, std::int64_t sequence, std::int64_t length, const Constraint& constraint,
                    const Label* gold, const Membership& membership) {
  if (!lengths_around(constraint.base().automaton(), length).has)
    return impossible_error(operation, sequence, length, constraint);
  const auto position = static_cast<std::int64_t>(membership.position);
  const std::string what = position >= length ? "end too early, at position " + std::to_string(length)
                                              : "leave the language at position " + std::to_string(position) +
                                                    " with label " + constraint.labels().name(gold[position]);
  const std::string rule = membership.rule.empty() ? "" : ", where they break the rule " + membership.rule;
  return Error(at(operation, sequence) + ": the correct labels " + what + rule +
                   "; possible there: " + names(constraint.labels(), membership.possible),
               ErrorKind::outside, {sequence, position});
}

Error no_bound_error(const char* operation, std::int64_t sequence) {
  return Error(at(operation, sequence) +
                   ": the gap is above max_gap, and there is no bound that could be used instead; allow a "
                   "larger max_gap or more cells (Options::rules), or state fewer rules",
               ErrorKind::limit, {sequence, {}});
}

Error forbidden_gold_error(const char* operation, std::int64_t sequence) {
  return Error(
      at(operation, sequence) + ": the correct labels have a score of -inf; forbidding them makes the loss infinite",
      ErrorKind::outside, {sequence, {}});
}

}  // namespace regccrf
