#pragma once

#include <memory>
#include <string>

#include "asterism/data/byte_stream.h"

namespace asterism::data {

/// What the gzip data of `source` holds: one member or several one after the other, with their checksums verified.
/// Zero bytes behind the last one (padding of tapes and block devices) are ignored. `name` stands for the data in
/// messages. InputError from read() for data that is damaged, ends too early or is followed by anything else.
std::unique_ptr<ByteStream> gunzip(std::unique_ptr<ByteStream> source, std::string name);

/// The same for Zstandard frames; frames to be skipped are skipped. A frame that needs a window above 128 MiB
/// (zstd --long=28 and more) is an InputError.
std::unique_ptr<ByteStream> unzstd(std::unique_ptr<ByteStream> source, std::string name);

}  // namespace asterism::data
