"""Models from a hub: the only commands that connect to a machine that no option or setting names."""
