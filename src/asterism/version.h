#pragma once

namespace asterism {

/// Of this build, from the project() line of CMakeLists.txt.
inline constexpr const char* kVersion = ASTERISM_VERSION;

}  // namespace asterism
