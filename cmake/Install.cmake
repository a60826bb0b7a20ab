# `cmake --install`: headers, libraries, the program, and a package that find_package(regccrf) finds.
include(CMakePackageConfigHelpers)

set_target_properties(regccrf_inference PROPERTIES EXPORT_NAME inference)
set_target_properties(regccrf_cuda PROPERTIES EXPORT_NAME cuda)
install(TARGETS regccrf regccrf_inference regccrf_cuda EXPORT regccrf_targets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/regccrf DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/languages DESTINATION ${CMAKE_INSTALL_DATADIR}/regccrf)
if(TARGET regccrf_cli)
  install(TARGETS regccrf_cli)
endif()
if(TARGET regccrf_mpi)
  install(TARGETS regccrf_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/regccrf)
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/regccrf)
install(EXPORT regccrf_targets NAMESPACE regccrf:: FILE regccrfConfig.cmake DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/regccrfConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/regccrfConfigVersion.cmake DESTINATION ${package})
