# One set of warnings for everything that is compiled here; errors where REGCCRF_WERROR is on (CI, presets).
function(regccrf_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # wrong alarms on std::string + in GCC 12
                         $<$<BOOL:${REGCCRF_WERROR}>:-Werror>)
endfunction()
