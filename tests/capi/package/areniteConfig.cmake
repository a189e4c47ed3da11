# find_package(arenite): the targets arenite::arenite (static) and arenite::shared.
get_filename_component(_arenite_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET arenite::arenite)
  add_library(arenite::arenite STATIC IMPORTED)
  set_target_properties(arenite::arenite PROPERTIES
    IMPORTED_LOCATION "${_arenite_prefix}/lib/libarenite.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_arenite_prefix}/include"
    INTERFACE_COMPILE_DEFINITIONS ARENITE_STD
    INTERFACE_LINK_LIBRARIES "pthread;${CMAKE_DL_LIBS};m")

  add_library(arenite::shared SHARED IMPORTED)
  if(APPLE)
    set(_arenite_shared libarenite.dylib)
  else()
    set(_arenite_shared libarenite.so.0)
  endif()
  set_target_properties(arenite::shared PROPERTIES
    IMPORTED_LOCATION "${_arenite_prefix}/lib/${_arenite_shared}"
    IMPORTED_SONAME "${_arenite_shared}"
    INTERFACE_INCLUDE_DIRECTORIES "${_arenite_prefix}/include"
    INTERFACE_COMPILE_DEFINITIONS ARENITE_STD)
  unset(_arenite_shared)
endif()
unset(_arenite_prefix)
