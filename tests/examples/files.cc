// The files that examples in headers read: train.conll and ner.model, in a folder of their own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "regccrf/regccrf.h"

namespace {

class Files : public testing::Environment {
 public:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    std::filesystem::current_path(folder_);

    std::ofstream("train.conll") << "Ada B-PER\nLovelace I-PER\nmet O\nBabbage B-PER\n\nIt O\nrained O\n";

    regccrf::ModelParts parts;
    parts.labels = regccrf::Labels({"O", "B-PER", "I-PER"});
    parts.extractor = regccrf::Extractor::words({}).text();
    parts.begin = {0};
    parts.transitions.assign(9, 0.0);
    regccrf::Model(std::move(parts)).save("ner.model");
  }

  void TearDown() override {
    std::filesystem::current_path(folder_.parent_path());
    std::filesystem::remove_all(folder_);
  }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("regccrf_header_examples." + std::to_string(::getpid()));
};

const testing::Environment* const files = testing::AddGlobalTestEnvironment(new Files);

}  // namespace
