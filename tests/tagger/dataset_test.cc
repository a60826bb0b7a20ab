// Names, sentences as files hold them, and datasets.
#include "regccrf/dataset.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "regccrf/error.h"
#include "regccrf/sentences.h"

namespace regccrf {
namespace {

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("regccrf_dataset_test." + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& bytes, const std::string& name = "data") {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string zip(const std::string& bytes, const std::string& name, const char* mode = "wb") {
    const std::string path = folder_ / name;
    gzFile file = gzopen(path.c_str(), mode);
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return path;
  }
  std::filesystem::path folder_;
};

using Fields = std::vector<std::vector<std::vector<std::string>>>;  // sentence, row, field

Fields fields_of(const std::string& path, Format format = Format::automatic) {
  Fields all;
  SentenceReader reader(path, format);
  for (Sentence sentence; reader.next(sentence);) {
    if (sentence.size() == 0) continue;
    sentence.split();
    auto& rows = all.emplace_back();
    for (std::int64_t t = 0; t < sentence.size(); ++t) {
      auto& row = rows.emplace_back();
      for (int c = 0; c < sentence.fields(t); ++c) row.emplace_back(sentence.field(t, c));
    }
  }
  return all;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Names, AreNumberedInTheOrderInWhichTheyCame) {
  Names names;
  std::map<std::string, std::int32_t> expected;
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = std::string(random() % 20, 'a') + std::to_string(random() % 5'000);
    const auto [at, fresh] = expected.try_emplace(name, static_cast<std::int32_t>(expected.size()));
    EXPECT_EQ(names.find(name).has_value(), !fresh);
    ASSERT_EQ(names.add(name), at->second);
  }
  EXPECT_EQ(names.size(), static_cast<std::int32_t>(expected.size()));
  for (const auto& [name, number] : expected) {
    EXPECT_EQ(names.name(number), name);
    EXPECT_EQ(names.find(name), number);
  }
  EXPECT_FALSE(names.find("not there"));
}

TEST(Names, MayBeEmptyOrHoldAnyByte) {
  Names names;
  EXPECT_EQ(names.add(""), 0);
  EXPECT_EQ(names.add(std::string_view("\0", 1)), 1);
  EXPECT_EQ(names.add(std::string_view("\0\0", 2)), 2);
  EXPECT_EQ(names.find(""), 0);
  EXPECT_EQ(names.find(std::string_view("\0", 1)), 1);
}

TEST_F(Files, TheSameSentencesHoweverTheyAreWritten) {
  const Fields expected = {{{"EU", "NNP", "B"}, {"rejects", "VBZ", "O"}}, {{"é", "NN", "O"}}};
  EXPECT_EQ(fields_of(write("EU\tNNP\tB\nrejects\tVBZ\tO\n\né\tNN\tO\n")), expected);
  EXPECT_EQ(fields_of(write("EU NNP B\nrejects  VBZ O \n\né NN O")), expected) << "blanks, no last line end";
  EXPECT_EQ(fields_of(write("EU\tNNP\tB\r\nrejects\tVBZ\tO\r\n\r\né\tNN\tO\r\n")), expected) << "CRLF";
  EXPECT_EQ(fields_of(write("\xef\xbb\xbf\n\n EU NNP B\nrejects VBZ O\n \t \n\n\né NN O\n\n\n")), expected)
      << "mark, blank lines";
  EXPECT_EQ(fields_of(write("-DOCSTART- -X- O\n\nEU NNP B\nrejects VBZ O\n-DOCSTART- -X- O\né NN O\n")), expected);
  EXPECT_EQ(fields_of(zip("EU NNP B\nrejects VBZ O\n\né NN O\n", "a.gz")), expected) << "gzip";
  zip("EU NNP B\nrejects VBZ O\n", "two.gz");
  EXPECT_EQ(fields_of(zip("\né NN O\n", "two.gz", "ab")), expected) << "two gzip members";
}

TEST_F(Files, TabsKeepBlanksAndEmptyFields) {
  const Fields expected = {{{"New York", "", "B"}, {" ", "x", "O"}}};
  EXPECT_EQ(fields_of(write("New York\t\tB\n \tx\tO\n")), expected);
}

TEST_F(Files, EveryByteOfTheInputIsInSomeSentence) {
  std::mt19937 random(2);
  const std::vector<std::string> lines = {"\n", "\r\n", " \n", "a b\n", "a b\r\n", "-DOCSTART- x\n", "c d\n"};
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (std::size_t n = random() % 12; n > 0; --n) text += lines[random() % lines.size()];
    std::string again;
    SentenceReader reader(write(text), Format::columns);
    for (Sentence sentence; reader.next(sentence);) again += sentence.before + sentence.bytes + sentence.after;
    ASSERT_EQ(again, text);
  }
}

TEST_F(Files, LongInputsComeInPieces) {
  std::string text;
  Fields expected;
  std::mt19937 random(3);
  for (int s = 0; s < 3'000; ++s) {
    auto& rows = expected.emplace_back();
    for (std::size_t t = 1 + random() % 9; t > 0; --t) {
      rows.push_back({std::string(1 + random() % 60, 'w'), "O"});
      text += rows.back()[0] + "\tO\n";
    }
    text += "\n";
  }
  EXPECT_EQ(fields_of(write(text)), expected);
  EXPECT_EQ(fields_of(zip(text, "long.gz")), expected);
  const std::string line(3'000'000, 'x');
  EXPECT_EQ(fields_of(write(line + " O\n")), (Fields{{{line, "O"}}}));
}

TEST_F(Files, BadInputIsAnErrorThatNamesTheLine) {
  const auto reading = [&](const std::string& bytes, Format format = Format::columns) {
    return error_of([&, path = write(bytes)] { fields_of(path, format); });
  };
  EXPECT_NE(reading("a b\nc d\n\nc d\ne\n").find("data, line 5: has 1 column, and the file's first row has 2"),
            std::string::npos);
  EXPECT_NE(reading("\xff\xfe"
                    "a")
                .find("UTF-16"),
            std::string::npos);
  EXPECT_NE(reading("@foo\nO\tx\n", Format::crfsuite).find("line 1: '@foo'"), std::string::npos);
  EXPECT_NE(reading("O\tx\n@weight:2\n", Format::crfsuite).find("line 2: @weight must be before"), std::string::npos);
  EXPECT_NE(reading("@weight:x\nO\tx\n", Format::crfsuite).find("not a number"), std::string::npos);
  EXPECT_NE(error_of([&] { fields_of(folder_ / "absent"); }).find("cannot open"), std::string::npos);
  EXPECT_NE(error_of([&] { fields_of(folder_); }).find("is a folder"), std::string::npos);
  std::string noise;
  std::mt19937 random(4);
  for (int i = 0; i < 100'000; ++i) noise.push_back(static_cast<char>('a' + random() % 26));
  const std::string whole = zip(noise, "whole.gz");
  std::ifstream in(whole, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  EXPECT_NE(reading(bytes.substr(0, bytes.size() / 2)).find("truncated"), std::string::npos);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x55);
  EXPECT_NE(reading(bytes).find("damaged"), std::string::npos);
}

TEST_F(Files, TheFormatIsTakenFromTheFirstSentence) {
  const auto format = [&](const std::string& bytes) { return SentenceReader(write(bytes)).format(); };
  EXPECT_EQ(format("O\tw=a\tp=b\n"), Format::crfsuite);
  EXPECT_EQ(format("\n\nO\tw=a\tbias\tp=b\n"), Format::crfsuite);
  EXPECT_EQ(format("a\tO\n=\tO\n"), Format::columns);
  EXPECT_EQ(format("a\tCase=Nom\tO\n"), Format::columns) << "half is not more than half";
  EXPECT_EQ(format("a b=c O\n"), Format::columns);
  EXPECT_EQ(format(""), Format::columns);
}

TEST_F(Files, AWholeSentenceIsNotKeptWaiting) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  SentenceReader reader("/dev/fd/" + std::to_string(ends[0]), Format::columns);
  const auto write = [&](std::string_view text) {
    ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  EXPECT_TRUE(reader.would_wait());
  write("a O\n\nb ");
  EXPECT_FALSE(reader.would_wait());
  Sentence sentence;
  ASSERT_TRUE(reader.next(sentence));
  EXPECT_EQ(sentence.bytes, "a O\n");
  EXPECT_EQ(sentence.after, "\n");
  EXPECT_TRUE(reader.would_wait()) << "half a row is here";
  write("O\n");
  EXPECT_TRUE(reader.would_wait()) << "the sentence may go on";
  ::close(ends[1]);
  EXPECT_FALSE(reader.would_wait());
  ASSERT_TRUE(reader.next(sentence));
  EXPECT_EQ(sentence.bytes, "b O\n");
  EXPECT_FALSE(reader.next(sentence));
  ::close(ends[0]);
}

std::vector<std::string> items(const Dataset& data, const Names& names) {
  std::vector<std::string> all;
  for (std::int64_t p = 0; p < data.positions(); ++p) {
    std::string text;
    for (auto i = static_cast<std::size_t>(data.item[static_cast<std::size_t>(p)]);
         i < static_cast<std::size_t>(data.item[static_cast<std::size_t>(p) + 1]); ++i) {
      text += (text.empty() ? "" : " ") + std::string(names.name(data.attribute[i]));
      if (!data.value.empty() && data.value[i] != 1) text += "*" + std::to_string(static_cast<int>(data.value[i]));
    }
    all.push_back(text);
  }
  return all;
}

TEST_F(Files, CrfsuiteEscapesAndValues) {
  Names attributes, labels;
  const std::string path = write("B\\:X\ta:2\tb\\:c\td\\\\\te\\n\t\tf:\n@\\x\t\n");
  EXPECT_NE(error_of([&] {
              read_dataset({path}, Format::crfsuite, Extractor::attributes(), attributes, labels);
            }).find("declaration"),
            std::string::npos);
  const std::string good = write("B\\:X\ta:2\tb\\:c\td\\\\\te\\n\t\tf:\nO\\\\:5\tg\\\\:3\n\nU\n");
  ReadOptions options;
  options.unknown = "U";
  const Dataset data = read_dataset({good}, Format::crfsuite, Extractor::attributes(), attributes, labels, options);
  EXPECT_EQ(data.sequences(), 2);
  EXPECT_EQ(items(data, attributes), (std::vector<std::string>{"a*2 b:c d\\ e\\n f", "g\\*3", ""}));
  EXPECT_EQ(data.gold, (std::vector<Label>{0, 1, kUnknownLabel}));
  EXPECT_EQ(labels.name(0), "B:X");
  EXPECT_EQ(labels.name(1), "O\\");
  EXPECT_TRUE(data.weight.empty());
  EXPECT_EQ(data.origin(1), good + ", line 4");
}

TEST_F(Files, CrfsuiteValuesThatAreNoNumbers) {
  for (const std::string field : {"a:b", "a:1:2", "http://x", "a:1e999", "a:nan", "a:1x"}) {
    Names attributes, labels;
    const std::string path = write("O\tx\nO\t" + field + "\n");
    EXPECT_NE(error_of([&] {
                read_dataset({path}, Format::crfsuite, Extractor::attributes(), attributes, labels);
              }).find("data, line 2: '" + field),
              std::string::npos);
  }
}

TEST_F(Files, ValuesAndWeightsTakeMemoryOnlyWhereOneIsNot1) {
  Names attributes, labels;
  const Dataset ones =
      read_dataset({write("O\ta=1\tb=1:1.0\n")}, Format::automatic, Extractor::attributes(), attributes, labels);
  EXPECT_TRUE(ones.value.empty());
  const Dataset some = read_dataset({write("O\ta\tb\n\n@weight:0.5\nO\ta\tb:0.25\n\nO\tc\n")}, Format::crfsuite,
                                    Extractor::attributes(), attributes, labels);
  EXPECT_EQ(some.value, (std::vector<float>{1, 1, 1, 0.25F, 1}));
  EXPECT_EQ(some.weight, (std::vector<double>{1, 0.5, 1}));
}

TEST_F(Files, AttributesThatAreNewAreLeftOutWhereNothingMayGrow) {
  Names attributes, labels;
  read_dataset({write("O\ta\n")}, Format::crfsuite, Extractor::attributes(), attributes, labels);
  ReadOptions options;
  options.grow = false;
  const Dataset data = read_dataset({write("X\ta\tnew:3\nO\tnew\n")}, Format::crfsuite, Extractor::attributes(),
                                    attributes, labels, options);
  EXPECT_EQ(items(data, attributes), (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(data.gold, (std::vector<Label>{1, 0})) << "labels always grow";
  EXPECT_EQ(attributes.size(), 1);
}

TEST_F(Files, GoldMayStandInAnyColumn) {
  Names attributes, labels;
  WordFeatures words;
  words.word = 1;
  ReadOptions options;
  options.label_column = 0;
  const Dataset data =
      read_dataset({write("B x\nO y\n")}, Format::columns, Extractor::words(words), attributes, labels, options);
  EXPECT_EQ(data.gold, (std::vector<Label>{0, 1}));
  EXPECT_NE(error_of([&] {
              read_dataset({write("x\n")}, Format::columns, Extractor::words({}), attributes, labels);
            }).find("column 1 has the label, but word features would use it"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              read_dataset({write("x \xff\n")}, Format::columns, Extractor::words({}), attributes, labels);
            }).find("not UTF-8"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              read_dataset({write("O\tw=1\n")}, Format::automatic, Extractor::words({}), attributes, labels);
            }).find("--format"),
            std::string::npos);
}

}  // namespace
}  // namespace regccrf
