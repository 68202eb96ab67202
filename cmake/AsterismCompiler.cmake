# Language level, warnings, sanitizers and the compiler cache: the same for every target, so that one precompiled header
# fits all.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# One spelling for libraries and executables (CMake would use -fPIE there), so that the precompiled header fits both.
add_compile_options(-fPIC)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # asserts of our own stay on: no NDEBUG

# Where programs look for libraries that they load at run time: beside themselves, and in the build folder for tests.
set(CMAKE_BUILD_RPATH "$ORIGIN;${PROJECT_BINARY_DIR}")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

add_compile_options(-Wall -Wextra -Wno-unused-parameter)
if(ASTERISM_WERROR)
  add_compile_options(-Werror)
endif()
if(ASTERISM_SANITIZE)
  add_compile_options(-fsanitize=${ASTERISM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  # GCC's documentation warns of false positives under sanitizers: <regex> alone has ten.
  add_compile_options(-Wno-maybe-uninitialized)
  add_link_options(-fsanitize=${ASTERISM_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # false alarms on instrumented code, in <regex> of GCC 12 for one
  endif()
endif()

find_program(ASTERISM_CCACHE ccache)
if(ASTERISM_CCACHE)
  # The two settings that ccache needs to cache translation units that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${ASTERISM_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()
