"""Constraints on output: JSON Schema, regular expressions, GBNF grammars and choices as masks of tokens."""
