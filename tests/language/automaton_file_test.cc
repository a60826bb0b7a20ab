// Automata from and for other programs: OpenFst binary and AT&T text.
#include "regccrf/automaton_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "regccrf/constraint.h"
#include "regccrf/language.h"

namespace regccrf {
namespace {

class AutomatonFile : public testing::Test {
 protected:
  AutomatonFile() { std::filesystem::create_directories(folder_); }
  ~AutomatonFile() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  static std::string error_of(const std::string& file, const std::string& symbols = "") {
    try {
      Language::load(file, {}, symbols);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("regccrf_files_" + std::to_string(::getpid()));
};

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

TEST_F(AutomatonFile, BothFormatsGiveTheSameLanguageBack) {
  const Language language = Language::parse("(O | B-PER I-PER*)* & at_most(2, B-PER)");
  const Constraint constraint = compile(language);
  write_fst(constraint.automaton(), constraint.labels(), path("x.fst"));
  write_att(constraint.automaton(), constraint.labels(), path("x.att"));
  EXPECT_TRUE(Language::load(path("x.fst")).equals(language));
  EXPECT_EQ(Language::load(path("x.fst")).labels(), language.labels());
  EXPECT_TRUE(Language::load(path("x.att")).equals(language));
  EXPECT_EQ(Language::load(path("x.att"), {}, path("x.att.syms")).labels(), language.labels());
}

TEST_F(AutomatonFile, AttTextAsOpenFstPrintsIt) {
  const std::string file = write("a.att", "0 1 A\n1 1 B 0\n1 2 <eps>\n2\n1 Infinity\n");
  EXPECT_TRUE(Language::load(file).equals(Language::parse("A B*")));
}

TEST_F(AutomatonFile, AttTextAsHfstPrintsIt) {
  const std::string file = write("a.att", "0\t1\tA b\tA b\t0.000000\n1\t1\t@0@\t@0@\t0.0\n1\t0.0\n");
  EXPECT_TRUE(Language::load(file).equals(Language::parse("\"A b\"")));
}

TEST_F(AutomatonFile, NumbersAreLookedUpInTheSymbolTable) {
  const std::string file = write("a.att", "0 1 2\n1\n"), symbols = write("a.syms", "<eps> 0\nA 1\nB 2\n");
  const Language language = Language::load(file, {}, symbols);
  EXPECT_EQ(language.labels().names(), (std::vector<std::string>{"A", "B"}));
  EXPECT_TRUE(language.accepts(std::vector<std::string>{"B"}).accepted);
  EXPECT_SAYS(error_of(write("b.att", "0 1 7\n1\n"), symbols), "the label '7' is not in the symbol table");
}

TEST_F(AutomatonFile, WeightsAndTransducersAreRefused) {
  EXPECT_SAYS(error_of(write("a.att", "0 1 A 0.5\n1\n")), "weights");
  EXPECT_SAYS(error_of(write("a.att", "0 1 A\n1 2.5\n")), "weights");
  EXPECT_SAYS(error_of(write("a.att", "0 1 A B\n1\n")), "a transducer");
}

TEST_F(AutomatonFile, BadLinesAreNamed) {
  EXPECT_SAYS(error_of(write("a.att", "0 1 A\nx 1 B\n")), "a.att:2: 'x' is not a state number");
  EXPECT_SAYS(error_of(write("a.att", "")), "no states");
}

TEST_F(AutomatonFile, AnyCutOfABinaryFileIsAnError) {
  const Constraint constraint = compile(Language::parse("(A | B C)*"));
  write_fst(constraint.automaton(), constraint.labels(), path("x.fst"));
  std::ifstream in(path("x.fst"), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (std::size_t length = 4; length < whole.size(); ++length) {
    ASSERT_NE(error_of(write("cut.fst", whole.substr(0, length))), "no error") << length;
  }
}

TEST_F(AutomatonFile, AGivenAlphabetMustHoldTheFilesLabels) {
  const std::string file = write("a.att", "0 1 A\n1\n");
  EXPECT_EQ(Language::load(file, Labels({"Z", "A"})).labels().size(), 2);
  EXPECT_THROW(Language::load(file, Labels({"Z", "Y"})), Error);
}

}  // namespace
}  // namespace regccrf
