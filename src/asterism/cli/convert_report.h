#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "asterism/checkpoint/convert.h"

namespace asterism::cli {

/// What `convert` and `export` share: the words of their options, and what they say about a result.

/// The storage that words of --experts and --dense ("" = as stored) and of --scales (e8m0 | f32) stand for.
checkpoint::Storage storage_of_words(const std::string& experts, const std::string& dense, const std::string& scales);

/// The bytes of --shard-size. InputError for what is no size.
uint64_t shard_bytes_of(const std::string& word);

/// Threads of --workers: 0 stands for as many as keep the machine busy.
int workers_of(int64_t word);

/// "12.3 %".
std::string percent(int64_t part, int64_t whole);

/// What was rounded, a line for each class and change of form.
std::string class_lines(const checkpoint::ConvertReport& report);
nlohmann::ordered_json classes_json(const checkpoint::ConvertReport& report);

}  // namespace asterism::cli
