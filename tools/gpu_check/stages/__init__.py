"""The stages of a run, a module each."""
