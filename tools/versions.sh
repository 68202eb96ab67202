# Versions that setup asks for; sourced by the scripts in this folder.
oldest_gcc=12
oldest_torch=2.11
torch_version=2.13.0
tokenizer_version=0.3.0
arrow_version=26.0.1
formatter_version=14
formatter_release=14.0.6
transformers_version=5.23.0
peft_version=0.21.2
