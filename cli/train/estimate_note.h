// What training says beforehand of the memory and the time that it will take.
#pragma once

#include "regccrf/trainer.h"

namespace regccrf::cli {

// On standard error: the memory when the time is not yet known, then the time. Says nothing of what is small. Warns of
// memory that is not there and of iterations that take more than a minute, and says what to do.
void note_estimate(const Estimate& estimate, const Training& training, const TrainOptions& options);

}  // namespace regccrf::cli
