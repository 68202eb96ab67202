include(CMakeParseArguments)

# One precompiled header for everything that includes torch. CONFIGURE leaves an unchanged file alone, WRITE would not.
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/asterism_pch.cpp" CONTENT "// Holds the precompiled header.\n")
add_library(asterism_pch STATIC "${CMAKE_BINARY_DIR}/asterism_pch.cpp")
target_link_libraries(asterism_pch PRIVATE asterism_torch nlohmann_json::nlohmann_json)
target_precompile_headers(asterism_pch PRIVATE
  <algorithm> <cmath> <cstdint> <functional> <map> <memory> <optional> <string> <vector>
  <ATen/ATen.h> <torch/csrc/autograd/custom_function.h> <nlohmann/json.hpp>)

# Most of a source's compile time is spent on templates that torch's headers instantiate at its end, and a precompiled
# header does not spare that: sources of one target are compiled in batches. Names in their unnamed namespaces must
# therefore differ within a target; the presets dev and asan compile every source by itself.
function(asterism_unity target)
  if(ASTERISM_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  endif()
endfunction()

# asterism_library(NAME ops SRCS ... DEPS core ... [LIBS ...] [NO_TORCH])
# NO_TORCH: sources that include no torch header compile in a second without the precompiled header.
# DEPS are layers below; the list is the architecture and tools/check compares it with the includes.
function(asterism_library)
  cmake_parse_arguments(ARG "NO_TORCH" "NAME" "SRCS;DEPS;LIBS" ${ARGN})
  set(target asterism_${ARG_NAME})
  add_library(${target} STATIC ${ARG_SRCS})
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/src")
  list(TRANSFORM ARG_DEPS PREPEND asterism_)
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} ${ARG_LIBS})
  target_link_libraries(${target} PUBLIC nlohmann_json::nlohmann_json)
  if(NOT ARG_NO_TORCH)
    target_link_libraries(${target} PUBLIC asterism_torch)
    target_precompile_headers(${target} REUSE_FROM asterism_pch)
    asterism_unity(${target})
  endif()
endfunction()

# asterism_isa_kernels(TARGET asterism_ops_cpu LEVELS avx2 ... SRCS ... [PORTABLE]): compiles each source once per level
# of ops/cpu/level.h, into the namespace isa_<level>, and adds the objects to the target; one is chosen at run time.
# Other processors than x86-64 get isa_portable with PORTABLE (sources without intrinsics), otherwise nothing.
# Never -march=native: it knows no AVX-512 on some processors that have it.
function(asterism_isa_kernels)
  cmake_parse_arguments(ARG "PORTABLE" "TARGET" "LEVELS;SRCS" ${ARGN})
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    if(NOT ARG_PORTABLE)
      return()
    endif()
    set(ARG_LEVELS portable)
  endif()
  set(flags_avx2 -mavx2 -mfma)
  set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND flags_avx512 -Wno-maybe-uninitialized)  # GCC 12 warns about "undefined" operands in its own header
  endif()
  set(flags_avx512_bf16 ${flags_avx512} -mavx512bf16)
  list(GET ARG_SRCS 0 first)
  get_filename_component(first ${first} NAME_WE)
  foreach(level IN LISTS ARG_LEVELS)
    set(objects ${ARG_TARGET}_${first}_${level})
    add_library(${objects} OBJECT ${ARG_SRCS})
    target_include_directories(${objects} PRIVATE "${PROJECT_SOURCE_DIR}/src")
    target_compile_definitions(${objects} PRIVATE ASTERISM_ISA=isa_${level})
    target_compile_options(${objects} PRIVATE -O3 -fno-math-errno -fno-trapping-math ${flags_${level}})
    target_sources(${ARG_TARGET} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()

# asterism_program(NAME asterism SRCS main.cpp DEPS cli): an executable at the top of the build folder.
function(asterism_program)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
  list(TRANSFORM ARG_DEPS PREPEND asterism_)
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS})
endfunction()

# asterism_test(NAME ops SRCS ... DEPS ops ... [NO_TORCH]): one executable and one ctest entry per module.
function(asterism_test)
  cmake_parse_arguments(ARG "NO_TORCH" "NAME" "SRCS;DEPS" ${ARGN})
  set(target ${ARG_NAME}_test)
  add_executable(${target} ${ARG_SRCS})
  list(TRANSFORM ARG_DEPS PREPEND asterism_)
  target_link_libraries(${target} PRIVATE ${ARG_DEPS} nlohmann_json::nlohmann_json GTest::gtest_main)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
  if(NOT ARG_NO_TORCH)
    target_link_libraries(${target} PRIVATE asterism_torch)
    target_precompile_headers(${target} REUSE_FROM asterism_pch)
    asterism_unity(${target})
  endif()
  target_compile_definitions(${target} PRIVATE ASTERISM_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                               ASTERISM_BINARY_DIR="${PROJECT_BINARY_DIR}")
  add_test(NAME ${ARG_NAME} COMMAND ${target})
endfunction()
