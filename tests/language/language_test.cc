#include "regccrf/language.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/budget.h"

namespace regccrf {
namespace {

using Words = std::vector<std::string>;

Words words(const std::string& text) {
  std::istringstream in(text);
  Words result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

bool accepts(const Language& language, const std::string& sequence) {
  return language.accepts(words(sequence)).accepted;
}

Language abc(const std::string& pattern) { return Language::parse(pattern, Labels({"A", "B", "C"})); }

// --- patterns -------------------------------------------------------------------------------------------------------

TEST(Language, MayHaveAByteOrderMark) {
  const Language language = Language::parse("\xef\xbb\xbflanguage = A B\n");
  EXPECT_TRUE(language.accepts(std::vector<std::string>{"A", "B"}));
}

TEST(Pattern, BindsRepetitionThenNotThenConcatenationThenAndThenOr) {
  EXPECT_TRUE(abc("A B*").equals(abc("A (B*)")));
  EXPECT_TRUE(abc("!A*").equals(abc("!(A*)")));
  EXPECT_TRUE(abc("!A B").equals(abc("(!A) B")));
  EXPECT_TRUE(abc("A B & . .").equals(abc("(A B) & (. .)")));
  EXPECT_TRUE(abc("A | B & C").equals(abc("A | (B & C)")));
}

TEST(Pattern, RepetitionsMeanWhatTheySay) {
  EXPECT_TRUE(abc("A{2}").equals(abc("A A")));
  EXPECT_TRUE(abc("A{1,3}").equals(abc("A | A A | A A A")));
  EXPECT_TRUE(abc("A{2,}").equals(abc("A A A*")));
  EXPECT_TRUE(abc("A?").equals(abc("A | ()")));
  EXPECT_TRUE(abc("A+").equals(abc("A A*")));
  EXPECT_TRUE(abc("A{0}").equals(abc("()")));
  EXPECT_TRUE(abc("(A B?){2,3}").equals(abc("A B? A B? (A B?)?")));
}

TEST(Pattern, DotAndClassesCountLabelsThatAreNotMentioned) {
  const Language dot = Language::parse(". A", Labels({"A", "B", "C"}));
  EXPECT_TRUE(accepts(dot, "C A"));
  EXPECT_TRUE(abc("[^A]").equals(abc("B | C")));
  EXPECT_TRUE(abc("[A C]").equals(abc("A | C")));
  EXPECT_TRUE(accepts(abc("!A"), "C B"));
}

TEST(Pattern, TheAlphabetIsWhatIsMentionedWhereNothingElseSays) {
  EXPECT_EQ(Language::parse("(O | B I*)*").labels().names(), (Words{"O", "B", "I"}));
  EXPECT_EQ(Language::parse("labels = {X Y Z}\nlanguage = .*").labels().names(), (Words{"X", "Y", "Z"}));
}

TEST(Pattern, QuotedLabelsMayHoldAnything) {
  const Language language = Language::parse(R"("a b" "say \"x\"" "\\")");
  EXPECT_EQ(language.labels().names(), (Words{"a b", "say \"x\"", "\\"}));
}

TEST(Pattern, CommentsAndLineBreaksAreWhiteSpace) { EXPECT_TRUE(abc("A # first\n  B").equals(abc("A B"))); }

TEST(Pattern, DigitsAreLabels) {
  const Language gene = Language::parse("(0 1 2)* & at_most(2, 0)");
  EXPECT_TRUE(accepts(gene, "0 1 2 0 1 2"));
  EXPECT_FALSE(accepts(gene, "0 1 2 0 1 2 0 1 2"));
}

// --- .lang files ----------------------------------------------------------------------------------------------------

TEST(Language, AnIntersectionNeedsTheSameLabels) {
  const Language spans = Language::parse("(O | B I*)*");
  try {
    spans& Language::parse("at_most(1, B)");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the right one does not know O, I"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(accepts(spans & Language::parse("at_most(1, B)", Labels({"I", "O", "B"})), "B O"));
  EXPECT_TRUE(accepts(spans & Language::parse("O*").with_labels(spans.labels()), "O"));
}

TEST(LangFile, SetsTemplatesAndQuantifiers) {
  const Language language = Language::parse(
      "types = {PER LOC}\n"
      "span(t) = B-{t} I-{t}*\n"
      "language = (O | any t in types {ORG}: span(t))*\n"
      "         & all t in types: at_most(1, B-{t})\n");
  EXPECT_TRUE(accepts(language, "B-PER I-PER O B-LOC B-ORG B-ORG"));
  EXPECT_FALSE(accepts(language, "B-PER O B-PER"));
  EXPECT_FALSE(accepts(language, "B-PER I-LOC"));
}

TEST(LangFile, ASetElementMayTakeEachElementOfAnotherSet) {
  const Language language = Language::parse("t = {X Y}\nlabels = {O B-{t} I-{t}}\nlanguage = .*");
  EXPECT_EQ(language.labels().names(), (Words{"O", "B-X", "B-Y", "I-X", "I-Y"}));
  const Language joined = Language::parse("a = {X}\nb = {{a} Y}\nlanguage = any r in b: {r}");
  EXPECT_EQ(joined.labels().names(), (Words{"X", "Y"}));
}

TEST(LangFile, SetsThatStandSideBySideAreOneSet) {
  const Language language =
      Language::parse("roles = core rest\nrest = {Y X}\ncore = {X}\nlanguage = any r in roles: B-{r}");
  EXPECT_EQ(language.labels().names(), (Words{"B-X", "B-Y"}));
}

TEST(LangFile, TemplatesTakePatternsAndSets) {
  EXPECT_TRUE(Language::parse("twice(x) = x x\nlanguage = twice(A | B C)", Labels({"A", "B", "C"}))
                  .equals(abc("(A | B C) (A | B C)")));
  const Language over = Language::parse("one(s) = any r in s: {r}\nlanguage = one({A B}) one({C})");
  EXPECT_TRUE(accepts(over, "A C"));
  EXPECT_FALSE(accepts(over, "C A"));
}

TEST(LangFile, NamesInsideTemplatesAreThoseOfTheTemplate) {
  // r is bound where inner is called, but inner's own r is its parameter
  const Language language = Language::parse("inner(r) = {r}\nlanguage = any r in {A}: inner(B) {r}");
  EXPECT_TRUE(accepts(language, "B A"));
}

TEST(LangFile, AQuantifiersBodyReachesToTheRight) {
  EXPECT_TRUE(abc("any r in {A B}: {r} C | C").equals(abc("A C | B C | C")));
  EXPECT_TRUE(abc("(any r in {A B}: {r}) C").equals(abc("A C | B C")));
  EXPECT_TRUE(abc("any r in {}: {r}").equals(Language::nothing(Labels({"A", "B", "C"}))));
}

TEST(LangFile, DefinitionsMayComeInAnyOrder) {
  EXPECT_TRUE(Language::parse("language = x y\ny = B\nx = A").equals(Language::parse("A B")));
}

TEST(LangFile, IncludesBringDefinitionsAndTheirLanguageByName) {
  const auto folder = std::filesystem::temp_directory_path() / ("regccrf_include_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "sub");
  std::ofstream(folder / "sub" / "spans.lang") << "span(t) = B-{t} I-{t}*\nlanguage = (O | span(X))*\n";
  std::ofstream(folder / "main.lang") << "include \"sub/spans.lang\"\nlanguage = spans & at_most(1, B-X)\n";
  const Language language = Language::load((folder / "main.lang").string());
  EXPECT_TRUE(accepts(language, "B-X I-X O"));
  EXPECT_FALSE(accepts(language, "B-X B-X"));
  std::ofstream(folder / "main.lang") << "include \"main.lang\"\nlanguage = A\n";
  EXPECT_THROW(Language::load((folder / "main.lang").string()), Error);
  std::filesystem::remove_all(folder);
}

// --- built-ins ------------------------------------------------------------------------------------------------------

TEST(BuiltIn, BioAndBioes) {
  const Language bio = Language::parse("s = {X Y}\nlanguage = bio(s)");
  EXPECT_TRUE(accepts(bio, "B-X I-X B-Y O"));
  EXPECT_FALSE(accepts(bio, "B-X I-Y"));
  const Language bioes = Language::parse("bioes({X})");
  EXPECT_TRUE(accepts(bioes, "S-X B-X I-X E-X O"));
  EXPECT_FALSE(accepts(bioes, "B-X O"));
}

// For one label the built-ins are written as regular expressions, for longer patterns by complement: they must agree.
TEST(BuiltIn, LabelsAndLongerPatternsFollowTheSameDefinition) {
  const auto agree = [](const std::string& with_label, const std::string& with_pattern) {
    EXPECT_TRUE(abc(with_label).equals(abc(with_pattern))) << with_label;
  };
  const std::string a = "(A & A .*)", b = "(B & B .*)";  // the same sequences, not seen as a single label
  for (const char* n : {"0", "1", "2"}) {
    agree(std::string("at_most(") + n + ", A)", std::string("at_most(") + n + ", " + a + ")");
    agree(std::string("at_least(") + n + ", A)", std::string("at_least(") + n + ", " + a + ")");
    agree(std::string("exactly(") + n + ", A)", std::string("exactly(") + n + ", " + a + ")");
  }
  agree("before(A, B)", "before(" + a + ", " + b + ")");
  agree("requires(A, B)", "requires(" + a + ", " + b + ")");
  agree("ordered(A, B)", "ordered(" + a + ", " + b + ")");
  agree("once_contiguous(A)", "once_contiguous(" + a + ")");
  agree("before([A B], [B C])", "before([A B] & [A B] .*, [B C])");
  agree("requires([A B], [B C])", "requires([A B] & [A B] .*, [B C])");
}

TEST(BuiltIn, LongerPatterns) {
  const Language language = abc("at_most(1, A B)");
  EXPECT_TRUE(accepts(language, "A A B A"));
  EXPECT_FALSE(accepts(language, "A B C A B"));
}

// --- algebra --------------------------------------------------------------------------------------------------------

TEST(Algebra, OperatorsAreThoseOfThePatterns) {
  const Language x = abc("A B*"), y = abc("A* B");
  EXPECT_TRUE((x | y).equals(abc("A B* | A* B")));
  EXPECT_TRUE((x & y).equals(abc("A B")));
  EXPECT_TRUE((x - y).equals(abc("A B* & !(A* B)")));
  EXPECT_TRUE((x + y).equals(abc("A B* A* B")));
  EXPECT_TRUE((!x).equals(abc("!(A B*)")));
  EXPECT_TRUE(x.star().equals(abc("(A B*)*")));
  EXPECT_TRUE(x.repeat(1, 2).equals(abc("(A B*){1,2}")));
  EXPECT_TRUE(x.reverse().equals(abc("B* A")));
  EXPECT_TRUE((!x).reverse().equals(abc("!(B* A)")));
}

TEST(Algebra, JoinsLabelsByName) {
  const Language joined = Language::parse("A B") | Language::parse("B C");
  EXPECT_EQ(joined.labels().names(), (Words{"A", "B", "C"}));
  EXPECT_TRUE(accepts(joined, "B C"));
  EXPECT_FALSE(accepts((!Language::parse("A")) | Language::parse("B"), "B B"));  // !A was taken within {A}
}

TEST(Algebra, InclusionEmptinessShortest) {
  EXPECT_TRUE(abc("A*").includes(abc("A A")));
  EXPECT_FALSE(abc("A A").includes(abc("A*")));
  EXPECT_TRUE(abc("A & B").empty());
  EXPECT_FALSE(abc("()").empty());
  EXPECT_EQ(abc("A A A | B C").shortest(), (std::vector<Label>{1, 2}));
  EXPECT_EQ(abc("A*").shortest(), std::vector<Label>{});
  EXPECT_EQ(abc("A & B").shortest(), std::nullopt);
}

TEST(Algebra, ASharedLanguageMayBeAskedFromManyThreads) {
  const Language language = abc("(A | B C*)* & at_most(2, B)");
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { right[i] = accepts(language, "A B C") && language.count(2) == "5"; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 1));
}

// --- counting, drawing, listing -------------------------------------------------------------------------------------

TEST(Count, AgreesWithEnumeration) {
  for (const char* pattern :
       {"(A | B C*)*", "A{2,5} | B", "!(. A .*)", "(A B)* & at_most(2, A)", "(A|B)* A (A|B){2}"}) {
    const Language language = abc(pattern);
    for (std::size_t n = 0; n <= 7; ++n) {
      EXPECT_EQ(language.count(n), std::to_string(language.enumerate_length(n, 1'000'000).size()))
          << pattern << " " << n;
    }
  }
}

TEST(Count, IsExactForLargeNumbers) {
  EXPECT_EQ(abc(".*").count(50), "717897987691852588770249");  // 3^50
  EXPECT_EQ(abc("A & B").count(3), "0");
}

TEST(Enumerate, GoesByLengthThenByLabel) {
  const auto sequences = abc("(B | A C?)*").enumerate(6);
  EXPECT_EQ(sequences, (std::vector<std::vector<Label>>{{}, {0}, {1}, {0, 0}, {0, 1}, {0, 2}}));
}

TEST(Enumerate, EndsWithAFiniteLanguageAndPassesOverGaps) {
  EXPECT_EQ(abc("A | B B B B B").enumerate(10).size(), 2u);
  EXPECT_EQ(abc("(A A A)*").enumerate(4).back().size(), 9u);
  EXPECT_TRUE(abc("A & B").enumerate(10).empty());
}

TEST(Random, IsUniform) {
  const Language language = abc("(A | B C*)* & at_most(2, B)");
  const std::size_t length = 5, many = 40'000;
  const auto all = language.enumerate_length(length, 10'000);
  std::map<std::vector<Label>, double> seen;
  for (const auto& sequence : all) seen[sequence] = 0;
  for (const auto& sequence : language.random(length, many, 17)) {
    ASSERT_EQ(seen.count(sequence), 1u);
    ++seen[sequence];
  }
  const double expected = static_cast<double>(many) / static_cast<double>(all.size());
  double chi_square = 0;
  for (const auto& [sequence, times] : seen) chi_square += (times - expected) * (times - expected) / expected;
  const double degrees = static_cast<double>(all.size()) - 1;
  EXPECT_LT(chi_square, degrees + 4 * std::sqrt(2 * degrees));  // four standard deviations
}

TEST(Random, IsRepeatableAndSaysWhenThereIsNothing) {
  const Language language = abc("A (B | C)*");
  EXPECT_EQ(language.random(6, 5, 3), language.random(6, 5, 3));
  EXPECT_NE(language.random(20, 1, 3), language.random(20, 1, 4));
  try {
    abc("A A A").random(2, 1, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[random] the language has no sequence of length 2 (its shortest has 3 labels)");
  }
}

TEST(Random, WorksWhereTheCountsAreFarBeyondDouble) {
  const Language language = abc(".* A");
  const auto sequences = language.random(5'000, 2, 1);
  EXPECT_EQ(sequences[0].size(), 5'000u);
  EXPECT_EQ(sequences[0].back(), 0);
}

// --- limits ---------------------------------------------------------------------------------------------------------

TEST(Limits, AnExplosionIsAnErrorThatNamesTheLimit) {
  Limits limits;
  limits.states = 1'000;
  try {
    abc("!(.* A .{40} A .*)").accepts(words("A"), limits);
    FAIL();
  } catch (const LimitError& error) {
    EXPECT_STREQ(error.what(),
                 "[determinise] needs more than the limit of 1000 states; raise it with --max-states (Limits::states)");
  }
}

TEST(Limits, TimeIsALimitToo) {
  Limits limits;
  limits.states = 1'000'000'000;
  limits.arcs = 1'000'000'000;
  limits.seconds = 0.2;
  EXPECT_THROW(abc("!(.* A .{40} A .*)").empty(limits), LimitError);
}

TEST(Limits, ALargeArrayMustFitIntoTheTimeThatIsLeft) {
  constexpr double seconds = 10;
  Meter meter(Budget(Budget::kUnlimited, Budget::kUnlimited, Budget::kUnlimited, seconds), "build");
  EXPECT_NO_THROW(meter.hold(100'000'000));
  EXPECT_THROW(meter.hold(30'000'000'000), LimitError);
}

TEST(Limits, HugeRepetitionsAreRefusedBeforeTheyAreBuilt) {
  EXPECT_THROW(abc("((A{1000}){1000}){1000}").empty(), LimitError);
}

TEST(Limits, ALongFlatPatternIsFine) {
  std::string pattern = "L0";
  for (int i = 1; i < 5'000; ++i) pattern += " | L" + std::to_string(i) + " L0";
  EXPECT_TRUE(accepts(Language::parse(pattern), "L4999 L0"));
}

// --- what patterns cost ---------------------------------------------------------------------------------------------

Limits most_states(std::int64_t states) {
  Limits limits;
  limits.states = states;
  return limits;
}

std::string all_of(const std::string& prefix, int many, const std::string& separator) {
  std::string text;
  for (int i = 0; i < many; ++i) text += (i > 0 ? separator : "") + prefix + std::to_string(i);
  return text;
}

TEST(Cost, AnOrderOfManyLabelsIsAChain) {
  const Language language = Language::parse("ordered(" + all_of("L", 12, ", ") + ") & .*");
  EXPECT_EQ(compile(language, most_states(200)).automaton().states(), 12);
}

TEST(Cost, SpansOfManyTypesTakeArcsInTheNumberOfTypes) {
  Limits limits;
  limits.arcs = 20'000;
  const Language language = Language::parse("bio({" + all_of("T", 1'000, " ") + "})");
  const Constraint constraint = compile(language, limits);
  EXPECT_EQ(constraint.automaton().states(), 1'001);
  EXPECT_EQ(constraint.automaton().arcs.size(), 4'001u);
  EXPECT_TRUE(accepts(language, "B-T7 I-T7 I-T7 O B-T8 B-T8"));
  EXPECT_FALSE(accepts(language, "B-T7 I-T8"));
  EXPECT_FALSE(accepts(language, "I-T7"));
}

TEST(Cost, PiecesWithManyEndsMayFollowOneAnother) {
  const std::string spans = "(any t in {" + all_of("T", 100, " ") + "}: {t} X*)";
  const Language language = Language::parse(spans + spans + "?" + spans + "{2,3}");
  for (const char* legal : {"T1 X T2 T3", "T1 T2 X X T3 X", "T1 T2 T3 T4 T5 X"})
    EXPECT_TRUE(accepts(language, legal)) << legal;
  for (const char* illegal : {"T1 X T2 X", "X T1 T2 T3", "T1 T2 T3 T4 T5 T6"})
    EXPECT_FALSE(accepts(language, illegal)) << illegal;
  EXPECT_TRUE(is_unambiguous(Language::parse(spans + spans + "{2,3}").automaton()));
}

TEST(Cost, RulesThatAreSmallOnlyTogetherAreIntersectedTogether) {
  const std::string types = all_of("T", 18, " ");
  const Language language = Language::parse("bio({" + types + "}) & (all t in {" + types +
                                            "}: at_most(1, B-{t})) & at_most(1, [" + all_of("B-T", 18, " ") + "])");
  EXPECT_EQ(compile(language, most_states(10'000)).automaton().states(), 20);
}

TEST(Cost, LongChainsAreReducedToTheEnd) { EXPECT_EQ(abc("(A A | B A){3000} & .*").automaton().states(), 6'001); }

TEST(Cost, AnOrderOfSetsThatShareLabelsMeansWhatItSays) {
  EXPECT_TRUE(abc("ordered([A B], [B C], C)").equals(abc("!(.* [B C] .* [A B] .* | .* C .* [A B C] .*)")));
  EXPECT_TRUE(abc("ordered(A, A)").equals(abc("at_most(1, A)")));
  EXPECT_TRUE(abc("ordered(A B, C)").equals(abc("!(.* C .* A B .*)")));
}

}  // namespace
}  // namespace regccrf
