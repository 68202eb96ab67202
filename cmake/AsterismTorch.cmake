# The target asterism_torch: PyTorch's C++ libraries, taken from a wheel or an unpacked libtorch.
#
# Not find_package(Torch): that package demands the CUDA toolkit as soon as the wheel was built with CUDA, warns about
# libraries that no wheel contains, and adds run paths that do not exist. Three files and two folders are all we need.
#
# Where it is looked for: CMAKE_PREFIX_PATH, else the folder that `make setup` left in build/torch_dir.
set(ASTERISM_OLDEST_TORCH 2.11)

set(recorded_file "${PROJECT_SOURCE_DIR}/build/torch_dir")
set(recorded "")
if(EXISTS "${recorded_file}")
  file(READ "${recorded_file}" recorded)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${recorded_file}")
endif()
unset(ASTERISM_TORCH_CMAKE CACHE)  # setup may have recorded another one since the last run
find_path(ASTERISM_TORCH_CMAKE TorchConfigVersion.cmake
  PATHS ${CMAKE_PREFIX_PATH} "${recorded}"
  PATH_SUFFIXES Torch share/cmake/Torch
  NO_DEFAULT_PATH)
if(NOT ASTERISM_TORCH_CMAKE)
  message(FATAL_ERROR "No PyTorch found. Run `make setup`, or pass -DCMAKE_PREFIX_PATH=<torch package>/share/cmake.")
endif()
include("${ASTERISM_TORCH_CMAKE}/TorchConfigVersion.cmake")
if(PACKAGE_VERSION VERSION_LESS ASTERISM_OLDEST_TORCH)
  message(FATAL_ERROR "PyTorch ${PACKAGE_VERSION} in ${ASTERISM_TORCH_CMAKE} is too old: "
                      "${ASTERISM_OLDEST_TORCH} or newer is needed.")
endif()
message(STATUS "PyTorch ${PACKAGE_VERSION}: ${ASTERISM_TORCH_CMAKE}")
get_filename_component(torch_root "${ASTERISM_TORCH_CMAKE}/../../.." ABSOLUTE)

foreach(name torch_cpu c10)
  if(NOT EXISTS "${torch_root}/lib/lib${name}.so")
    message(FATAL_ERROR "${torch_root}/lib/lib${name}.so is missing: the PyTorch there is incomplete.")
  endif()
endforeach()

add_library(asterism_torch INTERFACE)
target_include_directories(asterism_torch SYSTEM INTERFACE
  "${torch_root}/include" "${torch_root}/include/torch/csrc/api/include")
target_link_libraries(asterism_torch INTERFACE
  "${torch_root}/lib/libtorch_cpu.so" "${torch_root}/lib/libc10.so" Threads::Threads)
# As the wheel is built: headers hide declarations and members without them.
target_compile_definitions(asterism_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO USE_RPC USE_TENSORPIPE)
target_compile_features(asterism_torch INTERFACE cxx_std_20)
# The compiler's own spelling of OpenMP, not the path of its runtime: the one that comes with torch is to be loaded, and
# no second one.
target_compile_options(asterism_torch INTERFACE -fopenmp)
target_link_options(asterism_torch INTERFACE -fopenmp)
if(ASTERISM_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(asterism_torch INTERFACE -Wno-tsan)  # a header of torch has a fence, which GCC does not follow
endif()
