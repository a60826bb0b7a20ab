// What a user sees after a slip: the place, what was expected, and what to do.
#include <gtest/gtest.h>

#include <string>

#include "regccrf/constraint.h"
#include "regccrf/language.h"

namespace regccrf {
namespace {

std::string error_of(const std::string& text, const std::optional<Labels>& labels = {}) {
  try {
    Language::parse(text, labels);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

TEST(SyntaxError, ShowsTheLineWithACaret) {
  EXPECT_EQ(error_of("(O | | B)"),
            "pattern:1:6: expected a label, ( or [, found |\n"
            "  (O | | B)\n"
            "       ^\n"
            "  an empty alternative is written ()");
}

TEST(SyntaxError, TheCaretCountsCharactersNotBytes) {
  EXPECT_EQ(error_of("Größe )"), "pattern:1:7: there is no ( for this )\n  Größe )\n        ^");
}

TEST(SyntaxError, ALongLineIsCutAroundTheCaret) {
  std::string longest = "A";
  for (int i = 0; i < 1000; ++i) longest += " | A";
  const std::string message = error_of(longest + " | )");
  EXPECT_LT(message.size(), 400u);
  EXPECT_SAYS(message, "^");
}

TEST(SyntaxError, UnknownLabelsSuggestTheNearest) {
  const Labels labels({"O", "B-ARG0", "I-ARG0"});
  EXPECT_SAYS(error_of("(O | B-AGR0)*", labels), "unknown label B-AGR0: did you mean B-ARG0?");
  EXPECT_SAYS(error_of("(O | B-.)*", labels), ". is any whole label");
}

TEST(SyntaxError, AStarIsNoWildcard) {
  const Labels labels({"O", "B-ARG0", "B-ARG1"});
  EXPECT_SAYS(error_of("O B-*", labels), "* repeats the label before it");
  EXPECT_EQ(error_of("O B-ARG0*", labels), "no error");
}

TEST(SyntaxError, LabelsAreWholeWords) {
  const Labels labels({"B", "I", "O"});
  EXPECT_SAYS(error_of("(O|BI*)*", labels), "labels are whole words, separated by spaces: B I");
}

TEST(SyntaxError, UnknownNamesSuggestTheNearest) {
  EXPECT_SAYS(error_of("at_mots(1, A)"), "did you mean at_most?");
  EXPECT_SAYS(error_of("BIO({PER})"), "did you mean bio?");
  EXPECT_SAYS(error_of("^(A | B)*$"), "^ and $ are not needed");
  EXPECT_SAYS(error_of("core = {A B}\nlanguage = any r in croe: {r}"),
              "there is no set called croe: did you mean core?");
  EXPECT_SAYS(error_of("language = any role in {A B}: {rol}"), "did you mean {role}?");
}

TEST(SyntaxError, FewLabelsAreListed) {
  const Labels labels({"O B"});  // a slip: one label, not two
  EXPECT_SAYS(error_of("O*", labels), "the labels are: \"O B\"");
}

TEST(SyntaxError, ABoundNameIsWrittenInBraces) {
  EXPECT_SAYS(error_of("span(r) = B-r I-r*\nlanguage = span(A)"), "as in B-{r}");
  EXPECT_SAYS(error_of("any r in {A B}: B-r"), "r is not used, and this is the label B-r");
  EXPECT_EQ(error_of("any r in {A B}: C"), "no error");
  EXPECT_EQ(error_of("span(r) = B-{r} I-{r}*\nlanguage = any x in {A B}: span(x)"), "no error");
}

TEST(SyntaxError, QuantifiersSayHowTheyAreWritten) {
  EXPECT_SAYS(error_of("any r in {A B} B-{r}"), "expected : after the set of a quantifier");
  EXPECT_SAYS(error_of("any r: B-{r}"), "a quantifier is written: any r in {A B}: B-{r}");
}

TEST(SyntaxError, WhatOtherNotationsSeparateBy) {
  EXPECT_SAYS(error_of("A, B"), "labels are separated by spaces");
  EXPECT_SAYS(error_of("language = A;\nx = B"), "a definition ends where the next one starts");
  EXPECT_SAYS(error_of("at_most (1, A)"), "a call has no space before its (");
  EXPECT_SAYS(error_of("include spans.lang\nlanguage = A"), "by its path in quotes");
  EXPECT_SAYS(error_of("# nothing\n"), "there is no pattern here");
}

TEST(SyntaxError, UnclosedBracketsArePointedAt) {
  EXPECT_SAYS(error_of("O (A | B"), "1:3: this ( is never closed");
  EXPECT_SAYS(error_of("[A B"), "this [ is never closed");
  EXPECT_SAYS(error_of("x = {A B\nlanguage = A"), "this { is never closed");
  EXPECT_SAYS(error_of("bio({A B)"), "a } is missing before it");
  EXPECT_SAYS(error_of("\"A"), "never closed");
}

TEST(SyntaxError, RepetitionsAreChecked) {
  EXPECT_SAYS(error_of("* A"), "nothing to repeat before *");
  EXPECT_SAYS(error_of("A{3,2}"), "{3,2} is impossible");
  EXPECT_SAYS(error_of("A {2}"), "follows its item directly");
  for (const char* text : {"s = {A{3} B}\nlanguage = A", "[A{3} B]", "!{3}", "bio({A {2}})"})
    EXPECT_SAYS(error_of(text), "nothing to repeat");
  EXPECT_SAYS(error_of("A{9999999}"), "at most 1000000");
}

TEST(SyntaxError, SetsAndTemplatesInTheWrongPlace) {
  EXPECT_SAYS(error_of("s = {A B}\nlanguage = s*"), "s is a set, but a pattern is needed");
  EXPECT_SAYS(error_of("f(x) = x x\nlanguage = f"), "f is a template");
  EXPECT_SAYS(error_of("f(x) = x x\nlanguage = f(A, B)"), "f takes 1 argument, and 2 are given");
  EXPECT_SAYS(error_of("p = A\nlanguage = any r in p: {r}"), "p is a pattern, but a set is needed");
  EXPECT_SAYS(error_of("s = {A, B}\nlanguage = A"), "separated by spaces");
}

TEST(SyntaxError, DefinitionsAreChecked) {
  EXPECT_SAYS(error_of(" x = A"), "starts in column 1");
  EXPECT_SAYS(error_of("x = A\nx = B\nlanguage = x"), "x is defined twice");
  EXPECT_SAYS(error_of("x = A"), "no definition `language = …`");
  EXPECT_SAYS(error_of("x = y\ny = x\nlanguage = x"), "is defined by itself");
  EXPECT_SAYS(error_of("f(x) = f(x)\nlanguage = f(A)"), "is defined by itself");
  EXPECT_SAYS(error_of("at_most(x) = x\nlanguage = A"), "at_most is built in");
  EXPECT_SAYS(error_of("labels = A\nlanguage = A"), "labels must be a set");
}

TEST(SyntaxError, SetsAreBounded) {
  std::string text = "language = any r in s0: {r}\n";
  for (int i = 0; i < 100'000; ++i) text += "s" + std::to_string(i) + " = {{s" + std::to_string(i + 1) + "}}\n";
  EXPECT_SAYS(error_of(text + "s100000 = {A}\n"), "sets are nested too deeply");
  std::string product = "a = {x y}\nlanguage = any r in {";
  for (int i = 0; i < 24; ++i) product += "{a}";
  EXPECT_SAYS(error_of(product + "}: {r}"), "too large");
  EXPECT_SAYS(error_of("s = s\nt = t u\nu = {A}\nlanguage = any r in t: {r}"), "t is a pattern, but a set is needed");
}

TEST(SyntaxError, BuiltInsCheckTheirArguments) {
  EXPECT_SAYS(error_of("at_most(A, B)"), "a number from 0 to 10000 is needed");
  EXPECT_SAYS(error_of("at_most(1)"), "at_most takes 2 arguments, and 1 is given");
  EXPECT_SAYS(error_of("at_most(1, A*)"), "this can be the empty sequence");
  EXPECT_SAYS(error_of("bio(A B)"), "a set is needed");
}

TEST(SyntaxError, BytesThatAreNoText) {
  EXPECT_SAYS(error_of(std::string("A \xff B")), "not valid UTF-8");
  EXPECT_SAYS(error_of(std::string("A \x01 B")), "control character");
  EXPECT_EQ(error_of(std::string("A \0 B", 5)),
            "pattern:1:3: unexpected NUL byte\n  A ? B\n    ^\n  a pattern is text; remove this byte");
  EXPECT_SAYS(error_of("caf\xe9"), "iconv -f latin1 -t utf8");
}

TEST(SyntaxError, NestingIsBounded) {
  const std::string deep = std::string(100'000, '(') + "A" + std::string(100'000, ')');
  EXPECT_SAYS(error_of(deep), "nested more than 500 deep");
  EXPECT_EQ(error_of(std::string(100'000, '!') + "A"), "no error");
  EXPECT_SAYS(error_of("A" + std::string(100'000, '*')), "repetitions of one item");
}

TEST(SyntaxError, DoublingNamesEndInALimitNotInADeadMachine) {
  std::string text = "x0 = A B\n";
  for (int i = 1; i < 60; ++i)
    text += "x" + std::to_string(i) + " = x" + std::to_string(i - 1) + " x" + std::to_string(i - 1) + "\n";
  EXPECT_SAYS(error_of(text + "language = x59"), "parts once it is written out");
}

std::string emptiness(const std::string& text) {
  try {
    compile(Language::parse(text));
  } catch (const Error& error) {
    const std::string message = error.what();
    const std::string begin = "[compile] the language is empty: no label sequence is legal";
    return message.starts_with(begin) ? message.substr(begin.size()) : message;
  }
  return "no error";
}

TEST(EmptyLanguage, NamesTheFewestOperandsThatClash) {
  EXPECT_EQ(emptiness("A+ B & .* & at_least(2, A) & at_most(1, A)"),
            ". No sequence obeys both of\n  at_least(2, A)\n  at_most(1, A)");
  EXPECT_EQ(emptiness("[A B] & [B C] & .* & [A C]"), ". No sequence obeys all of\n  [A B]\n  [B C]\n  [A C]");
  EXPECT_EQ(emptiness(".* & (A & B) C"), ". No sequence obeys\n  (A & B) C");
  EXPECT_EQ(emptiness("at_most(1, A) & [A B C D]* & at_most(1, B) & at_most(1, C) & at_most(1, D) & .{6}"),
            ". No sequence obeys all of\n  at_most(1, A)\n  at_most(1, B)\n  at_most(1, C)\n  at_most(1, D)\n  .{6}");
}

TEST(EmptyLanguage, ShowsAnOperandOnOneLineWithoutItsComments) {
  EXPECT_EQ(emptiness("x = A+\nlanguage = (A | B)+  # any\n  & x B\n  & at_most(0,  # none\n    A)\n"),
            ". No sequence obeys both of\n  x B\n  at_most(0, A)");
}

TEST(EmptyLanguage, SaysNoMoreWhereThereIsNoConjunction) { EXPECT_EQ(emptiness("(A & B) C"), ""); }

}  // namespace
}  // namespace regccrf
