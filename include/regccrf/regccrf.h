// All of regccrf.
#pragma once

#include "regccrf/automaton.h"   // IWYU pragma: export
#include "regccrf/constraint.h"  // IWYU pragma: export
#include "regccrf/error.h"       // IWYU pragma: export
#include "regccrf/labels.h"      // IWYU pragma: export
#include "regccrf/language.h"    // IWYU pragma: export
