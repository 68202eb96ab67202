#include "asterism/data/chat_decoder.h"

#include "asterism/data/stream_decoder.h"

namespace asterism::data {

DecodedChat decode_chat(std::string_view completion, const DecodeOptions& options) {
  StreamDecoder decoder(options);
  decoder.feed(completion);
  return decoder.finish();
}
}  // namespace asterism::data
