# A test that cannot be built: fails, and is skipped where REGCCRF_ALLOW_MISSING says so. `what`: what is missing.
if("$ENV{REGCCRF_ALLOW_MISSING}" STREQUAL "1")
  message("skipped: ${what} was not found")
else()
  message(FATAL_ERROR "${what} was not found, so its tests are not built: install it and configure again, or set REGCCRF_ALLOW_MISSING=1")
endif()
