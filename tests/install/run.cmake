# Installs the build into a fresh prefix, configures the consumer against it, builds and runs it.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_FLAGS=${CXX_FLAGS})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer ${WORK}/spans.constraint)
run(${WORK}/build/inference_consumer ${WORK}/spans.constraint)
run(${WORK}/build/cuda_consumer)

# The inference part alone must not bring the automata engine along.
execute_process(COMMAND ldd ${WORK}/build/inference_consumer OUTPUT_VARIABLE libraries COMMAND_ERROR_IS_FATAL ANY)
if(libraries MATCHES "libfst")
  message(FATAL_ERROR "the inference part links OpenFst:\n${libraries}")
endif()
