// All of regccrf, from pattern to tagger.
#pragma once

#include "regccrf/automaton.h"       // IWYU pragma: export
#include "regccrf/automaton_file.h"  // IWYU pragma: export
#include "regccrf/bigram_fst.h"      // IWYU pragma: export
#include "regccrf/constraint.h"      // IWYU pragma: export
#include "regccrf/crfsuite.h"        // IWYU pragma: export
#include "regccrf/dataset.h"         // IWYU pragma: export
#include "regccrf/error.h"           // IWYU pragma: export
#include "regccrf/evaluate.h"        // IWYU pragma: export
#include "regccrf/extract.h"         // IWYU pragma: export
#include "regccrf/inference.h"       // IWYU pragma: export
#include "regccrf/labels.h"          // IWYU pragma: export
#include "regccrf/language.h"        // IWYU pragma: export
#include "regccrf/loss.h"            // IWYU pragma: export
#include "regccrf/model.h"           // IWYU pragma: export
#include "regccrf/names.h"           // IWYU pragma: export
#include "regccrf/scores.h"          // IWYU pragma: export
#include "regccrf/sentences.h"       // IWYU pragma: export
#include "regccrf/tagger.h"          // IWYU pragma: export
#include "regccrf/trainer.h"         // IWYU pragma: export
