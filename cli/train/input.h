// What the files of `regccrf train` give.
#pragma once

#include <optional>

#include "cli/train/arguments.h"
#include "regccrf/dataset.h"

namespace regccrf::cli {

struct Input {
  Names attributes, labels;
  std::optional<Extractor> extractor;
  Format format = Format::automatic;
  Dataset data;
  std::optional<Dataset> development;
  Names development_labels;  // labels, and those that only development gold has
  std::optional<Model> initial;
};

Input read_all(const TrainArguments& arguments);

}  // namespace regccrf::cli
