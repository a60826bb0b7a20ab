// Random conjunctions of the rules that people write, compiled both ways: with the rules kept beside a base, and
// multiplied out. What is asked of the first is compared with the second, or with the enumeration of its sequences.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "regccrf/language.h"
#include "tests/oracle/random.h"

namespace regccrf {

struct BothWays {
  std::string text;
  Constraint kept, multiplied;
};

// Labels are A, B, C …
inline Labels first_letters(int K) {
  std::vector<std::string> names;
  for (int a = 0; a < K; ++a) names.push_back(std::string(1, static_cast<char>('A' + a)));
  return Labels(names);
}

inline std::string random_rule(oracle::Random& random, int K) {
  const auto label = [&] { return std::string(1, static_cast<char>('A' + random.below(K))); };
  const std::string x = label(), y = label(), n = std::to_string(random.between(1, 2));
  switch (random.below(13)) {
    case 0:
      return "at_most(1, " + x + ")";
    case 1:
      return "at_most(2, " + x + ")";
    case 2:
      return "once_contiguous(" + x + ")";
    case 3:
      return "before(" + x + ", " + y + ")";
    case 4:
      return "requires(" + x + ", " + y + ")";
    case 5:
      return "exactly(" + n + ", " + x + ")";
    case 6:
      return "at_least(" + n + ", " + x + ")";
    case 7:
      return "ordered(" + x + ", " + y + ")";
    case 8:
      return "at_most(1, [" + x + " " + y + "])";
    case 9:  // quantifiers, nested conjunctions, definitions and what is no built-in
      return "(all x in {" + x + " " + y + "}: at_most(" + n + ", {x}))";
    case 10:
      return "(once_contiguous(" + x + ") & (at_most(2, " + y + ") & requires(" + y + ", " + x + ")))";
    case 11:
      return "rare(" + x + ")";
    default:
      return "!(.* " + x + " .* " + y + " .*)";
  }
}

// A .lang file, so that a rule may be a template.
inline std::string random_conjunction(oracle::Random& random, int K) {
  const char* bases[] = {".*", "(A | B)* .*", "(A | B A*)* .?", "!(.* A B .*)", "(. .)*"};
  std::string text = "rare(x) = at_most(1, x) & (at_most(0, x) | [^{x}]* x [^{x}]*)\nlanguage = ";
  text += bases[random.below(K > 1 ? 5 : 1)];
  for (int i = random.between(1, 5); i > 0; --i) text += " & " + random_rule(random, K);
  return text;
}

// Nothing where the language is empty, which both ways must say.
inline std::optional<BothWays> random_language(oracle::Random& random, int K) {
  const std::string text = random_conjunction(random, K);
  const Language language = Language::parse(text, first_letters(K));
  std::optional<Constraint> multiplied;
  try {
    multiplied = compile(language, {}, Rules::none);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("empty"), std::string::npos) << error.what();
    EXPECT_THROW(compile(language, {}, Rules::all), Error) << text;
    return std::nullopt;
  }
  return BothWays{text, compile(language, {}, Rules::all), *multiplied};
}

// One that keeps rules.
inline BothWays random_rules(oracle::Random& random, int K) {
  for (;;) {
    if (const std::optional<BothWays> both = random_language(random, K); both && both->kept.rules() > 0) return *both;
  }
}

}  // namespace regccrf
