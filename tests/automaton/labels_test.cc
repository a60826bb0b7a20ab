#include "regccrf/labels.h"

#include <gtest/gtest.h>

#include "base/spelling.h"
#include "regccrf/error.h"

namespace regccrf {
namespace {

TEST(Labels, KeepTheOrderTheyAreGivenIn) {
  const Labels labels({"O", "B", "I"});
  EXPECT_EQ(labels.size(), 3);
  EXPECT_EQ(labels.name(1), "B");
  EXPECT_EQ(labels.id("I"), 2);
  EXPECT_FALSE(labels.find("X"));
}

TEST(Labels, MustBeDistinctAndNotEmpty) {
  EXPECT_THROW(Labels({"A", "A"}), Error);
  EXPECT_THROW(Labels({"A", ""}), Error);
}

TEST(Labels, AnUnknownLabelNamesTheNearestKnownOne) {
  const Labels labels({"O", "B-ARG0", "I-ARG0"});
  try {
    labels.id("B-AGR0");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[labels] unknown label 'B-AGR0': did you mean 'B-ARG0'?");
  }
}

TEST(Labels, SequencesGoToIdsAndBack) {
  const Labels labels({"O", "B", "I"});
  const std::vector<std::string> names = {"B", "I", "O"};
  EXPECT_EQ(labels.names(labels.ids(names)), names);
}

TEST(Nearest, PrefersTheFewestEditsAndGivesUpWhenFar) {
  const std::vector<std::string> known = {"at_most", "at_least", "exactly"};
  EXPECT_EQ(nearest("at_mots", known), "at_most");
  EXPECT_EQ(nearest("atleast", known), "at_least");
  EXPECT_EQ(nearest("zebra", known), std::nullopt);
  EXPECT_EQ(nearest("", known), std::nullopt);
}

}  // namespace
}  // namespace regccrf
