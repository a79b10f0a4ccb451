"""The data types of the Python API, the same for a model in this process and for a model behind a server.

Options, keywords, prompts, replies and errors, as plain data. The package imports only the standard library, and its
own modules relatively, because `imp-client` packages it under another name.
"""
