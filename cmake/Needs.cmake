# What to install where something that the build needs is not there: all of it at once, so that nobody has to come back.

# regccrf_needs(WHAT NAME…): stops, and says which of WHAT is missing and what to install.
function(regccrf_needs what)
  list(JOIN ARGN "\n  " names)
  message(FATAL_ERROR "regccrf needs ${what}:\n  ${names}\n"
    "Install them and build again (all that the build needs is named; what is there already is left alone):\n"
    "  Debian 12, Ubuntu 24.04:  apt-get install g++ python3-dev libfst-dev libgmp-dev libhwy-dev liblbfgs-dev nlohmann-json3-dev zlib1g-dev\n"
    "  Fedora:                   dnf install gcc-c++ python3-devel openfst-devel gmp-devel highway-devel liblbfgs-devel json-devel zlib-devel\n"
    "  Homebrew:                 brew install openfst gmp highway liblbfgs nlohmann-json zlib\n"
    "  conda:                    conda install -c conda-forge cxx-compiler openfst gmp libhwy liblbfgs nlohmann_json zlib\n"
    "Where they are in a folder of their own, name it: CMAKE_PREFIX_PATH=/that/folder\n")
endfunction()

# Before the first language is enabled: CMake's own complaint says nothing about libraries, which would be the next one.
function(regccrf_need_compiler)
  include(CheckLanguage)
  check_language(CXX)
  if(NOT CMAKE_CXX_COMPILER)
    regccrf_needs("a compiler and libraries that were not found here" "a C++20 compiler (CXX or CMAKE_CXX_COMPILER may name one)")
  endif()
endfunction()
