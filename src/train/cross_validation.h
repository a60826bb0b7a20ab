// Cross-validation: every sequence is labelled by a model that was trained without it.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "regccrf/trainer.h"

namespace regccrf {

// Sequence i is in fold i mod `folds`; the model that labels it is trained on the other folds, without a development
// set. Gives the labels of every position, numbered as the training's; nothing when TrainOptions::stop ended it.
// `on_fold` is called with the number of folds that are done.
std::optional<std::vector<Label>> cross_predict(const Training& training, const TrainOptions& options, int folds,
                                                const std::function<void(int done)>& on_fold,
                                                const Processes& processes = {});

}  // namespace regccrf
