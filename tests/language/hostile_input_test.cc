// Whatever the bytes, the answer is a value or an Error, soon and in modest memory: never a crash, a hang, or half a
// file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/file.h"
#include "base/safetensors.h"
#include "constraint/constraint_file.h"
#include "language/fst_file.h"
#include "regccrf/automaton_file.h"
#include "regccrf/constraint.h"
#include "regccrf/language.h"

namespace regccrf {
namespace {

namespace fs = std::filesystem;

std::string times(std::size_t n, const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < n; ++i) result += text;
  return result;
}

// "no error", or the message of the Error; anything else that is thrown fails the test.
template <class Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string parse_error(const std::string& text) {
  return error_of([&] { Language::parse(text); });
}

Limits small_limits() {
  Limits limits;
  limits.states = 2'000;
  limits.arcs = 50'000;
  limits.seconds = 1;
  return limits;
}

#define EXPECT_SAYS(message, part) EXPECT_PRED2(says, message, part)
bool says(const std::string& message, const std::string& part) { return message.find(part) != std::string::npos; }

// x0 = first, and x1, x2 … each made of the one before: `@` in `rule` stands for its name.
std::string chain(int length, const std::string& name, const std::string& first, const std::string& rule) {
  std::string text = name + "0 = " + first + "\n";
  for (int i = 1; i <= length; ++i) {
    text += name + std::to_string(i) + " = ";
    for (char c : rule) text += c == '@' ? name + std::to_string(i - 1) : std::string(1, c);
    text += "\n";
  }
  return text;
}

// --- patterns -------------------------------------------------------------------------------------------------------

TEST(HostilePattern, DeepGroupsAreAnError) {
  EXPECT_SAYS(parse_error(times(100'000, "(")), "nested more than");
  EXPECT_SAYS(parse_error(times(100'000, "at_most(1, ")), "nested more than");
  EXPECT_SAYS(parse_error(times(100'000, "any x in {A}: ")), "nested more than");
}

TEST(HostilePattern, NegationsAreCountedNotNested) {
  const Language language = Language::parse(times(100'000, "!") + "A");
  EXPECT_TRUE(language.accepts(std::vector<std::string>{"A"}));
}

TEST(HostilePattern, RepetitionsOfGroupsOfRepetitionsDoNotNest) {
  std::string text = "A";
  for (int i = 0; i < 400; ++i) text = "(" + text + times(400, "?") + ")";
  EXPECT_SAYS(parse_error(text), "nested");
}

TEST(HostilePattern, RepeatedRepetitionsMeetTheLimit) {
  const Language language = Language::parse("A" + times(60, "{2}"));
  EXPECT_SAYS(error_of([&] { language.count(3); }), "limit");
}

TEST(HostilePattern, AMillionRepetitionsMeetTheLimit) {
  EXPECT_SAYS(error_of([] { compile(Language::parse("A{1000000}")); }), "limit of 200000 states");
  EXPECT_SAYS(parse_error("A{1000001}"), "at most 1000000");
}

TEST(HostilePattern, NamesThatDoubleMeetTheLimit) {
  const std::string text = chain(60, "x", "A", "@ @") + "language = x60\n";
  EXPECT_SAYS(parse_error(text), "more than 5000000 parts");
}

TEST(HostilePattern, ComplementsThatDoubleMeetTheTimeLimit) {
  const std::string text = chain(60, "x", "A", "!(@ A) | !(@ B)") + "language = x60\n";
  EXPECT_SAYS(error_of([&] { compile(Language::parse(text), small_limits()); }), "limit");
}

TEST(HostilePattern, ADenseAutomatonMeetsTheLimit) {
  Limits limits;
  limits.seconds = 0.01;
  EXPECT_SAYS(error_of([&] { compile(Language::parse("A{0,3}{142}"), limits); }), "limit");
}

TEST(HostilePattern, EqualDefinitionsThatDoubleAreComparedOnce) {
  const std::string rule = "(@ A)* (@ B)*";
  const std::string text = chain(60, "x", "A", rule) + chain(60, "y", "A", rule) + "language = x60 | y60\n";
  EXPECT_EQ(parse_error(text), "no error");
}

TEST(HostilePattern, TextThatDoublesIsAnError) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "f" + std::to_string(i) + "(x) = f" + std::to_string(i + 1) + "({x}{x})\n";
  EXPECT_SAYS(parse_error(text + "f60(x) = {x}{x}\nlanguage = f0(A)\n"), "a label of more than 1,000,000 characters");
}

TEST(HostilePattern, SetsThatDoubleAreReadOnce) {
  EXPECT_EQ(parse_error(chain(60, "s", "{A B C}", "{D} @ @") + "language = any r in s60: r\n"), "no error");
  EXPECT_SAYS(parse_error(chain(60, "s", "{A B C}", "{{@}{@}}") + "language = any r in s60: r\n"), "too large");
}

TEST(HostilePattern, AChainOfSetsDoesNotNest) {
  EXPECT_SAYS(parse_error(chain(20'000, "s", "{A}", "{B} @") + "language = any r in s20000: r\n"), "nested too deeply");
}

TEST(HostilePattern, AChainOfNamesDoesNotNest) {
  EXPECT_SAYS(parse_error(chain(20'000, "x", "A", "@ B") + "language = x20000\n"), "nested too deeply");
}

TEST(HostilePattern, NestedQuantifiersAreAnErrorWhenTheyExplode) {
  std::string set = "s = {";
  for (int i = 0; i < 50; ++i) set += " a" + std::to_string(i);
  std::string pattern, label = "x";
  for (int i = 0; i < 8; ++i) {
    pattern += "any v" + std::to_string(i) + " in s: ";
    label += "{v" + std::to_string(i) + "}";
  }
  EXPECT_SAYS(parse_error(set + "}\nlanguage = " + pattern + label + "\n"), "too large");
}

TEST(HostilePattern, ALongFlatPatternIsRead) {
  std::string text = "A0";
  for (int i = 1; i < 100'000; ++i) text += "|A" + std::to_string(i % 1'000);
  const Language language = Language::parse(text);
  EXPECT_EQ(language.labels().size(), 1'000);
  EXPECT_EQ(language.count(1), "1000");
}

TEST(HostilePattern, ALongLabelIsRead) {
  const std::string label = times(1'000'000, "a");
  EXPECT_TRUE(Language::parse(label).accepts(std::vector<std::string>{label}));
}

TEST(HostilePattern, ManyWildcardsOverManyLabelsAreAnError) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "A" + std::to_string(i) + " ";
  EXPECT_SAYS(parse_error(text + times(20'000, ". ")), "too large");
}

TEST(HostilePattern, OrderedOfManyPatternsIsAnError) {
  EXPECT_SAYS(parse_error("ordered(A" + times(20'000, ", B") + ")"), "too large");
}

TEST(HostilePattern, ATemplateHasAHundredParametersAtMost) {
  EXPECT_SAYS(parse_error("f(a" +
                          [] {
                            std::string more;
                            for (int i = 0; i < 200; ++i) more += ", a" + std::to_string(i);
                            return more;
                          }() +
                          ") = a\nlanguage = f(A)\n"),
              "at most 100 parameters");
}

TEST(HostilePattern, ABraceThatStartsNoWordIsAnError) {
  EXPECT_SAYS(parse_error("[A {2"), "nothing to repeat");
  EXPECT_SAYS(parse_error("s = {A {2}}\nlanguage = any r in s: r\n"), "nothing to repeat");
  EXPECT_SAYS(parse_error("{2}"), "nothing to repeat");
}

TEST(HostilePattern, BytesThatAreNotTextAreAnError) {
  EXPECT_SAYS(parse_error(std::string("A\0B", 3)), "NUL byte");
  EXPECT_SAYS(parse_error("A \xff"), "UTF-8");
  EXPECT_SAYS(parse_error("A \xc0\x80"), "UTF-8");
  EXPECT_SAYS(parse_error("A \xe6\x97"), "UTF-8");
}

TEST(HostilePattern, LengthsBeyondMemoryAreAnError) {
  const Language language = Language::parse("(A | B)*");
  const std::size_t huge = std::numeric_limits<std::size_t>::max();
  EXPECT_SAYS(error_of([&] { language.random(huge, 1, 1); }), "4 GB");
  EXPECT_SAYS(error_of([&] { language.random(1, huge, 1); }), "4 GB");
  EXPECT_SAYS(error_of([&] { language.enumerate_length(huge, 1); }), "4 GB");
  EXPECT_SAYS(error_of([&] { language.count(huge, small_limits()); }), "limit of 1 s");
}

TEST(HostilePattern, ATimeLimitMayBeAnyNumber) {
  const auto with_seconds = [](double seconds) {
    Limits limits;
    limits.seconds = seconds;
    return error_of([&] { compile(Language::parse("A"), limits); });
  };
  EXPECT_EQ(with_seconds(std::numeric_limits<double>::infinity()), "no error");
  EXPECT_EQ(with_seconds(1e300), "no error");
  EXPECT_SAYS(with_seconds(std::nan("")), "not a number");
  with_seconds(-1e300);
}

// --- files ----------------------------------------------------------------------------------------------------------

class HostileFile : public testing::Test {
 protected:
  HostileFile() { fs::create_directories(folder_); }
  ~HostileFile() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  const fs::path folder_ = fs::temp_directory_path() / ("regccrf_hostile_" + std::to_string(::getpid()));
};

ConstraintFile small_constraint() {
  const Constraint constraint = compile(Language::parse("(O | B I*)* & at_most(2, B)"));
  return {constraint.automaton(), constraint.labels(), constraint.method(), constraint.text()};
}

std::string small_fst() {
  const ConstraintFile file = small_constraint();
  return encode_fst(file.automaton, file.labels.names());
}

void load_constraint(const std::string& bytes) {
  ConstraintFile file = decode_constraint_file(bytes, "file");
  Constraint::from_automaton(std::move(file.automaton), file.labels);
}

void load_fst(const std::string& bytes) { decode_fst(bytes, {}, "file", Budget(1'000, 10'000, 100'000'000, 1)); }

TEST(CutFile, EveryPrefixOfAConstraintIsAnError) {
  const std::string whole = encode_constraint_file(small_constraint());
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_NE(error_of([&] { load_constraint(whole.substr(0, n)); }), "no error")
        << n << " of " << whole.size() << " bytes";
  }
  EXPECT_EQ(error_of([&] { load_constraint(whole); }), "no error");
}

TEST(CutFile, EveryPrefixOfAnFstIsAnError) {
  const std::string whole = small_fst();
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_NE(error_of([&] { load_fst(whole.substr(0, n)); }), "no error") << n << " of " << whole.size() << " bytes";
  }
  EXPECT_EQ(error_of([&] { load_fst(whole); }), "no error");
}

TEST(DamagedFile, NoChangedByteOfAConstraintEscapesAsAnythingButAnError) {
  const std::string whole = encode_constraint_file(small_constraint());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const char byte : {'\0', '\x01', '\x7f', '\xff', '"', '9'}) {
      std::string damaged = whole;
      damaged[i] = byte;
      error_of([&] { load_constraint(damaged); });
    }
  }
}

TEST(DamagedFile, NoChangedByteOfAnFstEscapesAsAnythingButAnError) {
  const std::string whole = small_fst();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const char byte : {'\0', '\x01', '\x7f', '\xff', '\x80'}) {
      std::string damaged = whole;
      damaged[i] = byte;
      error_of([&] { load_fst(damaged); });
    }
  }
}

TEST(DamagedFile, TensorsThatShareTheirBytesAreAnError) {
  Safetensors file;
  file.tensors["a"] = {"U8", {4}, "1234"};
  file.tensors["b"] = {"U8", {4}, "5678"};
  std::string bytes = encode_safetensors(file);
  const std::size_t at = bytes.find("[4,8]");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 5, "[0,4]");
  EXPECT_EQ(error_of([&] { decode_safetensors(bytes, "file"); }), "no error");  // within the file's size: harmless
  bytes.resize(bytes.size() - 4);
  EXPECT_SAYS(error_of([&] { decode_safetensors(bytes, "file"); }), "overlap");
}

TEST(DamagedFile, NumbersThatAreNotWholeAreAnError) {
  Safetensors file;
  file.tensors["a"] = {"U8", {4}, "1234"};
  for (const char* offsets : {"[0,1e99]", "[0,4.5]", "[0,\"4\"]", "[0,null]", "[0,[4]]"}) {
    std::string bytes = encode_safetensors(file);
    bytes.replace(bytes.find("[0,4]"), 5, offsets);
    bytes[0] = static_cast<char>(bytes[0] + std::string(offsets).size() - 5);
    EXPECT_SAYS(error_of([&] { decode_safetensors(bytes, "file"); }), "not a whole number");
  }
}

TEST(DamagedFile, LabelsThatAreNotUtf8CannotBeSaved) {
  Automaton automaton;
  automaton.accepting = {1};
  automaton.arcs = {{0, 0, 0}};
  EXPECT_SAYS(error_of([&] { encode_constraint_file({automaton, Labels({"\xff"}), "given", ""}); }), "UTF-8");
}

TEST_F(HostileFile, ALabelNamedLikeEpsilonIsNotWrittenAsEpsilon) {
  const Constraint constraint = compile(Language::parse("<eps> A"));
  EXPECT_SAYS(error_of([&] { write_fst(constraint.automaton(), constraint.labels(), path("a.fst")); }), "epsilon");
  EXPECT_SAYS(error_of([&] { write_att(constraint.automaton(), constraint.labels(), path("a.att")); }), "epsilon");
  EXPECT_EQ(files(), 0u);
}

TEST_F(HostileFile, AnAutomatonWithManyStatesMeetsTheLimit) {
  std::string text;
  for (int i = 0; i < 201'000; ++i) text += std::to_string(i) + "\t" + std::to_string(i + 1) + "\tA\n";
  const std::string file = write("many.att", text + "201000\n");
  EXPECT_SAYS(error_of([&] { Language::load(file); }), "limit of 200000 states");
}

TEST_F(HostileFile, EpsilonCyclesAreRemoved) {
  const std::string file = write("cycle.att", "0\t1\t<eps>\n1\t0\t<eps>\n1\t2\tA\n2\t0\t<eps>\n2\n");
  EXPECT_EQ(Language::load(file).count(3), "1");
}

TEST_F(HostileFile, FilesThatIncludeEachOtherAreAnError) {
  write("a.lang", "include \"./b.lang\"\nlanguage = A\n");
  write("b.lang", "include \"../" + folder_.filename().string() + "/a.lang\"\nlanguage = B\n");
  EXPECT_SAYS(error_of([&] { Language::load(path("a.lang")); }), "includes itself");
}

TEST_F(HostileFile, IncludesThatDoubleAreAnError) {
  for (int i = 0; i < 40; ++i) {
    const std::string next = "include \"" + std::to_string(i + 1) + ".lang\"\n";
    write(std::to_string(i) + ".lang", next + next);
  }
  write("40.lang", "labels = {A}\n");
  EXPECT_SAYS(error_of([&] { Language::load(path("0.lang")); }), "more than 1000 files");
}

TEST_F(HostileFile, APathThatNoFileCanHaveIsAnError) {
  EXPECT_SAYS(error_of([&] { Language::load(times(10'000, "a")); }), "cannot open");
  EXPECT_SAYS(parse_error("include \"" + times(10'000, "a") + "\"\nlanguage = A\n"), "cannot read");
}

TEST_F(HostileFile, AFolderOrAnEmptyFileIsAnError) {
  EXPECT_SAYS(error_of([&] { Language::load(folder_.string()); }), "folder");
  EXPECT_NE(error_of([&] { Language::load(write("empty.lang", "")); }), "no error");
  EXPECT_NE(error_of([&] { Language::load(write("empty.att", "")); }), "no error");
}

// --- writing --------------------------------------------------------------------------------------------------------

TEST_F(HostileFile, AFullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Constraint constraint = compile(Language::parse("A*"));
  EXPECT_SAYS(error_of([&] { constraint.save("/dev/full"); }), "cannot write /dev/full");
  EXPECT_SAYS(error_of([&] { write_fst(constraint.automaton(), constraint.labels(), "/dev/full"); }), "cannot write");
}

TEST_F(HostileFile, NothingIsLeftWhereAFileCannotBeWritten) {
  const Constraint constraint = compile(Language::parse("A*"));
  fs::create_directory(path("folder.att"));
  EXPECT_SAYS(error_of([&] { constraint.save(path("missing/file")); }), "cannot create");
  EXPECT_SAYS(error_of([&] { constraint.save(path("folder.att")); }), "folder.att");
  EXPECT_SAYS(error_of([&] { write_att(constraint.automaton(), constraint.labels(), path("folder.att")); }),
              "folder.att");
  EXPECT_EQ(files(), 1u);
}

TEST_F(HostileFile, AReadOnlyFolderIsAnErrorAndKeepsTheOldFile) {
  const std::string file = write("old", "old");
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  const bool writable = ::access(folder_.c_str(), W_OK) == 0;  // root may write anywhere
  const std::string error = writable ? "" : error_of([&] { compile(Language::parse("A*")).save(file); });
  fs::permissions(folder_, fs::perms::owner_all);
  if (writable) GTEST_SKIP() << "this user may write to a read-only folder";
  EXPECT_SAYS(error, "cannot create");
  EXPECT_EQ(read_file(file), "old");
}

}  // namespace
}  // namespace regccrf
