// What training will take, before it is begun.
#pragma once

#include "regccrf/constraint.h"
#include "regccrf/trainer.h"
#include "train/features.h"

namespace regccrf {

// Memory beyond the data's own, from the sizes of what is kept; without the time.
Estimate estimate_memory(const Training& training, const Features& features, const Constraint& constraint,
                         const TrainOptions& options);

// Seconds that an iteration takes, by working out a few sequences; 0 where it is too little to be worth measuring.
double estimate_seconds(const Training& training, const Features& features, const Constraint& constraint,
                        const TrainOptions& options);

}  // namespace regccrf
