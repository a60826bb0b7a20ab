// What `regccrf train` says: of the task before, of the model after.
#pragma once

#include <vector>

#include "cli/train/input.h"
#include "cli/train/penalty_search.h"

namespace regccrf::cli {

void say_task(const Input& input, const Training& training);

// What becomes of the work of a run that was cut off: before it goes on, or when it is interrupted.
void say_where_it_goes_on(const TrainOptions& options, bool interrupted);

// The table is what --cv is for, so it goes to standard output; with a model's JSON it is in there.
void say_trials(const TrainArguments& arguments, const std::vector<Trial>& trials);

// The model that was saved.
void report(const TrainArguments& arguments, const Trained& trained, const std::vector<Trial>& trials);

}  // namespace regccrf::cli
