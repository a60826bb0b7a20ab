// How sentences become attributes.
#include "regccrf/extract.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/utf8.h"
#include "regccrf/error.h"

namespace regccrf {
namespace {

using Rows = std::vector<std::vector<std::string>>;

struct Collect : AttributeSink {
  void attribute(std::string_view name, float value) override {
    positions.back().push_back(std::string(name) + (value == 1 ? "" : "*" + std::to_string(value).substr(0, 4)));
  }
  void next() override { positions.emplace_back(); }
  Rows positions{1};
};

Rows attributes_of(const Extractor& extractor, const Rows& rows) {
  Collect collect;
  extractor.extract(Sentence::of_rows(rows), collect);
  collect.positions.pop_back();
  return collect.positions;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool has(const std::vector<std::string>& attributes, const std::string& name) {
  return std::find(attributes.begin(), attributes.end(), name) != attributes.end();
}

std::string scratch_file(const std::string& name, const std::string& text) {
  const std::string path = std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()));
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(Template, FieldsOfRowsNearAndFar) {
  const Extractor extractor = Extractor::from_template(
      "# a comment\n"
      "U00:%x[0,0]\n"
      "\n"
      "U01:%x[-1,0]/%x[0,1]\r\n"
      "U02:%x[-2,0]%x[+2,0]x\n"
      "U\n"
      "B\n");
  const Rows expected = {{"U00:a", "U01:_B-1/A", "U02:_B-2_B+1x", "U"}, {"U00:b", "U01:a/B", "U02:_B-1_B+2x", "U"}};
  EXPECT_EQ(attributes_of(extractor, {{"a", "A"}, {"b", "B"}}), expected);
  EXPECT_EQ(attributes_of(Extractor::from_text(extractor.text()), {{"a", "A"}, {"b", "B"}}), expected);
  EXPECT_EQ(extractor.columns(), 2);
  EXPECT_TRUE(extractor.uses(1));
  EXPECT_FALSE(extractor.uses(2));
  EXPECT_TRUE(extractor.transitions());
  EXPECT_FALSE(Extractor::from_template("U00:%x[0,0]").transitions());
}

// As in CRF++: there is no B attribute at the first position. As in Wapiti: * is both, and small letters will do.
TEST(Template, AttributesOfPairs) {
  const Extractor extractor = Extractor::from_template("U00:%x[0,0]\nB01:%x[-1,0]/%x[0,1]\n*02:%x[0,0]\nb03:%x[0,2]\n");
  const Rows expected = {{"U00:a", "*02:a"}, {"U00:b", "B01:a/B", "*02:b", "b03:2"}};
  EXPECT_EQ(attributes_of(extractor, {{"a", "A", "1"}, {"b", "B", "2"}}), expected);
  EXPECT_EQ(extractor.columns(), 3);
  EXPECT_TRUE(extractor.uses(2));
  EXPECT_FALSE(extractor.transitions());  // no line B
  EXPECT_EQ(extractor.weighs("U00:a"), Weighs::label);
  EXPECT_EQ(extractor.weighs("B01:a/B"), Weighs::pair);
  EXPECT_EQ(extractor.weighs("b03:2"), Weighs::pair);
  EXPECT_EQ(extractor.weighs("*02:a"), Weighs::both);
  EXPECT_EQ(Extractor::words({}).weighs("B"), Weighs::label);
  EXPECT_EQ(extractor.summary(), "4 templates, 3 for pairs of labels");
}

// Without %x the input does not matter: plain transitions, and for * an attribute that every position has.
TEST(Template, APairTemplateWithoutInputIsTransitions) {
  for (const char* text : {"U00:%x[0,0]\nB\n", "U00:%x[0,0]\nb\n", "U00:%x[0,0]\nB77\n"}) {
    const Extractor extractor = Extractor::from_template(text);
    EXPECT_TRUE(extractor.transitions()) << text;
    EXPECT_EQ(attributes_of(extractor, {{"a"}}), Rows{{"U00:a"}}) << text;
  }
  const Extractor both = Extractor::from_template("*\n");
  EXPECT_TRUE(both.transitions());
  EXPECT_EQ(attributes_of(both, {{"a"}}), Rows{{"U*"}});
  EXPECT_EQ(both.weighs("U*"), Weighs::label);
}

TEST(Template, WhatIsNoTemplateIsAnErrorThatNamesTheLine) {
  const auto parsing = [](const std::string& text) { return error_of([&] { Extractor::from_template(text, "t"); }); };
  EXPECT_NE(parsing("U:%x[0]\n").find("line 1: '%x[0]' is not %x[row,column]"), std::string::npos);
  for (const char* bad : {"U:%y[0,0]", "U:%x[0,0", "U:%x[a,0]", "U:%", "U:%x[0,-1]", "U:%x[0,9999999]",
                          "U:%x[99999999999,0]", "X:%x[0,0]", ""}) {
    EXPECT_NE(parsing(bad), "no error") << bad;
  }
  EXPECT_NE(error_of([] {
              attributes_of(Extractor::from_template("U:%x[0,2]"), {{"a", "b"}});
            }).find("has 2 columns, but the features use column 3"),
            std::string::npos);
}

TEST(Words, WhatIsInAWord) {
  const Rows all = attributes_of(Extractor::words({}), {{"The"}, {"Öl-Preis"}, {"iPhone5s"}, {"EU"}});
  EXPECT_EQ(all[0],
            (std::vector<std::string>{"bias", "w=The", "lower=the", "shape=Xxx", "short=Xx", "prefix=T", "suffix=e",
                                      "prefix=Th", "suffix=he", "prefix=The", "suffix=The", "capital", "first",
                                      "w[1]=öl-preis", "short[1]=Xx-Xx", "w[0|1]=the|öl-preis", "w[2]=iphone5s"}));
  for (const char* name : {"w=Öl-Preis", "lower=öl-preis", "shape=Xx-Xxxxx", "short=Xx-Xx", "prefix=Ö", "prefix=Öl-P",
                           "suffix=reis", "hyphen", "capital", "w[-1]=the", "w[-1|0]=the|öl-preis", "w[2]=eu"}) {
    EXPECT_TRUE(has(all[1], name)) << name;
  }
  EXPECT_FALSE(has(all[1], "digit"));
  EXPECT_TRUE(has(all[2], "digit"));
  EXPECT_FALSE(has(all[2], "capital"));
  EXPECT_TRUE(has(all[3], "capitals"));
  EXPECT_TRUE(has(all[3], "last"));
}

TEST(Words, AffixesNeverCutCharacters) {
  for (const Rows& rows :
       {Rows{{"日本語テキスト"}}, Rows{{"naïveté"}}, Rows{{"😀a"}}, Rows{{"\xff\xfe"}}, Rows{{""}}, Rows{{"Ж"}}}) {
    const bool valid = is_utf8(rows[0][0]);
    const Rows result = attributes_of(Extractor::words({}), rows);
    for (const std::string& name : result[0]) EXPECT_TRUE(!valid || is_utf8(name)) << name;
  }
}

TEST(Words, OtherColumnsListsAndVectors) {
  const std::string list = scratch_file("extract_list", "Paris\n\n  berlin \r\n");
  const std::string vectors = scratch_file("extract_vectors", "2 2\nparis 0.5 -1\nRome 2 1 \n");
  WordFeatures features;
  features.columns = {1};
  features.lists = {WordList::load("city", list)};
  features.embeddings = vectors;
  const Extractor extractor = Extractor::words(features);
  const Rows all = attributes_of(extractor, {{"PARIS", "NN"}, {"Rome", "VB"}});
  for (const char* name : {"c2[0]=NN", "c2[1]=VB", "list=city", "e0*0.50", "e1*-1.0"})
    EXPECT_TRUE(has(all[0], name)) << name;
  for (const char* name : {"c2[0]=VB", "c2[-1]=NN", "list[-1]=city", "e0*2.00", "e1"})
    EXPECT_TRUE(has(all[1], name)) << name;
  EXPECT_FALSE(has(all[1], "list=city"));

  std::filesystem::remove(list);
  EXPECT_EQ(attributes_of(Extractor::from_text(extractor.text()), {{"PARIS", "NN"}, {"Rome", "VB"}}), all)
      << "lists are in the text";
  const std::string moved = scratch_file("extract_moved", "2 2\nparis 0.5 -1\nRome 2 1 \n");
  std::filesystem::remove(vectors);
  EXPECT_NE(error_of([&] { Extractor::from_text(extractor.text()); }).find("--embeddings says where"),
            std::string::npos);
  EXPECT_EQ(attributes_of(Extractor::from_text(extractor.text(), moved), {{"PARIS", "NN"}, {"Rome", "VB"}}), all);
  const std::string other = scratch_file("extract_moved", "2 2\nparis 0.5 -1\nRome 2 2 \n");
  EXPECT_NE(error_of([&] { Extractor::from_text(extractor.text(), other); }).find("content differs"),
            std::string::npos);
  std::filesystem::remove(other);
}

TEST(Words, BadVectorsAreErrorsThatNameTheLine) {
  for (const char* text : {"a 1 2\nb 1\n", "a 1 2\nb 1 x\n", "a 1 2\nb\n"}) {
    WordFeatures features;
    features.embeddings = scratch_file("extract_bad", text);
    EXPECT_NE(error_of([&] { Extractor::words(features); }).find("line 2"), std::string::npos) << text;
    std::filesystem::remove(features.embeddings);
  }
}

TEST(Extractor, TextThatIsNoneIsRefused) {
  for (const char* text :
       {"", "{}", "[]", R"({"kind":"magic"})", R"({"kind":"words","word":-1,"columns":[]})",
        R"({"kind":"words","word":0,"columns":[3000000000]})", R"({"kind":"words","word":0,"columns":[4294967296]})",
        R"({"kind":"words","word":0,"columns":[162e100]})", R"({"kind":"words","word":1.5,"columns":[]})",
        R"({"kind":"words","word":0,"columns":{"a":1}})", R"({"kind":"words","word":0,"columns":1})",
        R"({"kind":"template","text":""})", R"({"kind":"template"})"}) {
    EXPECT_NE(error_of([&] { Extractor::from_text(text); }), "no error") << text;
  }
}

TEST(Utf8, LowerCaseOfEuropeanAlphabets) {
  EXPECT_EQ(lower("ÀÉÖ ŠŁŽ ΑΩΆ ЖЁ İ ß 日"), "àéö šłž αωά жё İ ß 日");
  EXPECT_FALSE(is_utf8("\xc0\x80"));
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));
  EXPECT_TRUE(is_utf8("😀"));
  EXPECT_EQ(lower("A\xff"), "a\xff");
}

}  // namespace
}  // namespace regccrf
