"""The text side of a model directory: tokenizer and templates from the files that its publisher put there."""
