"""The runner of .ci/run: the table of stages, what a change touches, the run of a stage, and its report."""
