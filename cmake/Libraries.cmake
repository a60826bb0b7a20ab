# The libraries that the build needs. Where some are missing, all are named at once, with what to install.
set(missing)
set(places)

# need(NAME FILE HEADER): lib<FILE> and its header, wherever they lie; targets link them as FILE.
macro(need name file header)
  find_library(${name}_LIBRARY ${file})
  find_path(${name}_INCLUDE ${header})
  if(${name}_LIBRARY AND ${name}_INCLUDE)
    get_filename_component(folder ${${name}_LIBRARY} DIRECTORY)
    if(NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
      list(APPEND places ${folder})
    endif()
    include_directories(SYSTEM ${${name}_INCLUDE})
  else()
    list(APPEND missing ${name})
  endif()
endmacro()

need(FST fst fst/fst.h)
need(GMP gmp gmp.h)
need(HWY hwy hwy/highway.h)
need(LBFGS lbfgs lbfgs.h)
need(Z z zlib.h)
find_package(nlohmann_json 3.10 QUIET)
if(NOT nlohmann_json_FOUND)
  list(APPEND missing JSON)
endif()
list(REMOVE_DUPLICATES places)
link_directories(${places})

set(FST_is "OpenFst, automata")
set(GMP_is "GMP, exact counts")
set(HWY_is "Highway, SIMD")
set(LBFGS_is "libLBFGS, training")
set(Z_is "zlib, gzip input")
set(JSON_is "nlohmann_json 3.10 or later, files")
foreach(library ${missing})
  string(APPEND list "  ${${library}_is}\n")
endforeach()
if(missing)
  message(FATAL_ERROR "regccrf needs libraries that were not found here:\n${list}"
    "Install them and build again (all that the build needs is named; what is there already is left alone):\n"
    "  Debian 12, Ubuntu:  apt-get install g++ python3-dev libfst-dev libgmp-dev libhwy-dev liblbfgs-dev nlohmann-json3-dev zlib1g-dev\n"
    "  Fedora:             dnf install gcc-c++ python3-devel openfst-devel gmp-devel highway-devel liblbfgs-devel json-devel zlib-devel\n"
    "  Homebrew:           brew install openfst gmp highway liblbfgs nlohmann-json zlib\n"
    "  conda:              conda install -c conda-forge cxx-compiler openfst gmp libhwy liblbfgs nlohmann_json zlib\n"
    "Where they are in a folder of their own, name it: CMAKE_PREFIX_PATH=/that/folder\n")
endif()
