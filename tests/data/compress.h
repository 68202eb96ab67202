#pragma once

#include <zlib.h>
#include <zstd.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace asterism::data {

/// One gzip member.
inline std::string gzipped(std::string_view text) {
  z_stream state{};
  constexpr int kGzip = 15 + 16;
  ::deflateInit2(&state, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY);
  std::string out(::deflateBound(&state, text.size()) + 32, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  const int status = ::deflate(&state, Z_FINISH);
  out.resize(state.total_out);
  ::deflateEnd(&state);
  if (status != Z_STREAM_END) throw std::runtime_error("deflate failed");
  return out;
}

/// One Zstandard frame with a checksum; `window_log` 0 = chosen by the library.
inline std::string zstd_frame(std::string_view text, int window_log = 0) {
  ZSTD_CCtx* state = ::ZSTD_createCCtx();
  ::ZSTD_CCtx_setParameter(state, ZSTD_c_checksumFlag, 1);
  if (window_log > 0) {
    ::ZSTD_CCtx_setParameter(state, ZSTD_c_windowLog, window_log);
    ::ZSTD_CCtx_setParameter(state, ZSTD_c_contentSizeFlag, 0);
  }
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  ZSTD_inBuffer in{text.data(), text.size(), 0};
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  // Not ZSTD_compress2: it would lower the window to the size of the text.
  if (window_log > 0) ::ZSTD_compressStream2(state, &to, &in, ZSTD_e_flush);
  const size_t left = ::ZSTD_compressStream2(state, &to, &in, ZSTD_e_end);
  ::ZSTD_freeCCtx(state);
  if (left != 0) throw std::runtime_error("zstd failed");
  out.resize(to.pos);
  return out;
}

}  // namespace asterism::data
