#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/data/loader.h"
#include "asterism/data/tokenizer.h"
#include "asterism/model/model.h"
#include "asterism/train/recipe.h"

namespace asterism::cli {

/// How the weights of a checkpoint are kept in memory.
checkpoint::ReadOptions read_options(train::Storage storage);
/// Says what a model.storage has changed of the checkpoint's values; nothing when it has changed none.
void warn_of_rounding(const checkpoint::RecodingLoss& loss, train::Storage storage);

/// A model as a command uses it, loaded from a checkpoint folder and, when given, a PEFT adapter.
model::Model load_model(const std::string& folder, train::Storage storage, const std::string& adapter = "");

/// The type of matrix products: what the recipe says; auto is bf16 where the CPU multiplies it, else fp32.
at::ScalarType compute_type(train::Compute compute);

/// The tokenizer of `path`, or of the model folder when `path` is empty; nothing when neither folder holds one, which
/// is fine for data that are token ids already. InputError when the tokenizer's ids do not fit the vocabulary.
std::shared_ptr<const data::Tokenizer> load_tokenizer(const std::string& path, const std::string& model_folder,
                                                      int64_t vocab_size);

/// Copies the tokenizer files of `path`, or of the model folder when `path` is empty, into the folder `target`, so that
/// a new checkpoint can be used alone. Nothing when there is none. RunError when a file cannot be copied.
void copy_tokenizer(const std::string& path, const std::string& model_folder, const std::filesystem::path& target);

/// The version of the chat encoding of that name; for "auto" the one that the checkpoint in `folder` was made with
/// (data/variant_detection.h), which is logged. `tokenizer` may be nullptr.
data::ChatVariant variant_named(const std::string& name, const std::filesystem::path& folder,
                                const data::Tokenizer* tokenizer);

/// How rows become samples, by the recipe's data section.
data::RowOptions row_options(const train::DataSection& section, std::shared_ptr<const data::Tokenizer> tokenizer,
                             int64_t vocab_size, const std::filesystem::path& model_folder);

/// The place where indices of the recipe's data are kept, <output>/.cache, with all that decides what they hold.
data::IndexPlace index_place(const train::Recipe& recipe, const data::RowOptions& options,
                             const data::Tokenizer* tokenizer);

/// Prepares a data set (data/index_cache.h) and reports what was read, skipped and lost. Without `place` nothing is
/// written.
std::unique_ptr<data::DataSet> load_data(const std::vector<data::DataSource>& sources, const train::Recipe& recipe,
                                         const data::RowOptions& options, const char* what,
                                         const data::IndexPlace& place = {});

/// Each path with weight 1.
std::vector<data::DataSource> plain_sources(const std::vector<std::string>& paths);

/// Puts the rejected rows of all data sets into `target`, or removes it when there are none.
void write_rejected_rows(const std::vector<const data::DataSet*>& sets, const std::filesystem::path& target);

}  // namespace asterism::cli
