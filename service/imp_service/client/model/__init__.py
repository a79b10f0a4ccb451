"""A model behind a server, with the methods, options and replies of a model in this process."""
